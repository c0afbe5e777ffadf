"""Every example in the documents is run: Python, sessions of the interpreter, commands, page files; links lead on."""

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rowgrad
from optional import framework
from rowgrad.blocks import Page

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(python|pycon|console|json)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FRAMEWORKS = re.compile(r"^(?:>>> )?(?:import|from) (?:rowgrad\.)?(torch|jax|optax|flax|equinox)\b", re.MULTILINE)
EACH = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


@EACH
def test_examples_are_true(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with the example pages and data; what one example defines, the next ones of its document know."""
    fences = FENCE.findall(path.read_text(encoding="utf-8"))
    if fences:
        for folder in ("pages", "data"):
            shutil.copytree(ROOT / "examples" / folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, code in fences:
        for name in FRAMEWORKS.findall(code):
            framework(name)
        if kind == "pycon":
            test = doctest.DocTestParser().get_doctest(code, names, path.name, str(path), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL * ("errors." not in code))
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
        elif kind == "console":
            _run_commands(code)
        elif kind == "json":
            record = json.loads(code)
            if "rowgrad_page" in record:
                Page.from_json(code)
        elif "docs/operators" not in path.as_posix():  # there, these are signatures
            exec(compile(code, str(path), "exec"), names)


def _run_commands(text: str) -> None:
    """Each line that begins with a dollar sign is run; what follows it is its output, if it has any."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "rowgrad"
        done = subprocess.run(
            [sys.executable, "-m", "rowgrad", *arguments],
            env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


@EACH
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target
