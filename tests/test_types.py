"""The types that mypy and pyright find in code as users write it, in `user_code/`."""

import ast
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import rowgrad
from optional import framework, missing
from rowgrad._ops import OPERATORS

FOLDER = Path(__file__).parent / "user_code"
SOURCE = Path(rowgrad.__file__).parents[1]
Check = Callable[[str], dict[int, str]]
CHECKERS = pytest.mark.parametrize("checker", ["mypy", "basedpyright"])


@pytest.fixture
def check(checker: str, request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """What the checker has to say of a file, by line."""
    if find_spec(checker) is None:
        missing(f"{checker} is not installed")
    assert request.config.cache is not None
    cache = request.config.cache.mkdir("mypy")

    def with_mypy(name: str) -> dict[int, str]:
        options = ["--strict", "--follow-imports=silent", f"--config-file={os.devnull}", f"--cache-dir={cache}"]
        done = run("-m", "mypy", *options, "--output=json", str(FOLDER / name), MYPYPATH=str(SOURCE))
        found = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
        return {item["line"]: item["message"] for item in found if item["severity"] == "error"}

    def with_pyright(name: str) -> dict[int, str]:
        settings = {"include": [str(FOLDER / name)], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
        config = tmp_path / "pyrightconfig.json"
        config.write_text(json.dumps(settings))
        done = run("-m", "basedpyright", "--outputjson", "--project", str(config), "--pythonpath", sys.executable)
        found = json.loads(done)
        assert found["summary"]["filesAnalyzed"] == 1
        errors = [item for item in found["generalDiagnostics"] if item["severity"] == "error"]
        return {item["range"]["start"]["line"] + 1: item["message"] for item in errors}

    return with_mypy if checker == "mypy" else with_pyright


def run(*arguments: str, **environment: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@CHECKERS
@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_types_are_what_operators_return(name: str, check: Check) -> None:
    if name != "numpy":
        framework(name)
    assert check(f"{name}_code.py") == {}


@CHECKERS
def test_wrong_code_is_found(check: Check) -> None:
    lines = (FOLDER / "wrong_code.py").read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# wrong: " in line}
    assert set(check("wrong_code.py")) == marked


@pytest.mark.parametrize("name", ["rowgrad", "rowgrad.raw_ops", "rowgrad.torch", "rowgrad.jax"])
def test_stubs_declare_what_there_is(name: str) -> None:
    """Each function with its parameters, kinds and all, and the same public names."""
    if name.rpartition(".")[2] in ("torch", "jax"):
        framework(name.rpartition(".")[2])
    module = import_module(name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    (names,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    assert names == module.__all__
    declared = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert {node.name for node in declared} >= {op.top_level or op.name for op in OPERATORS.values()} & set(names)
    for node in declared:
        parameters = inspect.signature(getattr(module, node.name)).parameters.values()
        assert [argument.arg for argument in node.args.args] == [p.name for p in parameters if p.kind != p.KEYWORD_ONLY]
        assert [argument.arg for argument in node.args.kwonlyargs] == [
            p.name for p in parameters if p.kind == p.KEYWORD_ONLY
        ]
