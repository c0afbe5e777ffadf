"""The variables of a checkpoint in other files: tables on disk, safetensors, a file of PyTorch. All or nothing.

Rows are copied in blocks from the checkpoint's files, so that tables may be larger than memory; PyTorch's files alone
are made in memory.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes, files, memory
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import FileError, InvalidArgumentError
from rowgrad.tables import Table
from rowgrad.tensorflow._bundle import numpy_type
from rowgrad.tensorflow._checkpoint import Checkpoint, Variable
from rowgrad.tensorflow._state import Moved, moved

MANIFEST, REST = "migrated.json", "variables.safetensors"
BLOCK = 1 << 22  # bytes copied at a time

Progress = Callable[[int], None]  # called with the number of bytes copied

# The names of types in safetensors files.
_STORED = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
}  # fmt: skip


class Plan(NamedTuple):
    """What is to be written: variables, those of them that have state that goes with them, and what is left out."""

    variables: list[Variable]
    moved: dict[str, Moved]
    left_out: list[str]

    @property
    def nbytes(self) -> int:
        """The bytes of all of it."""
        slots = sum(len(each.slots) * v.nbytes for v in self.variables if (each := self.moved.get(v.name)))
        return sum(variable.nbytes for variable in self.variables) + slots


def plan(checkpoint: Checkpoint, settings: Mapping[str, Any], *, state: bool = True) -> Plan:
    """All variables that other formats can hold, with optimizers' state unless `state` is False."""
    variables, found, left_out = [], {}, []
    for variable in checkpoint.variables.values():
        if variable.variable is not None:
            continue  # it goes with its variable
        if variable.dtype not in _STORED:
            left_out.append(variable.name)
            continue
        variables.append(variable)
        if state and checkpoint.slots(variable.name) and variable.dtype in dtypes.FLOATS:
            found[variable.name] = moved(checkpoint, variable.name, settings)
    return Plan(variables, found, left_out)


class _Part(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[Array]]


