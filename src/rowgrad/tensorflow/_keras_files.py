"""The variables in files of Keras: `.keras` (an archive with an HDF5 file in it), `.weights.h5` and `.h5`.

They are read by h5py, as they are used. Archives have a checksum, which is compared when they are opened; HDF5 files
have none.
"""

import importlib.util
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime import dtypes, memory
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad._runtime.files.store import first_line
from rowgrad.errors import FileError, RowgradError
from rowgrad.tensorflow._bundle import damaged
from rowgrad.tensorflow._checkpoint import Checkpoint, Variable
from rowgrad.tensorflow._names import slot_of

WEIGHTS = "model.weights.h5"
# What layers call their variables; those of others are numbered.
_CALLED = {"Embedding": ("embeddings",), "Dense": ("kernel", "bias"), "EmbeddingBag": ("embeddings",)}
_NUMBERS = ("iteration", "learning_rate")  # of an optimizer; without the second, if the rate follows a schedule
# The state that optimizers have for each variable, in the order in which they keep it.
_KEPT = {"Adagrad": ("accumulator",), "Adam": ("momentum", "velocity"), "AdamW": ("momentum", "velocity"),
         "Ftrl": ("accumulator", "linear"), "SGD": ("momentum",)}  # fmt: skip


class _Found(NamedTuple):
    name: str
    key: str
    is_state: bool = False


class Datasets:
    """The arrays of an HDF5 file by path."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self.file = path, file

    def array(self, key: str) -> Array:
        """All of a dataset."""
        return self._read(key, ())

    def rows(self, key: str, first: int, last: int) -> Array:
        """The rows of a range."""
        return self._read(key, slice(first, last))

    def _read(self, key: str, where: Any) -> Array:
        dataset = guarded(self._path, lambda: self.file[key])
        if isinstance(where, tuple):
            memory.check_room(int(np.prod(dataset.shape)) * dataset.dtype.itemsize, key)
        found = np.asarray(guarded(self._path, lambda: dataset[where]))
        if type_of(dataset) == "bfloat16":
            found = found.view(BFLOAT16)
        found.flags.writeable = False
        return found


def type_of(dataset: Any) -> str:
    """The name of a dataset's type; bfloat16 is kept as two bytes without a meaning."""
    if dataset.dtype.kind == "V" and dataset.dtype.itemsize == 2:
        return "bfloat16"
    return dtypes.name_of(dataset.dtype)


def guarded(path: Path, read: Callable[[], Any]) -> Any:
    """What `read` gives; h5py and zipfile have many errors for files that are not whole."""
    try:
        return read()
    except (RowgradError, MemoryError):
        raise
    except Exception as error:
        raise damaged(f"{path} is not a valid Keras file ({first_line(error)}).") from error


def open_keras(path: Path) -> Checkpoint:
    """The variables of a file of Keras."""
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.", code="no-such-file", argument="path")
    if importlib.util.find_spec("h5py") is None:
        raise FileError(f"{path} is an HDF5 file, and h5py, which reads it, is not installed.", "pip install h5py",
                        code="missing-package")  # fmt: skip
    config, file = guarded(path, lambda: _open(path))
    source = Datasets(path, file)
    found = guarded(path, lambda: list(_variables(file, config)))
    optimizer = guarded(path, lambda: _optimizer(file, config))
    order = guarded(path, lambda: [layer["config"]["name"] for layer in _layers(config)])
    return Checkpoint(path, source, guarded(path, lambda: _described(file, found, optimizer, order)), optimizer)


def _open(path: Path) -> tuple[dict[str, Any], Any]:
    import h5py  # type: ignore[import-not-found, unused-ignore]

    if path.suffix.lower() != ".keras":
        return {}, h5py.File(path, "r")
    archive = zipfile.ZipFile(path)
    config = json.loads(archive.read("config.json"))
    with archive.open(WEIGHTS) as file:  # to its end, where zipfile compares the checksum
        while file.read(1 << 20):
            pass
    return config if isinstance(config, dict) else {}, h5py.File(archive.open(WEIGHTS), "r")


