"""Batches of examples: columns of a file or arrays, cut into batches, shuffled anew for each epoch.

Which examples a batch holds follows from its number and the settings alone, so that any step of a training run can be
repeated. A session gives each step of a loop the next batch; scripts that pages are exported as do the same.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.files import folder as files
from rowgrad.blocks._random import permutation
from rowgrad.errors import FileError, PageError

SPLITS = "_splits"  # after the name of a ragged column: where its rows begin and end
SEGMENTS = "_segments"  # and the row of each value, within the batch
ROWS = "rows"
TRAIN, TEST = "train", "test"
HELD_OUT = 2**64 - 1  # the stream of random numbers that chooses them


class Ragged(NamedTuple):
    """A column of rows of different lengths."""

    values: Array
    splits: Array


class Batches:
    """Examples in batches.

    Parameters
    ----------
    columns : dict
        Arrays with one entry along the first axis for each example, or `Ragged` columns.
    batch_size : int
        How many examples a batch has.
    shuffle : bool
        Whether each epoch has an order of its own, which `seed` decides.
    seed : int
        For the order, and for the examples that are held out.
    epochs : int, optional
        After how many epochs there are no more batches; None never ends.
    remainder : {"keep", "drop"}
        Whether the last batch of an epoch may be smaller, or is left out.
    holdout : float
        The share of the examples that is kept for `split="test"`.
    splits : dict, optional
        Further splits: for each name, the share of the examples that is kept for it.
    split_by : str, optional
        A column that names the split of each example, instead of shares; those of ``"train"`` are trained with.
    """

    def __init__(
        self,
        columns: Mapping[str, Array | Ragged],
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        epochs: int | None = None,
        remainder: str = "keep",
        holdout: float = 0.0,
        splits: Mapping[str, float] | None = None,
        split_by: str | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.epochs, self.remainder = epochs, remainder
        sizes = {name: _length(column) for name, column in self.columns.items()}
        first, size = next(iter(sizes.items()), ("", 0))
        for name, other in sizes.items():
            if other != size:
                raise PageError(f"column {name} has {other} examples, and {first} has {size}; they must be equal.",
                                code="length-mismatch", value=other)  # fmt: skip
        if split_by is None:
            self.examples = _shared(size, seed, {TEST: holdout, **(splits or {})})
        else:
            self.examples = _named(self.columns, split_by)
        self._order: tuple[int, Array] | None = None

    def count(self, split: str = TRAIN) -> int:
        """How many batches an epoch has."""
        size = len(self._of(split))
        return size // self.batch_size if self.remainder == "drop" else -(-size // self.batch_size)

    def _of(self, split: str) -> Array:
        """The examples of a split."""
        if split not in self.examples:
            raise PageError(f"there is no split {split!r}; there are: {', '.join(self.examples)}.", code="no-examples",
                            value=split)  # fmt: skip
        return self.examples[split]

    def rows(self, number: int, split: str = TRAIN) -> Array:
        """The examples of batch `number`; those of splits other than "train" are in their order, and one epoch."""
        count = self.count(split)
        if not count:
            size = len(self._of(split))
            raise PageError(f"there are {size} examples in the split {split}, too few for a batch of "
                            f"{self.batch_size}.", code="no-examples", value=split)  # fmt: skip
        epoch, within = divmod(number, count)
        if (self.epochs is not None and epoch >= self.epochs) or (split != TRAIN and epoch):
            raise EndOfData(f"there are no more batches after {self.epochs} epochs.", code="end-of-data", value=number)
        chosen = self._of(split)
        if self.shuffle and split == TRAIN:
            if self._order is None or self._order[0] != epoch:
                self._order = (epoch, chosen[permutation(len(chosen), self.seed, epoch)])
            chosen = self._order[1]
        return chosen[within * self.batch_size : (within + 1) * self.batch_size]

    def batch(self, number: int, split: str = TRAIN) -> dict[str, Array]:
        """Batch `number`: an array for each column (two more for a ragged one), and `rows`, which examples they are."""
        rows = self.rows(number, split)
        found: dict[str, Array] = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                begins, lengths = column.splits[rows], column.splits[rows + 1] - column.splits[rows]
                splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
                segments = np.repeat(np.arange(len(rows), dtype=np.int64), lengths)
                places = np.arange(splits[-1]) + (begins - splits[:-1])[segments]
                found |= {name: column.values[places], name + SPLITS: splits, name + SEGMENTS: segments}
            else:
                found[name] = column[rows]
        return {**found, ROWS: rows.astype(np.int64)}


def _shared(size: int, seed: int, shares: Mapping[str, float]) -> dict[str, Array]:
    """Examples by split: each gets its share of an order that the seed decides, and training the rest."""
    counts = {name: round(size * share) for name, share in shares.items()}
    if sum(counts.values()) > size:
        raise PageError(f"the splits {', '.join(counts)} have {sum(counts.values())} examples, and there are {size}; "
                        "their shares must add up to less than 1.", code="wrong-attribute")  # fmt: skip
    order = permutation(size, seed, HELD_OUT) if any(counts.values()) else np.arange(size)
    ends = np.cumsum(list(counts.values()))
    parts = dict(zip(counts, np.split(order, ends), strict=False))
    return {TRAIN: np.sort(order[ends[-1] :]), **{name: np.sort(part) for name, part in parts.items()}}


def _named(columns: Mapping[str, Array | Ragged], split_by: str) -> dict[str, Array]:
    """Examples by the split that a column names."""
    column = columns.get(split_by)
    if column is None or isinstance(column, Ragged) or column.ndim != 1:
        raise PageError(f"split_by is {split_by!r}; it must be a column with one name for each example.",
                        code="wrong-attribute", value=split_by)  # fmt: skip
    names = np.array([item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
                      for item in column.tolist()], object)  # fmt: skip
    if TRAIN not in names:
        listed = ", ".join(sorted(set(names))[:10])
        raise PageError(f"no example has the split {TRAIN!r} in column {split_by}; there are: {listed}.",
                        code="no-examples", value=split_by)  # fmt: skip
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys([TRAIN, *sorted(set(names))])}


class EndOfData(PageError):
    """There are no more batches; a loop ends here."""


def _length(column: Array | Ragged) -> int:
    if isinstance(column, Ragged):
        return len(column.splits) - 1
    if column.ndim == 0:
        raise PageError("a column of examples has a first axis; it is a single value.", code="wrong-rank")
    return len(column)


# Files and arrays


def read(place: Path | None, path: Any, columns: Sequence[str], ragged: Sequence[str] = ()) -> dict[str, Any]:
    """The columns of a file of the page's folder."""
    found: dict[str, Any] = {}
    for name in columns:
        is_only = len(columns) == 1 and str(path).lower().endswith(".npy")
        if name in ragged:
            found[name] = Ragged(*files.read_ragged(place, path, name))
        else:
            found[name] = files.read(place, path, None if is_only else name)
            if found[name].ndim == 0:
                raise FileError(f"{path}:{name} is a single value; a column has one entry for each example.")
    return found


def of_arrays(arrays: Sequence[Array], columns: Sequence[str], ragged: Sequence[str] = ()) -> dict[str, Any]:
    """Arrays as columns; after the values of a ragged column come its row splits."""
    names = [part for name in columns for part in ([name, name + SPLITS] if name in ragged else [name])]
    if len(names) != len(arrays):
        raise PageError(f"there are {len(arrays)} arrays for {', '.join(names)}; each needs one.",
                        code="length-mismatch")  # fmt: skip
    given = dict(zip(names, arrays, strict=True))
    return {name: checked_ragged(name, given[name], given[name + SPLITS]) if name in ragged else given[name]
            for name in columns}  # fmt: skip


def checked_ragged(name: str, values: Array, splits: Array) -> Ragged:
    """A ragged column, if `splits` are those of its values."""
    try:
        return Ragged(*files.checked_splits(name, values, splits))
    except FileError as error:
        raise PageError(error.message, code="bad-splits", value=name) from error
