"""Tables on disk: rows and optimizer state in memory-mapped files, larger than memory, committed in whole steps."""

from rowgrad.tables._keys import KeyTable
from rowgrad.tables._set import TableSet
from rowgrad.tables._table import Table

__all__ = ["KeyTable", "Table", "TableSet"]


def __dir__() -> list[str]:
    return __all__
