"""What all tests share: thread settings are put back, and the studio can be had in a browser."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import rowgrad
from rowgrad._runtime import team, threads

# The sdist has no tests of the studio.
pytest_plugins = ["studio.browser"] if (Path(__file__).parent / "studio").is_dir() else []

# Where a framework is not installed, Python takes the folder of its tests for a package without modules.
for _framework in ("torch", "jax", "tensorflow", "keras"):
    _found = importlib.util.find_spec(_framework)
    if _found is None or _found.origin is None:
        sys.modules[_framework] = None  # type: ignore[assignment]

# Keras takes TensorFlow unless told otherwise; it reads this when it is first imported.
if sys.modules.get("tensorflow", ()) is None:
    os.environ.setdefault("KERAS_BACKEND", "jax" if "jax" not in sys.modules else "torch")

# The tests assert no times, and run on machines that have other things to do.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=3)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    yield
    threads._chosen = None


@pytest.fixture
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make even small calls run in parallel."""
    monkeypatch.setattr(team, "_forked", True)  # PyTorch, if another test has loaded it, would run large calls
    monkeypatch.setattr(threads, "GRAIN", 1)
    rowgrad.set_num_threads(3)
