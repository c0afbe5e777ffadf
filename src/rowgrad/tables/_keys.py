"""`KeyTable`: rows by key, for vocabularies that grow and shrink; in memory, or beside the rows of a table on disk."""

import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import hashing
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad._runtime.memory import allocate
from rowgrad._runtime.text_columns import TextColumn, column_of, is_arrow
from rowgrad._runtime.threads import Workers
from rowgrad.errors import DTypeError, FileError, InvalidArgumentError, OutOfRangeError
from rowgrad.tables import _options as options
from rowgrad.tables._header import KeySettings

if TYPE_CHECKING:
    from rowgrad.tables._table import Table

_KEY_BYTES = 40  # of work for each key: more than one thread pays from some thousands on


class KeyTable:
    """Assigns rows to keys: 64-bit integers or strings, at most one per row.

    New keys get the lowest free row, in their order, so the same calls give the same rows everywhere, with any number
    of threads. A `KeyTable` is in memory; ``Table.create(…, keys="int64")`` stores one with a table on disk as
    ``table.keys``, and flushes it with the table. See docs/tables.md.

    Parameters
    ----------
    rows : int
        How many rows there are.
    kind : {"int64", "string"}
        The type of keys: integers of up to 64 bits (unsigned ones by their bits), or text and bytes.
    max_bytes : int
        The longest string, in bytes of UTF-8, up to 4096.
    reserved : int
        Rows at the beginning that no key gets, such as one for all unknown keys.
    admit_after : int
        How often `add` has to see a new key before it gets a row, up to 255. Keys without a row are counted in a sketch
        of 8 to 16 bytes per row: counts are never too small, rarely too large, and decay with time.

    Examples
    --------
    >>> import rowgrad
    >>> keys = rowgrad.KeyTable(1000, reserved=1)
    >>> keys.add([70, 12, 70, -5]).tolist()
    [1, 2, 1, 3]
    >>> keys.look_up([12, 99]).tolist()
    [2, 0]
    >>> keys.remove([12]).tolist(), keys.add([8]).tolist()
    ([2], [2])
    """

    def __init__(self, rows: int, kind: str = "int64", *, max_bytes: int = 64, reserved: int = 0,
                 admit_after: int = 1) -> None:  # fmt: skip
        settings = options.checked_settings(rows, kind, max_bytes, reserved, admit_after)
        parts = settings.arrays(int(rows)).items()
        made = {name: allocate(shape, dtype, argument="rows", zero=True) for name, (dtype, shape) in parts}
        self._begin(settings, made, None)

    @classmethod
    def over(cls, settings: KeySettings, stored: dict[str, Array], table: "Table") -> "KeyTable":
        """The keys of a table on disk, in its arrays."""
        made = cls.__new__(cls)
        made._begin(settings, stored, table)
        return made

    def _begin(self, settings: KeySettings, stored: dict[str, Array], table: "Table | None") -> None:
        self.kind, self.max_bytes, self.reserved, self.admit_after = settings
        self.rows = len(stored["seen"])
        self._table = table
        self._guard = threading.RLock() if table is None else table._guard
        self._key, self._seen, self._count = stored["key"], stored["seen"], stored["count"]
        self._numbers = stored["numbers"]
        self._sketch = stored.get("sketch", np.zeros(4, np.uint8))
        size = 1 << max(4, (2 * self.rows).bit_length())
        self._mask = size - 1
        self._slots = np.zeros(2 * size, np.int64)
        seeds = np.frombuffer(os.urandom(16), np.uint64)
        self._seeds = seeds[0], seeds[1]
        self._place = np.zeros(2, np.int64)
        self._given_back = np.empty(0, np.int64)
        self._is_indexed = False

    # Its state

    def __len__(self) -> int:
        """How many keys have a row."""
        with self._guard:
            self._index()
            return int(self._place[1] - self.reserved - (self._given_back.size - self._place[0]))

    def __contains__(self, key: Any) -> bool:
        rows = np.asarray(self.look_up([key], missing=-1))
        if rows.size != 1:
            raise InvalidArgumentError(
                f"{rows.size} keys were given, but one is allowed. Use `look_up` for several.",
                code="wrong-shape",
                argument="key",
                value=rows.shape,
            )
        return bool(rows.reshape(-1)[0] >= 0)

    def __repr__(self) -> str:
        return f"KeyTable({len(self)} of {self.rows - self.reserved} rows, {self.kind} keys)"

    @property
    def clock(self) -> int:
        """The clock for ages in `evict`: the steps of the table, or the number of calls of `tick`."""
        return int(self._numbers[0]) if self._table is None else self._table.steps

    def tick(self) -> None:
        """Advance the clock of a table in memory by one; that of a table on disk advances with its steps."""
        if self._table is not None:
            raise InvalidArgumentError(
                "keys of a table on disk age with its steps. Call its `step`, `step_pooled` or `end_step`.",
                code="part-of-table",
            )
        with self._guard:
            self._numbers[0] += 1

    @property
    def refused(self) -> int:
        """How many times a key got no row because all were taken."""
        return int(self._numbers[2])

    # Keys to rows

    def look_up(self, keys: Any, missing: int | None = None) -> Any:
        """Return the row of each key, as int64 in the shape of `keys`, without adding keys.

        Parameters
        ----------
        keys : array of integers, or of text, any shape
            Of NumPy, PyTorch, JAX or TensorFlow, or pyarrow for text; the result is an array of the same framework.
        missing : int, optional
            The result for keys without a row: by default row 0 if it is reserved, otherwise -1.
        """
        absent = self._missing(missing)
        with self._guard:
            self._check_open()
            self._index()
            if self.kind == "string":
                column, shape, kind = self._texts(keys)
                output = allocate(column.size, np.int64)
                hashes = hashing.hash_column(column, hashing.STRONG, 0, self._sip_key())
                Workers(2 * _KEY_BYTES * output.size).run(
                    kernels.keys.find_texts, self._slots, self._mask, hashes, self._records(), self._key.shape[1],
                    self.rows, *column, absent, output,
                )  # fmt: skip
            else:
                found, shape, kind = self._integers(keys)
                output = allocate(found.size, np.int64)
                Workers(_KEY_BYTES * output.size).run(
                    kernels.keys.find_keys, self._slots, self._mask, self._seeds[0], found, absent, output
                )
            self._check_open()
        return _handed_back(output.reshape(shape), kind)

    def add(self, keys: Any, missing: int | None = None) -> Any:
        """Return the row of each key; new keys get one, and all keys are marked as used now.

        Keys that are not admitted yet, and those for which no row is free, get `missing` (see `look_up`).
        """
        absent = self._missing(missing)
        with self._guard:
            self._check_writer()
            self._index()
            clock = self.clock
            if self.kind == "string":
                column, shape, kind = self._texts(keys)
                self._check_lengths(column)
                output = allocate(column.size, np.int64)
                hashes = hashing.hash_column(column, hashing.STRONG, 0, self._sip_key())
                kernels.keys.add_texts(
                    self._slots, self._mask, hashes, *column, absent, self._records(), self._key.shape[1], self.rows,
                    self._seen, self._count, clock, self.admit_after, self._sketch, self._numbers, self._given_back,
                    self._place, output,
                )  # fmt: skip
            else:
                found, shape, kind = self._integers(keys)
                output = allocate(found.size, np.int64)
                kernels.keys.add_keys(
                    self._slots, self._mask, self._seeds[0], found, absent, self._key, self._seen, self._count, clock,
                    self.admit_after, self._sketch, self._numbers, self._given_back, self._place, output,
                )  # fmt: skip
            if self._table is not None:
                self._table.keys_changed(output[(output >= self.reserved) & (output < self.rows)])
        return _handed_back(output.reshape(shape), kind)

    # Rows given back

    def evict(self, *, older_than: int | None = None, count_below: int | None = None, keep: int | None = None,
              initializer: Any = 0.0) -> Array:  # fmt: skip
        """Remove rarely used keys, and return their rows, which are free then.

        Parameters
        ----------
        older_than : int, optional
            Evict keys that `add` has not seen for this many steps or ticks.
        count_below : int, optional
            Evict keys that `add` has seen fewer times since they got their row. With both, one condition is enough.
        keep : int, optional
            Evict more, until this many are left: first those not seen for longest, of these the least counted.
        initializer : float, callable or tuple
            The new values of the rows of a table on disk; see `Table.reset_rows`.

        Returns
        -------
        int64 array
            The rows, ascending.
        """
        for name, value in (("older_than", older_than), ("count_below", count_below), ("keep", keep)):
            if value is not None:
                options.whole(value, name, 0, 2**63 - 1, "a whole number")
        if older_than is None and count_below is None and keep is None:
            raise InvalidArgumentError(
                "evict needs older_than, count_below or keep.", code="missing-argument", argument="older_than"
            )
        with self._guard:
            self._check_writer()
            self._index()
            top = int(self._place[1])
            seen, count = self._seen[:top], self._count[:top]
            used = seen != 0
            gone = np.zeros(top, np.bool_)
            if older_than is not None:
                gone |= used & (self.clock + 1 - seen > older_than)
            if count_below is not None:
                gone |= used & (count < count_below)
            if keep is not None:
                left = np.flatnonzero(used & ~gone)
                if left.size > keep:
                    order = np.lexsort((left, count[left], seen[left]))
                    gone[left[order[: left.size - keep]]] = True
            return self._give_back(np.flatnonzero(gone), initializer)

    def remove(self, keys: Any, *, initializer: Any = 0.0) -> Array:
        """Remove `keys`, and return the rows that they had, ascending; see `evict`."""
        with self._guard:
            self._check_writer()
            rows = np.unique(np.asarray(arrays.adopt(self.look_up(keys, missing=-1))).reshape(-1))
            return self._give_back(rows[rows >= 0], initializer)

    def _give_back(self, rows: Array, initializer: Any) -> Array:
        if rows.size:
            if self._table is not None:
                self._table.reset_rows(rows, initializer)
            self._is_indexed = False  # whatever ends this early, the index is made anew
            self._seen[rows] = 0
            self._count[rows] = 0
            self._key[rows] = 0
            if self._table is not None:
                self._table.keys_changed(rows)
            self._index()
        return rows

    # Keys of rows

    def keys_of(self, rows: Any) -> Array:
        """The keys of `rows`, as an array of int64, or of objects (bytes that are not UTF-8 stay bytes).

        Raises
        ------
        OutOfRangeError
            A row has no key.
        """
        wanted = np.asarray(arrays.adopt(rows))
        with self._guard:
            self._index()
            flat = wanted.reshape(-1)
            if flat.size and flat.dtype.kind not in "iu":
                raise DTypeError(f"rows is {flat.dtype.name}; it must be whole numbers.", code="wrong-dtype",
                                 argument="rows", value=flat.dtype.name)  # fmt: skip
            flat = flat.astype(np.int64)
            inside = (flat >= 0) & (flat < self.rows)
            has = inside & (self._seen[np.where(inside, flat, 0)] != 0) if self.rows else inside
            if not has.all():
                at = int(np.flatnonzero(~has)[0])
                raise OutOfRangeError(
                    f"rows[{at}] is {int(flat[at])}, which has no key. Rows with keys are in `items()`.",
                    code="index-out-of-range",
                    argument="rows",
                    position=at,
                    value=int(flat[at]),
                )
            found: Array = self._key[flat]
            self._check_open()
        if self.kind == "int64":
            return found.reshape(wanted.shape)
        texts = np.empty(flat.size, object)
        texts[:] = [_text(record) for record in found]
        return texts.reshape(wanted.shape)

    def items(self) -> tuple[Array, Array]:
        """All keys that have a row, and their rows, ascending by row."""
        with self._guard:
            self._index()
            rows = np.flatnonzero(self._seen[: int(self._place[1])])
            return self.keys_of(rows), rows

    @staticmethod
    def shard_of(keys: Any, ranks: int) -> Array:
        """The rank, in [0, ranks), of each key, if keys are divided among processes.

        It is the same in every process and version. For an integer: MurmurHash3's 64-bit finalizer h of its bits, then
        (h >> 32) · ranks >> 32; for a string the same with `features.fingerprint64`.

        Examples
        --------
        >>> import rowgrad
        >>> rowgrad.KeyTable.shard_of([1, 2, 3, 4], 2).tolist()
        [1, 0, 0, 0]
        """
        options.whole(ranks, "ranks", 1, 2**31 - 1, "a number of processes")
        found = keys if is_arrow(keys) else _array(keys)
        if is_arrow(found) or found.dtype.kind in "OSUT":
            column = column_of(found, "keys")
            shape = (column.size,) if is_arrow(found) else found.shape
            numbers = hashing.hash_column(column, "fingerprints").view(np.int64)
        else:
            numbers, shape = _as_int64(found), found.shape
        output = allocate(numbers.size, np.int64)
        Workers(_KEY_BYTES * output.size).run(kernels.keys.shards, numbers.reshape(-1), int(ranks), output)
        return output.reshape(shape)

    # Within

    def rebuild(self) -> None:
        """Read the keys again after another process has changed them."""
        with self._guard:
            self._is_indexed = False

    def _index(self) -> None:
        """Make the slots from the keys of the rows, when they are first needed or were changed otherwise."""
        if self._is_indexed:
            return
        used = np.flatnonzero(self._seen)
        top = max(int(used[-1]) + 1 if used.size else 0, self.reserved)
        free = self._seen[:top] == 0
        free[: self.reserved] = False
        self._slots[:] = 0
        if self.kind == "string":
            found = kernels.keys.index_texts(
                self._slots, self._mask, *self._sip_words(), self._records(), self._key.shape[1], self.rows,
                self._seen, top,
            )  # fmt: skip
        else:
            found = kernels.keys.index_keys(self._slots, self._mask, self._seeds[0], self._key, self._seen, top)
        if found < 0 or self._seen[: self.reserved].any():
            raise FileError(
                "two rows have the same key, or a reserved row has one: the file of the keys is damaged. Copy the "
                "whole folder again from its source.",
                code="bad-keys",
            )
        self._given_back = np.flatnonzero(free)
        self._place[:] = 0, top
        self._is_indexed = True

    def _missing(self, missing: int | None) -> int:
        if missing is None:
            return 0 if self.reserved else -1
        return options.whole(missing, "missing", -(2**63), 2**63 - 1, "a whole number")

    def _sip_words(self) -> tuple[Any, Any]:
        return self._seeds

    def _sip_key(self) -> tuple[int, int]:
        return int(self._seeds[0]), int(self._seeds[1])

    def _records(self) -> Array:
        return self._key.reshape(-1)

    def _integers(self, keys: Any) -> "tuple[Array, tuple[int, ...], arrays.Kind | None]":
        found = _array(keys)
        return _as_int64(found).reshape(-1), found.shape, arrays.kind_of(keys)

    def _texts(self, keys: Any) -> "tuple[TextColumn, tuple[int, ...], arrays.Kind | None]":
        if is_arrow(keys):
            column = column_of(keys, "keys")
            return column, (column.size,), None
        found = _array(keys)
        if found.size == 0:
            found = found.astype(object)
        if found.dtype.kind not in "OSUT":
            raise DTypeError(
                f'keys is {found.dtype.name}, and this table has keys of kind "string". Convert them, such as with '
                "`.astype(str)`.",
                code="wrong-dtype",
                argument="keys",
                value=found.dtype.name,
            )
        if found.size == 0:
            empty = np.empty(0, np.int64)
            return TextColumn(np.empty(0, np.uint8), empty, empty.copy()), found.shape, None
        return column_of(found, "keys"), found.shape, None

    def _check_lengths(self, column: TextColumn) -> None:
        lengths = np.asarray(column.ends) - np.asarray(column.begins)
        longest = int(lengths.max(initial=0))
        if longest > self.max_bytes:
            at = int(lengths.argmax())
            raise InvalidArgumentError(
                f"keys[{at}] has {longest} bytes, and the limit is {self.max_bytes}. Make the table with a "
                "larger max_bytes, or shorten keys.",
                code="key-too-long",
                argument="keys",
                position=at,
                value=longest,
            )

    def _check_open(self) -> None:
        """Before and after reading: a reader's view of a table may be outdated by then."""
        if self._table is not None:
            self._table._open_parts()

    def _check_writer(self) -> None:
        if self._table is not None:
            self._table._check_writer()


def _array(keys: Any) -> Array:
    """An ndarray; lists of text become objects, which keep zeros at the end of a string."""
    if isinstance(keys, list | tuple) and keys and isinstance(keys[0], str | bytes):
        return np.array(keys, object)
    found = arrays.adopt(keys)
    return found.astype(np.int64) if found.size == 0 and found.dtype.kind == "f" else found


def _as_int64(found: Array) -> Array:
    if found.dtype.kind not in "iu":
        raise DTypeError(
            f"keys is {found.dtype.name}; keys are whole numbers of up to 64 bits. Text needs a KeyTable of kind "
            '"string".',
            code="wrong-dtype",
            argument="keys",
            value=found.dtype.name,
        )
    if found.dtype == np.uint64:
        found = found.view(np.int64)
    return arrays.settle(found.astype(np.int64, copy=False))


def _handed_back(rows: Array, kind: "arrays.Kind | None") -> Any:
    return rows if kind is None else kind.hand_back(rows)


def _text(record: Array) -> str | bytes:
    data = record[2 : 2 + int(record[0]) + (int(record[1]) << 8)].tobytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