def _blocks(
    variable: Variable, whole: Callable[[str], Array], rows: Callable[[str, int, int], Array], name: str | None = None
) -> Iterator[Array]:
    """The array `name`, which is like `variable`, block by block."""
    name = variable.name if name is None else name
    if not variable.shape or 0 in variable.shape:
        yield whole(name)
        return
    step = max(1, BLOCK * variable.shape[0] // max(1, variable.nbytes))
    for first in range(0, variable.shape[0], step):
        yield rows(name, first, min(first + step, variable.shape[0]))


def write_safetensors(checkpoint: Checkpoint, what: Plan, path: Path, told: Progress) -> None:
    """A safetensors file: variables by name, state as `name@sum`, the optimizers in the metadata."""
    parts: dict[str, _Part] = {}
    for variable in what.variables:
        parts[variable.name] = _Part(
            variable.dtype, variable.shape, partial(_blocks, variable, checkpoint.__getitem__, checkpoint.rows)
        )
        if (each := what.moved.get(variable.name)) is None:
            continue
        sums = dtypes.name_of(dtypes.summing(dtypes.NUMPY[variable.dtype]).sums)
        for name in each.slots:
            whole, rows = partial(each.array, checkpoint), partial(each.rows, checkpoint)
            parts[f"{variable.name}@{name}"] = _Part(
                sums, variable.shape, partial(_blocks, variable, whole, rows, name)
            )
        if each.steps is not None:
            steps = np.array(each.steps, np.int64)
            parts[f"{variable.name}@step"] = _Part("int64", (), partial(iter, [steps]))
    header: dict[str, Any] = {}
    with_state = [variable.name for variable in what.variables if variable.name in what.moved]
    if with_state:
        header["__metadata__"] = {
            f"optimizer of {name}": json.dumps(what.moved[name].optimizer.as_dict()) for name in with_state
        }
    at = 0
    # Wide types first: then each array begins at a multiple of its items' size.
    order = sorted(parts, key=lambda key: -_type(parts[key].dtype).itemsize)
    for key in order:
        dtype, shape, _ = parts[key]
        size = prod(shape) * _type(dtype).itemsize
        header[key] = {"dtype": _STORED[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def fill(file: IO[bytes]) -> None:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in order:
            for block in parts[key].blocks():
                data = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
                file.write(data.data)
                told(data.nbytes)

    files.replace(path, fill)


def _type(name: str) -> "np.dtype[Any]":
    dtype = numpy_type(name)
    assert dtype is not None  # those of `_STORED` are numbers
    return dtype


def write_torch(checkpoint: Checkpoint, what: Plan, path: Path, told: Progress) -> None:
    """A file for `torch.load`: {"model": name → tensor, "state": name → state, "optimizer": name → settings}."""
    import torch

    memory.check_room(what.nbytes, str(checkpoint.path))

    def tensor(array: Array) -> Any:
        own = np.array(array)
        told(own.nbytes)
        if own.dtype == dtypes.BFLOAT16:
            return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
        if own.dtype.name.startswith("float8"):
            return torch.from_numpy(own.view(np.int8)).view(getattr(torch, own.dtype.name))
        return torch.from_numpy(own)

    content = {
        "model": {variable.name: tensor(checkpoint[variable.name]) for variable in what.variables},
        "state": {
            name: {key: tensor(value) for key, value in each.state(checkpoint).items()}
            for name, each in what.moved.items()
        },
        "optimizer": {name: each.optimizer.as_dict() for name, each in what.moved.items()},
    }
    files.replace(path, lambda file: torch.save(content, file))


def write_tables(
    checkpoint: Checkpoint, what: Plan, path: Path, told: Progress, tables: list[str], *, overwrite: bool
) -> dict[str, str]:
    """A folder with a table on disk for each of `tables`, and a safetensors file of the rest; gives folders by name."""
    replaced = path.exists() or path.is_symlink()
    if replaced:
        _check_replaceable(path, overwrite=overwrite)
    new = path.parent / f".{path.name}-{os.urandom(4).hex()}.part"
    folders: dict[str, str] = {}
    try:
        new.mkdir(parents=True)
        for variable in what.variables:
            if variable.name in tables:
                folders[variable.name] = _folder_name(variable.name, folders.values())
                _write_table(checkpoint, variable, what.moved.get(variable.name), new / folders[variable.name], told)
        rest = [variable for variable in what.variables if variable.name not in folders]
        if rest:
            write_safetensors(checkpoint, what._replace(variables=rest), new / REST, told)
        manifest = json.dumps({"tables": folders}, indent=1).encode()
        (new / MANIFEST).write_bytes(manifest)
        if replaced:
            old = new.with_suffix(".old")
            path.rename(old)
            new.rename(path)
            shutil.rmtree(old)
        else:
            new.rename(path)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise FileError(
                f"{path} cannot be created ({error.strerror}). Nothing was written.", code="cannot-write"
            ) from error
        raise
    return folders


def _write_table(checkpoint: Checkpoint, variable: Variable, each: Moved | None, path: Path, told: Progress) -> None:
    def rows(first: int, block: Array) -> None:
        block[:] = checkpoint.rows(variable.name, first, first + len(block))
        told(block.nbytes)

    def state(name: str) -> Callable[[int, Array], None]:
        def fill(first: int, block: Array) -> None:
            assert each is not None
            if name == "step":
                block[:] = each.steps
            else:
                block[:] = each.rows(checkpoint, name, first, first + len(block))
                told(block.nbytes)

        return fill

    names = [] if each is None else [*each.slots, *(["step"] if each.steps is not None else [])]
    table = Table.create(
        path, variable.shape[0], variable.shape[1], variable.dtype, initializer=rows,
        optimizer=None if each is None else each.optimizer, progress=lambda done, rows: None,
        state_initializers={name: state(name) for name in names},
    )  # fmt: skip
    table.close()


def check_tables(checkpoint: Checkpoint, names: list[str]) -> None:
    """Tables are float matrices."""
    for name in names:
        variable = checkpoint.variables.get(name)
        if variable is None:
            raise InvalidArgumentError(f"{checkpoint.path} has no variable {name!r}.", code="no-such-part", value=name)
        if len(variable.shape) != 2 or variable.dtype not in dtypes.FLOATS or variable.shape[1] < 1:
            raise InvalidArgumentError(
                f"{name!r} is {variable.dtype} of shape {list(variable.shape)}; tables are matrices of floats.",
                code="wrong-rank",
                value=name,
            )


def _check_replaceable(path: Path, *, overwrite: bool) -> None:
    """Only what was written here is ever replaced."""
    if not overwrite:
        raise FileError(f"{path} already exists.", "--force overwrites it.", code="exists")
    try:
        tables = json.loads((path / MANIFEST).read_text())["tables"].values()
        strange = sorted({each.name for each in path.iterdir()} - {MANIFEST, REST, *tables})
    except (OSError, ValueError, KeyError, AttributeError):
        strange = [path.name]
    if strange or path.is_symlink():
        raise FileError(f"{path} is not a folder that this command made, and is not overwritten.", code="exists")


def _folder_name(name: str, taken: Any) -> str:
    plain = re.sub(r"[^\w@-]+", ".", name).strip(".")[:100] or "table"
    found, number = plain, 1
    while found.casefold() in {each.casefold() for each in taken} | {MANIFEST, REST}:
        number += 1
        found = f"{plain}-{number}"
    return found
