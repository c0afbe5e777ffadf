"""What all tests share: thread settings are put back, and the studio can be had in a browser."""

from collections.abc import Iterator

import pytest

import rowgrad
from rowgrad import threads

pytest_plugins = ["studio.browser"]


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    yield
    threads._chosen = None


@pytest.fixture
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make even small calls run in parallel."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(3)
