"""Both distributions are built, and work in clean environments: with the oldest dependencies allowed, the newest, and
on the newest Python of this machine.

Environments are made from the package index, so this takes some minutes. Besides the smoke tests, operators are asked
for TensorFlow's recorded answers there: the tests come from the sdist, rowgrad from the wheel.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import golden
from optional import missing

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "studio").is_dir(), reason="both distributions are built in a checkout"),
]


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel of both; each wheel is built from its sdist."""
    folder = tmp_path_factory.mktemp("built")
    for source in (ROOT, ROOT / "studio"):
        run(sys.executable, "-m", "build", "--outdir", folder, source)
    return folder


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def floors() -> list[str]:
    """The oldest dependencies that the metadata allows, as requirements; all have a floor."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    studio = tomllib.loads((ROOT / "studio" / "pyproject.toml").read_text())["project"]
    wanted = [text for text in (*project["dependencies"], *studio["dependencies"]) if text != "rowgrad"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in wanted]
    assert all(found), wanted
    return [f"{match[1]}=={match[2]}" for match in found if match]


def newest_python() -> Path | None:
    """The newest other Python that the metadata names, from PATH or from pyenv, whose commands stand in for many."""
    known = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    for version in reversed(known):
        command = shutil.which(f"python{version}")
        if version == f"{sys.version_info[0]}.{sys.version_info[1]}" or command is None:
            continue
        behind = sorted(Path(command).parents[1].glob(f"versions/{version}.*/bin/python"))
        for path in (Path(command), *behind):
            if subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
                return path
    return None


def check(python: Path, built: Path, *requirements: str) -> None:
    """Install both wheels and what they need, and try them."""
    wheels = [one(built, "rowgrad-*.whl"), one(built, "rowgrad_studio-*.whl")]
    run(python, "-m", "pip", "install", "--quiet", *wheels, *requirements)
    run(python, "-m", "pip", "check")
    cache = python.parents[1] / "kernels"
    assert run(python, "-I", "-W", "error::DeprecationWarning:rowgrad", SMOKE, "studio",
               ROWGRAD_CACHE_DIR=str(cache)) == "done\n"  # fmt: skip


def check_operators(python: Path, built: Path, chosen: str) -> None:
    """Ask for TensorFlow's recorded answers: the cases that `chosen` names."""
    with tarfile.open(one(built, "rowgrad-*.tar.gz")) as archive:
        archive.extractall(python.parents[1] / "sources", filter="data")
    tests = one(python.parents[1] / "sources", "rowgrad-*")
    run(python, "-m", "pip", "install", "--quiet", "pytest>=8", "hypothesis")
    found = run(python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, "-c",
                tests / "pyproject.toml", tests / "tests" / "ops" / "test_golden.py", "-k", chosen,
                ROWGRAD_CACHE_DIR=str(python.parents[1] / "kernels"), PYTHONPATH="")  # fmt: skip
    assert re.search(r"\d\d+ passed", found) and "failed" not in found


def test_the_oldest_dependencies(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "oldest", with_pip=True)
    python = tmp_path / "oldest" / "bin" / "python"
    check(python, built, *floors())
    check_operators(python, built, "test_answer and (SparseSegmentMean or FillEmptyRows or SparseSlice)")


def test_the_newest_dependencies(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "newest", with_pip=True)
    check(tmp_path / "newest" / "bin" / "python", built)


def test_the_newest_python(built: Path, tmp_path: Path) -> None:
    newest = newest_python()
    if newest is None:
        missing("there is no other Python here; the workflow `Wheels` has all versions")
    run(newest, "-m", "venv", tmp_path / "newest")
    python = tmp_path / "newest" / "bin" / "python"
    check(python, built)
    # Kernels are compiled anew there, so a few cases have to do: every operator has one of these.
    numbers = ("/001", "/006")
    answers = [case for case in golden.load() if case.out is not None and not case.op.startswith("nn.")]
    assert {case.op for case in answers} == {case.op for case in answers if case.id.endswith(numbers)}
    check_operators(python, built, f"(test_answer or test_error) and ({' or '.join(numbers)})")


def test_the_sdist_has_what_its_tests_need_and_nothing_of_the_studio(built: Path) -> None:
    with tarfile.open(one(built, "rowgrad-*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO",
              "src/rowgrad/py.typed", "tests/conftest.py", "tests/naive.py", "docs/generate.py"}  # fmt: skip
    assert wanted <= names
    assert not [
        name for name in names if name.startswith(("studio/", "tests/studio/", ".venv")) or "node_modules" in name
    ]
    for folder in ("tests/data", "examples/pages", "benchmarks"):
        assert [name for name in names if name.startswith(folder)], folder


def test_the_metadata(built: Path) -> None:
    for pattern in ("rowgrad-*.whl", "rowgrad_studio-*.whl"):
        with zipfile.ZipFile(one(built, pattern)) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            found = Parser().parsestr(wheel.read(name).decode())
            assert not [name for name in wheel.namelist() if name.startswith("tests")]
        assert found["Author"] == "rowgrad developers" and found["License-Expression"] == "Apache-2.0"
        assert found["Requires-Python"] == ">=3.11"
        assert "Operating System :: POSIX :: Linux" in found.get_all("Classifier", [])
        text = found.get_payload()
        assert isinstance(text, str) and "pip install" in text
        assert not re.findall(r"\]\((?!https?:)[^)]*\)", text), "links that a package index cannot follow"
