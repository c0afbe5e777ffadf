"""The rows of many files as batches: which rows a worker of a rank gets, in which order, and from where on.

Rows have one order, that of the files, or, shuffled, of their pieces by chance and of the rows in each. Every worker of
every rank takes a range of that order; ranges differ by one row at most, so that all ranks make equally many steps.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from rowgrad._ops.from_ragged import from_ragged
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError, RowgradError
from rowgrad.torch._keyed_jagged import KeyedJaggedTensor
from rowgrad.torch._settings import WHOLE
from rowgrad.torch.data import _files as sources
from rowgrad.torch.data._files import Paths, Piece


class Batch(NamedTuple):
    """A batch: the ids of all features, the other columns by name, its worker, and that worker's row count so far."""

    features: KeyedJaggedTensor
    columns: dict[str, Tensor]
    position: tuple[int, int]


class JaggedDataset(IterableDataset[Batch]):
    """The rows of Parquet or Arrow files as batches with a `KeyedJaggedTensor`.

    Parameters
    ----------
    files : path, folder, pattern, or a list of these
        Parquet files, or Arrow files (Feather, IPC).
    features : list of str, or dict of str to str
        The columns of ids: lists of integers, or one integer per row. A dict maps features to columns.
    batch_size : int
        How many rows a batch has; the last one of a worker may have fewer.
    columns : list of str
        Further columns of numbers, such as labels and dense features.
    shuffle : bool
        Whether to shuffle: row groups of files in random order, and the rows of each in random order.
    seed : int
        The random seed; the same seed and epoch give the same order, for any number of workers and ranks.
    drop_last : bool
        Whether to leave out a last batch that is not full.
    rank, world_size : int, optional
        Which part of the rows this process reads; by default those of `torch.distributed`, if it is initialised.

    Raises
    ------
    InvalidArgumentError
        A file or column does not exist, a file cannot be read, or a column does not hold ids.

    Examples
    --------
    ::

        dataset = JaggedDataset("clicks/*.parquet", ["user", "items"], batch_size=4096, columns=["label"])
        for batch in JaggedLoader(dataset, num_workers=2):
            loss = model(batch.features, batch.columns["label"])
    """

    def __init__(
        self,
        files: Paths,
        features: Sequence[str] | Mapping[str, str],
        *,
        batch_size: int,
        columns: Sequence[str] = (),
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__()
        self.batch_size, self.seed = _whole("batch_size", batch_size, 1), _whole("seed", seed)
        names = _names("features", features)
        self.features = dict(zip(names, _names("features", features.values()), strict=True)) if isinstance(
            features, Mapping) else {name: name for name in names}  # fmt: skip
        if not self.features:
            raise _wrong("features", f"features is {features!r}; it must be a list or dict of columns.")
        self.columns, self.shuffle, self.drop_last = _names("columns", columns), shuffle, drop_last
        self.rank, self.world_size = _place(rank, world_size)
        self.epoch = 0
        needed = list(dict.fromkeys([*self.features.values(), *self.columns]))
        self._needed = needed
        self.pieces = [piece for file in sources.find(files) for piece in sources.pieces_of(file, needed)]
        self.rows = sum(piece.rows for piece in self.pieces)
        # Where workers begin: rows that each has given before, and which of them is first.
        self._given: dict[int, int] = {}
        self._turn = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; each epoch has its own shuffled order."""
        self.epoch, self._given, self._turn = _whole("epoch", epoch), {}, 0

    def rows_of(self, worker: int, workers: int) -> tuple[int, int]:
        """The range of rows, in their order, that a worker of this rank reads."""
        total, number = self.world_size * workers, self.rank * workers + worker
        return number * self.rows // total, (number + 1) * self.rows // total

    def state_dict(self) -> dict[str, Any]:
        """The position: the number of rows returned in this process, by worker."""
        return {"epoch": self.epoch, "rows": dict(self._given), "turn": self._turn, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position; the files and settings must be the same."""
        check_state(state)
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise InvalidArgumentError(
                    f"the position was saved with {name} = {state.get(name)!r}, but this data set has {value!r}. Make "
                    "the data set with the same settings.",
                    code="other-data",
                    argument="state",
                    value=state.get(name),
                )
        if not isinstance(state.get("rows"), Mapping):
            raise _wrong("state", "state has no rows; it must be the result of `state_dict`.")
        rows = {_count(worker): _count(given) for worker, given in state["rows"].items()}
        self.epoch, self._given, self._turn = _count(state.get("epoch")), rows, _count(state.get("turn"))

    def _identity(self) -> dict[str, Any]:
        """What an order of rows, and a range of it, depend on."""
        return {"total": self.rows, "parts": len(self.pieces), "seed": self.seed, "shuffle": self.shuffle,
                "batch_size": self.batch_size, "rank": self.rank, "world_size": self.world_size}  # fmt: skip

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        workers = 1 if info is None else info.num_workers
        # The worker whose turn it is comes first, as the loader takes from them in turn.
        worker = 0 if info is None else (info.id + self._turn) % workers
        first, last = self.rows_of(worker, workers)
        done = self._given.get(worker, 0)
        for parts, size in self._gathered(first + done, last, info is None):
            if size < self.batch_size and self.drop_last:
                break
            done += size
            self._given[worker] = done
            yield self._batch(parts, (worker, done))
        self._given.pop(worker, None)

    def _order(self) -> list[int]:
        order = np.arange(len(self.pieces))
        if self.shuffle:
            np.random.default_rng([self.seed, self.epoch]).shuffle(order)
        return [int(i) for i in order]

    def _gathered(self, first: int, last: int, is_alone: bool) -> Iterator[tuple[list["_Rows"], int]]:
        """The rows from `first` to `last` in lots of the size of a batch; each is of one or more pieces."""
        order = self._order()
        ends = list(accumulate(self.pieces[i].rows for i in order))
        place = bisect_right(ends, first)
        parts: list[_Rows] = []
        missing = self.batch_size
        while first < last:
            piece = order[place]
            begin = ends[place] - self.pieces[piece].rows
            rows = self._read(piece, is_alone)
            stop = min(ends[place], last)
            while first < stop:
                size = min(missing, stop - first)
                parts.append(_Rows(rows, first - begin, first - begin + size))
                first, missing = first + size, missing - size
                if missing == 0:
                    yield parts, self.batch_size
                    parts, missing = [], self.batch_size
            place += 1
        if parts:
            yield parts, self.batch_size - missing

    def _read(self, number: int, is_alone: bool) -> "_Columns":
        piece = self.pieces[number]
        table = sources.read(piece, self._needed, is_alone=is_alone)
        if self.shuffle:
            table = table.take(np.random.default_rng([self.seed, self.epoch, number]).permutation(piece.rows))
        ids = {key: _ids(piece, column, table.column(column)) for key, column in self.features.items()}
        return _Columns(ids, {name: _numbers(piece, name, table.column(name)) for name in self.columns})

    def _batch(self, parts: list["_Rows"], position: tuple[int, int]) -> Batch:
        values, lengths = [], []
        for key in self.features:
            for columns, first, last in parts:
                ids, offsets = columns.ids[key]
                values.append(ids[offsets[first] : offsets[last]])
                lengths.append(np.diff(offsets[first : last + 1]))
        kind = np.result_type(*values)
        features = KeyedJaggedTensor(
            list(self.features), torch.from_numpy(np.concatenate(values, dtype=kind)),
            lengths=torch.from_numpy(np.concatenate(lengths)),
        )  # fmt: skip
        others = {name: torch.from_numpy(np.concatenate([c.numbers[name][a:b] for c, a, b in parts]))
                  for name in self.columns}  # fmt: skip
        return Batch(features, others, position)


class _Columns(NamedTuple):
    """A piece in memory: ids with offsets by feature, and numbers by column."""

    ids: dict[str, tuple[Array, Array]]
    numbers: dict[str, Array]


class _Rows(NamedTuple):
    columns: _Columns
    first: int
    last: int


def _ids(piece: Piece, name: str, column: Any) -> tuple[Array, Array]:
    """Flat ids and offsets; a column of numbers has one id a row."""
    if sources.arrow().types.is_integer(column.type):
        ids = _numbers(piece, name, column)
        return ids, np.arange(len(ids) + 1)
    try:
        found, offsets = from_ragged(column)
    except RowgradError as error:
        raise InvalidArgumentError(
            f"column {name!r} of {piece.file} must hold ids only: {error}",
            code=error.code,
            argument="features",
            value=name,
        ) from error
    return np.asarray(found), np.asarray(offsets)


def _numbers(piece: Piece, name: str, column: Any) -> Array:
    kinds = sources.arrow().types
    if column.null_count or not (kinds.is_integer(column.type) or kinds.is_floating(column.type)
                                 or kinds.is_boolean(column.type)):  # fmt: skip
        found = f"{column.null_count} nulls" if column.null_count else f"the type {column.type}"
        raise InvalidArgumentError(
            f"column {name!r} of {piece.file} has {found}; it must hold numbers. Fill nulls, convert the column, or "
            "hash texts with rowgrad.raw_ops.StringToHashBucketFast, when the file is written.",
            code="bad-column",
            argument="columns",
            value=name,
        )
    # A copy where pyarrow lends read-only memory: PyTorch's tensors can be written to.
    return np.array(column.to_numpy())


def _names(argument: str, given: Any) -> list[str]:
    """A list of names of columns."""
    names = [None] if isinstance(given, str | bytes) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(name, str) for name in names):
        kind = "a list or dict of columns" if argument == "features" else "a list of columns"
        raise _wrong(argument, f"{argument} is {given!r}; it must be {kind}.")
    return [str(name) for name in names]


def _whole(argument: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, WHOLE) or value < least:
        raise _wrong(argument, f"{argument} is {value!r}; it must be a whole number of {least} or more.")
    return int(value)


def _count(value: Any) -> int:
    """A number of a position; JSON makes texts of the keys of dicts."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise _wrong("state", f"state has {value!r} for a count; it must be the result of `state_dict`.")
    return number


def check_state(state: Any) -> None:
    """A position is what `state_dict` gave."""
    if not isinstance(state, Mapping):
        raise _wrong("state", f"state is {state!r}; it must be the result of `state_dict`.")


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None and world_size is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if not isinstance(rank, int) or not isinstance(world_size, int) or not 0 <= rank < world_size:
        raise _wrong("rank", f"rank is {rank!r} and world_size {world_size!r}; give both, with 0 <= rank < world_size.")
    return rank, world_size


def _wrong(argument: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="wrong-argument", argument=argument, op="JaggedDataset")
