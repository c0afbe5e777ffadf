"""Tables on disk: rows and optimizer state in memory-mapped files, larger than memory, changed by whole steps."""

from rowgrad.tables._table import Table

__all__ = ["Table"]


def __dir__() -> list[str]:
    return __all__