def _variables(file: Any, config: dict[str, Any]) -> Iterator[_Found]:
    if "model_weights" in file or "layer_names" in file.attrs:  # the older format, which has names
        layers = file.get("model_weights", file)
        groups = [(layers[layer], False) for layer in sorted(layers)]
        groups += [(file["optimizer_weights"], True)] if "optimizer_weights" in file else []
        for group, is_state in groups:
            for name in _weight_names(group.attrs):
                yield _Found(name.removesuffix(":0"), f"{group.name}/{name}", is_state)
        return
    classes = {layer["config"]["name"]: layer["class_name"] for layer in _layers(config)}
    paths: list[str] = []
    file.visititems(lambda path, each: paths.append(path) if path.rpartition("/")[2] == "vars" else None)
    for group in paths:
        layer = _text(file[group].attrs.get("name", "")) or group.removesuffix("/vars") or "model"
        is_state = group.partition("/")[0] == "optimizer"
        called = _NUMBERS if is_state else _CALLED.get(classes.get(layer, ""), ())
        for position in sorted(file[group], key=int):
            number = int(position)
            named = number < len(called) and not (is_state and file[group][position].shape)
            name = called[number] if named else position
            yield _Found(f"{layer}/{name}", f"/{group}/{position}", is_state)


def _weight_names(attributes: Any) -> list[str]:
    """The names of variables, which Keras spreads over several attributes if they are many."""
    if "weight_names" in attributes:
        return [_text(name) for name in attributes["weight_names"]]
    parts = takewhile(attributes.__contains__, (f"weight_names{number}" for number in count()))
    return [_text(name) for part in parts for name in attributes[part]]


def _layers(config: Any) -> Iterator[dict[str, Any]]:
    """The layers of a model in their order, those inside others too."""
    inner = config.get("config") if isinstance(config, dict) else None
    for layer in inner.get("layers", ()) if isinstance(inner, dict) else ():
        yield layer
        yield from _layers(layer)


def _optimizer(file: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the optimizer and, as `class_name`, what it is; empty if the file does not tell."""
    try:
        compiled = config.get("compile_config") or json.loads(file.attrs.get("training_config", "{}"))
        found = compiled.get("optimizer") or compiled.get("optimizer_config") or {}
        return {"class_name": found["class_name"], **found["config"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _described(file: Any, found: list[_Found], optimizer: dict[str, Any], order: list[str]) -> list[Variable]:
    times = Counter(each.name for each in found)
    names = {each.key: each.name if times[each.name] == 1 else each.key.strip("/") for each in found}
    variables = [names[each.key] for each in found if not each.is_state]
    owners = _owners(file, found, names, _KEPT.get(str(optimizer.get("class_name")), ()), order)
    described = []
    for each in found:
        dataset = file[each.key]
        if dataset.external or dataset.is_virtual:
            raise ValueError(f"{each.key} is in another file")
        owner = owners.get(each.key) or (slot_of(each.name, variables) if each.is_state else None)
        name = f"{owner[0]}@optimizer/{owner[1]}" if owner else names[each.key]
        slot = (owner[0], "optimizer", owner[1]) if owner else (None, None, None)
        described.append(Variable(name, tuple(dataset.shape), type_of(dataset), each.key, *slot))
    return described


def _owners(
    file: Any, found: list[_Found], names: dict[str, str], kept: tuple[str, ...], order: list[str]
) -> dict[str, tuple[str, str]]:
    """Whose the numbered state is: Keras keeps it in the order of the variables, if all are trained.

    It is told by the shapes: if they do not fit one after the other, nothing is guessed.
    """
    state = [each for each in found if each.is_state and each.name.rpartition("/")[2].isdecimal()]
    layers: dict[str, list[_Found]] = {}
    for each in found:
        if not each.is_state:
            layers.setdefault(each.name.rpartition("/")[0], []).append(each)
    variables = [each for name in order for each in layers.get(name, ())]
    if not kept or len(state) != len(kept) * len(variables) or len(variables) != sum(map(len, layers.values())):
        return {}
    owners = {}
    for position, each in enumerate(state):
        variable = variables[position // len(kept)]
        if file[each.key].shape != file[variable.key].shape:
            return {}
        owners[each.key] = names[variable.key], kept[position % len(kept)]
    return owners


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
