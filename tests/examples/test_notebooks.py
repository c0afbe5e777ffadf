"""The notebooks run from the first cell to the last, and what a cell ends with can be shown."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from optional import framework

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_are_found() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    if any("import torch" in code for code in codes):
        framework("torch")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(codes):
        tree = ast.parse(code)
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        where = f"{path.name}, cell {number}"
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            _show(eval(compile(last, where, "eval"), names))


def _show(value: Any) -> None:
    """As a notebook does: by the richest form that the value has."""
    for form in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, form):
            assert getattr(value, form)()
    assert repr(value)
