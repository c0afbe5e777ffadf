"""Looking into large arrays: slices of rows, rows in the order of a column, searches, histograms, projections.

Everything reads an array in chunks and keeps only what was asked for, so that an array of a million rows can be looked
at while other threads go on working. Nothing here changes the array or copies it as a whole.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import values
from rowgrad.errors import InvalidArgumentError, OutOfRangeError

CHUNK = 1 << 20  # elements that are read at a time
MOST_ROWS = 10_000  # of one slice
MOST_CELLS = 1 << 20  # elements of one slice
MOST_FOUND = 1_000
MOST_BINS = 4_096
MOST_POINTS = 20_000  # of one projection
NARROW = 1_024  # columns up to which a projection is exact whatever the number of rows
SMALL = 1 << 22  # elements up to which any projection is exact
KEPT_ORDERS = 4

Stop = Callable[[], bool]


class Stopped(Exception):
    """`stop` has said that nobody waits for the answer any more."""


class Counts(NamedTuple):
    """How many elements there are of each kind; `least`, `largest` and `mean` are those of the finite ones."""

    elements: int
    nan: int
    positive_infinity: int
    negative_infinity: int
    zeros: int
    least: float | None
    largest: float | None
    mean: float | None


class Histogram(NamedTuple):
    """`counts[i]` finite elements lie in [`edges[i]`, `edges[i + 1]`); the last bin includes its end."""

    edges: Array
    counts: Array
    not_finite: int


class Projection(NamedTuple):
    """Rows as points: `points[i]` is row `rows[i]`; `shares` are the parts of the variance that the axes show.

    `left_out` is the number of rows with an element that is not finite. `is_exact` tells whether the axes were computed
    from all rows to machine precision, or by random projections with a seed.
    """

    points: Array
    rows: Array
    shares: Array
    left_out: int
    is_exact: bool


class Window:
    """A large array as a table of rows.

    Parameters
    ----------
    array : array
        A vector is a table of one column; more than two axes become rows of the last one.
    stop : callable, optional
        Called between chunks; if it returns True, `Stopped` is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from rowgrad.blocks import Window
    >>> window = Window(np.array([[3.0, 0.5], [1.0, np.nan], [2.0, 0.25]]))
    >>> window.slice(0, 2, by=0)
    (array([1, 2]), array([[1.  ,  nan],
           [2.  , 0.25]]))
    >>> window.counts().nan
    1
    """

    def __init__(self, array: Array, *, stop: Stop | None = None) -> None:
        array = np.asarray(array)
        if array.dtype.names:
            array = array[array.dtype.names[0]]
        if array.dtype.kind in "mM" or array.dtype.type is np.void:
            raise InvalidArgumentError(f"array is {array.dtype}; it must hold numbers or texts.", code="wrong-dtype",
                                       argument="array", value=str(array.dtype))  # fmt: skip
        width = array.shape[-1] if array.ndim > 1 else 1
        rows = array.size // width if width else int(np.prod(array.shape[:-1]))
        self.matrix = array.reshape(rows, width)
        self._stop = stop
        self._lock = threading.Lock()
        self._orders: dict[tuple[int, bool], Array] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.matrix.shape
        return rows, columns

    # Rows

    def slice(
        self, start: int, count: int, *, by: int | None = None, descending: bool = False,
        columns: tuple[int, int] | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """The numbers and the elements of `count` rows, from position `start`.

        Parameters
        ----------
        by : int, optional
            Sort rows by this column: equal values in the order of rows, NaN last.
        columns : pair of ints, optional
            Only the columns from the first up to, not including, the second.

        Raises
        ------
        OutOfRangeError
            The column does not exist, or the slice is larger than 10,000 rows or 2**20 elements.
        """
        first, last = self._columns(columns)
        start, count = _whole("start", start), _whole("count", count)
        most = min(MOST_ROWS, max(MOST_CELLS // max(last - first, 1), 1))
        if count > most:
            raise OutOfRangeError(f"count is {count}; one slice of {last - first} columns gives at most {most} rows.",
                                  code="too-large", argument="count", value=count)  # fmt: skip
        end = min(start + count, self.shape[0])
        if by is None:
            rows = np.arange(start, max(end, start), dtype=np.int64)
            return rows, self.matrix[start:end, first:last]
        rows = self.order(by, descending=descending)[start:end]
        return rows, self.matrix[rows, first:last]

    def order(self, column: int, *, descending: bool = False) -> Array:
        """The numbers of all rows, sorted by one column; the last few orders are cached."""
        key = (self._column(column), bool(descending))
        with self._lock:
            if key not in self._orders:
                found = _sorted(self.matrix[:, key[0]], key[1])
                self._orders = dict(list(self._orders.items())[-(KEPT_ORDERS - 1) :]) | {key: found}
            return self._orders[key]

    def find(self, wanted: Any, *, column: int | None = None, after: int = -1, most: int = 100) -> Array:
        """The numbers of the rows after `after` that contain `wanted`: a number, a part of a text, or NaN."""
        columns = self._columns(None if column is None else (self._column(column), int(column) + 1))
        if isinstance(after, bool | np.bool_) or not isinstance(after, int | np.integer) or after < -1:
            raise OutOfRangeError(f"after is {after!r}; it must be a whole number of -1 or more.", code="out-of-range",
                                  argument="after", value=after)  # fmt: skip
        if not 1 <= _whole("most", most) <= MOST_FOUND:
            raise OutOfRangeError(f"most is {most}; it must be 1 to {MOST_FOUND}.", code="out-of-range",
                                  argument="most", value=most)  # fmt: skip
        found: list[int] = []
        is_text = values.is_text(self.matrix)
        for start, part in self._chunks(*columns, after + 1):
            hits = _texts_with(part, str(wanted)) if is_text else _equal(values.plain(part), wanted)
            found += (start + np.flatnonzero(hits.any(axis=1))[:most]).tolist()
            if len(found) >= most:
                break
        return np.array(found[:most], np.int64)

    # All elements

    def counts(self, column: int | None = None) -> Counts:
        """How many elements are NaN, infinite or zero, and the range of the others."""
        nan = above = below = zeros = finite = 0
        least, largest, total = np.inf, -np.inf, 0.0
        self._refuse_text("count")
        for _, part in self._chunks(*self._one_or_all(column)):
            real = _real(part)
            if real.dtype.kind == "f":
                # A sum that is finite shows in one pass that nothing here is NaN or infinite.
                with np.errstate(all="ignore"):
                    is_clean = bool(np.isfinite(real.sum(dtype=np.float64)))
                if not is_clean:
                    nan += int(np.isnan(real).sum())
                    above += int(np.isposinf(real).sum())
                    below += int(np.isneginf(real).sum())
                    real = real[np.isfinite(real)]
            zeros += int(real.size - np.count_nonzero(real))
            if real.size:
                least, largest = min(least, float(real.min())), max(largest, float(real.max()))
                total, finite = total + float(real.sum(dtype=np.float64)), finite + real.size
        elements = finite + nan + above + below
        if not finite:
            return Counts(elements, nan, above, below, zeros, None, None, None)
        return Counts(elements, nan, above, below, zeros, least, largest, total / finite)

    def histogram(self, bins: int = 50, *, column: int | None = None,
                  limits: tuple[float, float] | None = None) -> Histogram:  # fmt: skip
        """The number of finite elements in each of `bins` intervals between smallest and largest, or `limits`."""
        if not 1 <= _whole("bins", bins) <= MOST_BINS:
            raise OutOfRangeError(f"bins is {bins}; it must be 1 to {MOST_BINS}.", code="out-of-range",
                                  argument="bins", value=bins)  # fmt: skip
        known = self.counts(column)
        low, high = (known.least or 0.0, known.largest or 0.0) if limits is None else _pair("limits", limits)
        if not (np.isfinite(low) and np.isfinite(high)) or low > high:
            raise InvalidArgumentError(f"limits are {low} and {high}; they must be finite, the smaller one first.",
                                       code="invalid-argument", argument="limits", value=limits)  # fmt: skip
        if low == high:
            low, high = low - 0.5, high + 0.5
        with np.errstate(over="ignore"):
            edges = np.linspace(low, high, bins + 1)
            if not np.isfinite(edges).all():  # the range itself is past the largest float64
                edges = np.linspace(low / 4, high / 4, bins + 1) * 4
        counts = np.zeros(bins, np.int64)
        has_odd = known.nan or known.positive_infinity or known.negative_infinity
        for _, part in self._chunks(*self._one_or_all(column)):
            real = _real(part).reshape(-1)
            if has_odd:
                real = real[np.isfinite(real)]
            counts += np.histogram(real.astype(np.float64), edges)[0]
        return Histogram(edges, counts, known.nan + known.positive_infinity + known.negative_infinity)

    # Projection

    def project(self, axes: int = 2, *, most: int = 5_000, seed: int = 0) -> Projection:
        """Project the rows on the directions in which they vary most (principal components).

        Up to 1,024 columns, or 4 million elements, the directions are exact; beyond, they are found by random
        projections with `seed`. If there are more than `most` rows, the points are a sample drawn with `seed`. The
        sign of each direction is chosen so that its largest coefficient is positive.
        """
        self._refuse_text("project")
        rows, columns = self.shape
        if not 1 <= _whole("axes", axes) <= 3:
            raise OutOfRangeError(f"axes is {axes}; it must be 1 to 3.", code="out-of-range", argument="axes",
                                  value=axes)  # fmt: skip
        if not 1 <= _whole("most", most) <= MOST_POINTS:
            raise OutOfRangeError(f"most is {most}; it must be 1 to {MOST_POINTS}.", code="out-of-range",
                                  argument="most", value=most)  # fmt: skip
        usable, mean, scale = self._usable()
        chosen = np.flatnonzero(usable)
        random = np.random.default_rng(_whole("seed", seed))
        if len(chosen) > most:
            chosen = np.sort(random.choice(chosen, most, replace=False))
        is_exact = columns <= NARROW or rows * columns <= SMALL
        found = self._exact_axes(usable, mean, scale) if is_exact else self._random_axes(usable, mean, scale, random)
        variances, directions = found
        directions = directions[:, :axes]
        strongest = np.argmax(np.abs(directions), axis=0) if columns else np.zeros(0, int)
        directions = directions * np.where(directions[strongest, np.arange(directions.shape[1])] < 0, -1.0, 1.0)
        points = np.zeros((len(chosen), axes))
        width = directions.shape[1]
        points[:, :width] = ((_real(self.matrix[chosen]).astype(np.float64) / scale - mean) @ directions) * scale
        total = float(variances[-1])
        shares = np.zeros(axes)
        shares[:width] = variances[:width] / total if total > 0 else 0.0
        return Projection(points, chosen.astype(np.int64), shares, int(rows - usable.sum()), is_exact)

    def _usable(self) -> tuple[Array, Array, float]:
        """Which rows are finite throughout; the mean of these; and a power of two that keeps squares in range."""
        usable = np.ones(self.shape[0], bool)
        total = np.zeros(self.shape[1])
        largest = 0.0
        for start, part in self._chunks(0, self.shape[1]):
            real = _real(part)
            good = np.isfinite(real).all(axis=1)
            usable[start : start + len(real)] = good
            if good.any() and real.shape[1]:
                largest = max(largest, float(np.abs(real[good].astype(np.float64)).max()))
        scale = float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0
        for start, part in self._chunks(0, self.shape[1]):
            total += (_real(part)[usable[start : start + len(part)]].astype(np.float64) / scale).sum(axis=0)
        return usable, total / max(int(usable.sum()), 1), scale

    def _centred(self, usable: Array, mean: Array, scale: float) -> Iterator[Array]:
        for start, part in self._chunks(0, self.shape[1]):
            yield _real(part)[usable[start : start + len(part)]].astype(np.float64) / scale - mean

    def _exact_axes(self, usable: Array, mean: Array, scale: float) -> tuple[Array, Array]:
        """Variances in falling order, with their total behind them, and directions as columns."""
        columns = self.shape[1]
        if columns > NARROW:
            whole = np.concatenate(list(self._centred(usable, mean, scale)))
            _, singular, directions = np.linalg.svd(whole, full_matrices=False)
            return np.append(singular**2, (singular**2).sum()), directions.T
        squares = np.zeros((columns, columns))
        for part in self._centred(usable, mean, scale):
            squares += part.T @ part
        variances, directions = np.linalg.eigh(squares)
        variances = np.maximum(variances[::-1], 0)
        return np.append(variances, variances.sum()), directions[:, ::-1]

    def _random_axes(self, usable: Array, mean: Array, scale: float, random: Any) -> tuple[Array, Array]:
        """As `_exact_axes`, for the strongest few, by subspace iteration (Halko, Martinsson and Tropp, 2011)."""
        basis = random.standard_normal((self.shape[1], 16))
        total = 0.0
        for turn in range(5):
            basis, _ = np.linalg.qr(basis)
            product = np.zeros_like(basis)
            for part in self._centred(usable, mean, scale):
                product += part.T @ (part @ basis)
                total += float((part**2).sum()) if turn == 0 else 0.0
            basis = product
        directions, variances, _ = np.linalg.svd(basis, full_matrices=False)
        return np.append(variances, total), directions

    # Inside

    def _chunks(self, first: int, last: int, begin: int = 0) -> Iterator[tuple[int, Array]]:
        each = max(CHUNK // max(last - first, 1), 1)
        for start in range(max(begin, 0), self.shape[0], each):
            if self._stop is not None and self._stop():
                raise Stopped
            yield start, self.matrix[start : start + each, first:last]

    def _column(self, column: Any) -> int:
        if not 0 <= _whole("column", column) < self.shape[1]:
            raise OutOfRangeError(f"column is {column}; there are columns 0 to {self.shape[1] - 1}.",
                                  code="out-of-range", argument="column", value=column)  # fmt: skip
        return int(column)

    def _columns(self, columns: Sequence[int] | None) -> tuple[int, int]:
        if columns is None:
            return 0, self.shape[1]
        first, last = (_whole("columns", column) for column in _pair("columns", columns))
        return min(first, self.shape[1]), max(min(last, self.shape[1]), min(first, self.shape[1]))

    def _one_or_all(self, column: int | None) -> tuple[int, int]:
        return (0, self.shape[1]) if column is None else (self._column(column), int(column) + 1)

    def _refuse_text(self, what: str) -> None:
        if self.matrix.dtype.kind not in "biufc" and values.is_text(self.matrix):
            raise InvalidArgumentError(f"the array holds texts; there are no numbers to {what}.", code="wrong-dtype",
                                       argument="array")  # fmt: skip


def _pair(name: str, given: Any) -> tuple[Any, Any]:
    """Two numbers."""
    if (
        not isinstance(given, list | tuple | np.ndarray)
        or len(np.shape(given)) != 1
        or len(given) != 2
        or not all(isinstance(each, int | float | np.integer | np.floating) for each in given)
    ):
        raise InvalidArgumentError(f"{name} is {given!r}; it must be a pair of numbers.", code="invalid-argument",
                                   argument=name, value=str(given))  # fmt: skip
    return given[0], given[1]


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 0:
        raise OutOfRangeError(f"{name} is {value!r}; it must be a whole number of 0 or more.", code="out-of-range",
                              argument=name, value=value)  # fmt: skip
    return int(value)


def _real(part: Array) -> Array:
    """`part` as real numbers that NumPy calculates with; of complex ones their absolute values."""
    plain = values.plain(part)
    return np.abs(plain) if plain.dtype.kind == "c" else plain


def _sorted(column: Array, descending: bool) -> Array:
    if values.is_text(column):
        keys = np.array([_text(item) for item in column.tolist()], dtype=object)
        # `reverse` keeps equal texts in the order of their rows, as wanted.
        return np.array(sorted(range(len(keys)), key=keys.__getitem__, reverse=descending), np.int64)
    keys = _real(column)
    if not descending:
        return np.argsort(keys, kind="stable")
    found = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
    missing = int(np.isnan(keys).sum()) if keys.dtype.kind == "f" else 0
    return np.concatenate([found[missing:], found[:missing]])


def _text(item: Any) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def _texts_with(part: Array, wanted: str) -> Array:
    return np.array([[wanted in _text(item) for item in row] for row in part.tolist()], bool).reshape(part.shape)


def _equal(part: Array, wanted: Any) -> Array:
    if isinstance(wanted, str):
        raise InvalidArgumentError(f"{wanted!r} is a text, and the array holds numbers; search for a number.",
                                   code="wrong-dtype", argument="wanted", value=wanted)  # fmt: skip
    if np.ndim(wanted) or not isinstance(wanted, int | float | complex | np.number | np.bool_):
        raise InvalidArgumentError(f"wanted is {wanted!r}; search for one number.", code="wrong-dtype",
                                   argument="wanted", value=str(wanted))  # fmt: skip
    if isinstance(wanted, float) and np.isnan(wanted):
        return np.asarray(np.isnan(part) if part.dtype.kind in "fc" else np.zeros(part.shape, bool))
    if part.dtype.kind == "f" and isinstance(wanted, float):
        wanted = part.dtype.type(wanted)  # 0.1 finds what float32 calls 0.1
    return np.asarray(part == wanted)
