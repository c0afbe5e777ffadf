"""Arrays in files, for the command line and for pages."""

from rowgrad._runtime.files.store import read, replace, write

__all__ = ["read", "replace", "write"]
