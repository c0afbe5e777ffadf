"""What tests can do without, but not in CI: where it is missing they are skipped, and say why; there they fail."""

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest


def framework(name: str) -> ModuleType:
    """The module `name`, if it is installed."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed")


def missing(what: str) -> NoReturn:
    """The test ends here, because of `what`."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
