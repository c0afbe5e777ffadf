"""What all tests share: thread settings are put back, and optional frameworks are found, or missed aloud."""

import importlib
import os
from collections.abc import Iterator
from types import ModuleType

import pytest

import rowgrad
from rowgrad import threads


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    yield
    threads._chosen = None


@pytest.fixture
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make even small calls run in parallel."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(3)


def framework(name: str) -> ModuleType:
    """The framework `name`; where it is missing, the test is skipped, but in CI it fails."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"{name} is not installed")
