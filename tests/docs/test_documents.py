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
OPENING = re.compile(r"^ *```([\w{}-]+)(?: [^`\n]*)?$", re.MULTILINE)
# Snippets that need more than other tests have, and what runs them; of those for clusters, the syntax is checked.
ELSEWHERE = {
    ("docs/studio.md", "py"): "tests/studio/test_studio_widget.py",
    ("docs/jax.md", "py"): "tests/docs/test_jax_documents.py",
    ("docs/from_tensorflow.md", "py"): "tests/oracle/test_guide_tensorflow.py",
    **dict.fromkeys([("docs/scale.md", kind) for kind in ("bash", "yaml", "py")], "tests/docs/test_documents.py"),
}
FRAMEWORKS = re.compile(r"^(?:>>> )?(?:import|from) (?:rowgrad\.)?(torch|jax|optax|flax|equinox|keras)\b", re.MULTILINE)
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


def _anchors(path: Path) -> set[str]:
    """What headings of a document are linked by, on the site and on GitHub."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKING = sorted({*DOCUMENTS, *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("studio/*.md")})


@pytest.mark.parametrize("path", LINKING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    """Files and headings within the repository exist; addresses outside of it are well formed."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if ":" in name:
            assert re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/\S*)?", name), target
        else:
            found = path.parent / name if name else path
            assert found.exists(), target
            assert not anchor or anchor in _anchors(found), target


@EACH
def test_no_snippet_escapes(path: Path) -> None:
    """Every code block has a kind that is run above, is no code, or has a test that is named here."""
    name = path.relative_to(ROOT).as_posix()
    for kind in set(OPENING.findall(path.read_text(encoding="utf-8"))) - {"python", "pycon", "console", "json", "text"}:
        if not kind.startswith("{"):
            assert (ROOT / ELSEWHERE[name, kind]).exists(), f"{name} has {kind} code that no test runs"


def test_scripts_for_clusters_are_well_formed() -> None:
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(bash|yaml|py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in found} == {"bash", "yaml", "py"}
    for kind, code in found:
        if kind == "py":
            compile(code, "scale.md", "exec")
        elif kind == "yaml":
            assert all("kind" in part for part in framework("yaml").safe_load_all(code))
        else:
            subprocess.run(["bash", "-n"], input=code, text=True, check=True)
