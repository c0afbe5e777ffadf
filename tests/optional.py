"""What tests can do without, but not in CI: where it is missing they are skipped, and say why; there they fail."""

import importlib.util
import os
from types import ModuleType
from typing import NoReturn

import pytest


def framework(name: str) -> ModuleType:
    """The module `name`, if it is installed."""
    found = importlib.util.find_spec(name.partition(".")[0])
    # Where PyTorch or JAX is missing, Python takes the folder tests/torch or tests/jax for a package without modules.
    if found is None or found.origin is None:
        missing(f"{name} is not installed", allow_module_level=True)
    return importlib.import_module(name)


def missing(what: str, *, allow_module_level: bool = False) -> NoReturn:
    """The test ends here, because of `what`."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what, allow_module_level=allow_module_level)
