"""`load_checkpoint`: the variables of a TensorFlow checkpoint, a SavedModel or a Keras file, without TensorFlow."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files.regular import open_regular
from rowgrad.errors import DTypeError, FileError, InvalidArgumentError, RowgradError
from rowgrad.tensorflow import _names as naming
from rowgrad.tensorflow._bundle import Bundle, damaged, numpy_type
from rowgrad.tensorflow._names import Name
from rowgrad.tensorflow._protobuf import Damage
from rowgrad.tensorflow._state import moved

if TYPE_CHECKING:
    from rowgrad.optim import Optimizer

KERAS_FILES = (".keras", ".h5", ".hdf5")
MOST_STATE = 1 << 20  # bytes of a file `checkpoint` that are read


class Variable(NamedTuple):
    """The description of a variable, available without reading its values.

    Attributes
    ----------
    name : str
        Its name in the `Checkpoint`.
    shape : tuple of int
        Its shape.
    dtype : str
        Its type, by TensorFlow's name, such as "float32", "bfloat16" or "string".
    key : str
        Its key in the file.
    variable, optimizer, slot : str or None
        For optimizer state: the name of the variable it belongs to, the optimizer, and its name there.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    key: str
    variable: str | None = None
    optimizer: str | None = None
    slot: str | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its values; 0 for strings, whose size is not in the index."""
        dtype = numpy_type(self.dtype)
        return 0 if dtype is None else prod(self.shape) * dtype.itemsize


class Source(Protocol):
    """A file format: arrays by key."""

    def array(self, key: str) -> Array:
        """All of it."""

    def rows(self, key: str, first: int, last: int) -> Array:
        """The rows of a range."""


class Checkpoint(Mapping[str, Array]):
    """The variables of a checkpoint by name; the result of `load_checkpoint`.

    Arrays are read-only, and memory-mapped where the file allows it: they are read from the disk when they are used,
    and may be unaligned. A variable that was saved in slices is assembled when it is used.

    Attributes
    ----------
    path : Path
        The checkpoint: the path of its index without the ending, or of the Keras file.
    variables : dict of str to Variable
        A description of each variable, including optimizer state, available without reading it.
    settings : dict
        The settings of the optimizer if the file has them (`.keras` files do), otherwise empty.
    """

    def __init__(
        self, path: Path, source: Source, variables: list[Variable], settings: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self.variables = {each.name: each for each in sorted(variables)}
        self.settings = dict(settings or {})
        self._source = source

    def __getitem__(self, name: str) -> Array:
        return self._source.array(self.variables[name].key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __repr__(self) -> str:
        size = sum(each.nbytes for each in self.variables.values())
        return f"Checkpoint({str(self.path)!r}, {len(self)} variables, {size} bytes)"

    def rows(self, name: str, first: int, last: int) -> Array:
        """Read only the rows [first, last) of a variable, for example to copy tables larger than memory.

        Parameters
        ----------
        name : str
            The variable.
        first, last : int
            The range, inside the variable's rows.

        Raises
        ------
        InvalidArgumentError
            The variable has no such rows.
        FileError
            It is damaged.
        """
        found = self.variables[name]
        if not found.shape or not 0 <= first <= last <= found.shape[0]:
            raise InvalidArgumentError(
                f"the rows {first} to {last} are not in {name!r}, whose shape is {list(found.shape)}.",
                code="bad-range",
                argument="first",
                value=first,
            )
        return self._source.rows(found.key, first, last)

    def slots(self, name: str) -> dict[str, str]:
        """The names of the optimizer state of a variable, by their names in the optimizer."""
        return {each.slot: each.name for each in self.variables.values() if each.variable == name and each.slot}

    def optimizer(self, name: str, **settings: Any) -> "tuple[Optimizer, dict[str, Array]]":
        """Return the optimizer that trained a variable, as one of `rowgrad.optim`, and its state, to continue training.

        Supported are Adagrad, Adam and FTRL, of Keras or of TensorFlow. The learning rate is read from the checkpoint
        if it is there; other settings are in `.keras` files only, and have Keras' defaults otherwise.

        Parameters
        ----------
        name : str
            The variable.
        **settings
            Settings of the optimizer that override those of the checkpoint, such as ``lr=0.1``.

        Returns
        -------
        optimizer : rowgrad.optim.Optimizer
            Its next step equals TensorFlow's next step, except for Adam's epsilon (docs/from_tensorflow.md).
        state : dict of str to ndarray
            Writable copies.

        Raises
        ------
        InvalidArgumentError
            The variable has no state or that of another optimizer, or the learning rate is unknown.
        """
        found = moved(self, name, settings)
        return found.optimizer, found.state(self)

    def verify(self, progress: "Callable[[str], None] | None" = None) -> None:
        """Read all variables, and compare them with their checksums.

        Parameters
        ----------
        progress : callable, optional
            Called with the name of each variable that was read.

        Raises
        ------
        FileError
            A variable is damaged.
        """
        for name, found in self.variables.items():
            if found.dtype == "string" or numpy_type(found.dtype) is not None:
                if found.shape and found.dtype != "string":
                    for first in range(0, found.shape[0], step := _rows_at_a_time(found)):
                        self.rows(name, first, min(first + step, found.shape[0]))
                else:
                    self[name]
            if progress is not None:
                progress(name)


def load_checkpoint(path: str | os.PathLike[str], *, verify: bool = False) -> Checkpoint:
    """Read the variables of a TensorFlow checkpoint, a SavedModel or a Keras file. TensorFlow is not needed.

    Variables of TensorFlow 1 keep their names. Those of TensorFlow 2 have the name they were created with if it is
    unique, otherwise the shortest path to them from the saved object. Optimizer state is named
    ``variable@optimizer/slot``, such as ``"user/embeddings@optimizer/accumulator"``.

    Parameters
    ----------
    path : path
        A checkpoint (the path without ``.index``, as in TensorFlow), a folder with a file ``checkpoint``, which names
        the latest, a SavedModel, or a Keras file (``.keras``, ``.h5``; these need h5py).
    verify : bool
        Whether to compare all variables with their checksums now. By default each is compared when it is first used.

    Returns
    -------
    Checkpoint
        A mapping of names to read-only arrays.

    Raises
    ------
    FileError
        The checkpoint does not exist, or is damaged (code ``damaged-checkpoint``): the message names the file and, if
        it is not the index, the variable. Keras files have no checksums.
    """
    if not isinstance(path, str | os.PathLike):
        raise DTypeError(
            f"path is a {type(path).__name__}; pass a path as text, or pathlib's.",
            code="wrong-dtype", argument="path", value=type(path).__name__,
        )  # fmt: skip
    found = Path(path)
    try:
        checkpoint = _open(found)
    except (OSError, ValueError) as error:  # names that no file can have, folders that may not be read
        if isinstance(error, RowgradError):
            raise
        raise FileError(f"{found} cannot be read: {error}.", code="no-such-file", argument="path") from error
    if verify:
        checkpoint.verify()
    return checkpoint


def _open(found: Path) -> Checkpoint:
    if found.suffix.lower() in KERAS_FILES and not found.is_dir():
        from rowgrad.tensorflow._keras_files import open_keras

        return open_keras(found)
    return _open_bundle(_prefix(found))


def _open_bundle(prefix: Path) -> Checkpoint:
    bundle = Bundle(prefix)
    keys = [key for key in bundle.entries if key != naming.GRAPH]
    names: dict[str, Name]
    if naming.GRAPH in bundle.entries:
        graph = bundle.array(naming.GRAPH)
        try:
            if graph.shape != () or not isinstance(graph.item(), bytes):
                raise Damage("its object graph is not a string")
            names = naming.of_graph(graph.item(), keys)
        except Damage as damage:
            raise damaged(f"{prefix}: {damage}.") from None
    else:
        names = naming.plain(keys)
    return Checkpoint(
        prefix,
        bundle,
        [
            Variable(names[key].name, entry.shape, entry.dtype, key, *names[key][1:])
            for key, entry in bundle.entries.items()
            if key != naming.GRAPH
        ],
    )


def _prefix(path: Path) -> Path:
    """The path of the index that is meant, without its ending."""
    plain = path.with_name(re.sub(r"\.(index|data-\d{5}-of-\d{5})$", "", path.name)) if path.name else path
    for prefix in (path, plain, path / "variables" / "variables"):
        if prefix.name and prefix.with_name(f"{prefix.name}.index").is_file():
            return prefix
    if (path / "checkpoint").is_file():
        return _latest(path)
    if path.is_dir():
        indexes = sorted(path.glob("*.index"))
        if len(indexes) == 1:
            return indexes[0].with_suffix("")
        what = f"has {len(indexes)} checkpoints" if indexes else "has no checkpoint"
        hint = f"name one, such as {indexes[0].with_suffix('')}" if indexes else ""
        raise FileError(f"{path} {what}.", hint, code="no-such-file", argument="path")
    is_there = path.is_file()
    raise FileError(
        f"{path} is not a checkpoint{' of TensorFlow' if is_there else f': there is no {path}.index'}.",
        "a checkpoint is named by its path without .index, a SavedModel by its folder.",
        code="no-such-file",
        argument="path",
    )


def _latest(folder: Path) -> Path:
    """The checkpoint that the file `checkpoint` names; one that was moved with its folder is found there."""
    state = folder / "checkpoint"
    with open_regular(state) as file:
        text = file.read(MOST_STATE)
    found = re.search(rb'^model_checkpoint_path: "((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    if found is None:
        raise damaged(f"{state}: it does not name the latest checkpoint.")
    escaped = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 255]), found[1])
    named = Path(re.sub(rb"\\(.)", rb"\1", escaped).decode(errors="replace"))
    for prefix in (folder / named, folder / named.name):
        if prefix.with_name(f"{prefix.name}.index").is_file():
            return prefix
    raise FileError(f"{state} names {named}, which does not exist.", "name another checkpoint of the folder.",
                    code="no-such-file", argument="path")  # fmt: skip


def _rows_at_a_time(variable: Variable) -> int:
    row = max(1, variable.nbytes // max(1, variable.shape[0]))
    return max(1, (1 << 24) // row)
