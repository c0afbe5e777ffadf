"""How much private memory changed rows take, found out with as little effort as possible after each step."""

from collections.abc import Callable

from rowgrad._runtime import limits
from rowgrad.tables._mapping import PAGE
from rowgrad.tables._mapping import Mapping as MappedArray


class Dirty:
    """The changed pages of some arrays, beside the bytes of them that are allowed."""

    def __init__(self, arrays: Callable[[], list[MappedArray]], max_dirty: int) -> None:
        self.max_dirty = max_dirty
        self._arrays = arrays
        self._most = 0  # the most pages that can have been changed
        self._base = limits.private_bytes()  # of the process, without changed pages

    def add(self, arrays: list[MappedArray], rows: int) -> None:
        """So many rows may have changed in each of `arrays`."""
        self._most += sum(part.most_changed(rows) for part in arrays)

    def is_too_much(self) -> bool:
        """Three looks, each slower and sharper than the one before: a bound, the process's memory, the pages."""
        arrays = self._arrays()
        if min(self._most * PAGE, sum(part.size for part in arrays)) <= self.max_dirty:
            return False
        now = limits.private_bytes()
        if now is not None and self._base is not None and now - self._base <= self.max_dirty:
            return False
        changed = PAGE * sum(part.changed().size for part in arrays)
        if changed > self.max_dirty:
            return True
        self._most = changed // PAGE  # others took the memory
        self._base = None if now is None else now - changed
        return False

    def reset(self, left: int) -> None:
        """After a flush, which left so many pages in memory."""
        now = limits.private_bytes()
        self._most, self._base = left, None if now is None else now - left * PAGE
