"""The examples in the docstrings of every module that is written by hand are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import rowgrad
from optional import framework

FOLDER = Path(rowgrad.__file__).parent
MODULES = [
    ".".join(("rowgrad", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(FOLDER.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and "docstrings" not in path.name
]
# What writes the docstrings of others; those are tested where these are.
MAKERS = {"rowgrad.jax._functions"}


def test_modules_are_found() -> None:
    assert {"rowgrad.optim._rules", "rowgrad.torch._embedding_bag", "rowgrad.tables._table"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("torch", "jax", "keras"):
        if name.startswith(f"rowgrad.{needed}"):
            framework(needed)
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0 or name in MAKERS
    assert results.failed == 0
