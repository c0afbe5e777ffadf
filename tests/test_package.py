"""What a user meets first: a light import, kernels that are compiled once, documents that are true."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rowgrad

ROOT = Path(__file__).parent.parent


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_framework_and_no_compiler() -> None:
    heavy = {"torch", "jax", "tensorflow", "numba", "pyarrow", "typer"}
    loaded = run("import sys, rowgrad; print(*{name.partition('.')[0] for name in sys.modules})").split()
    assert not heavy & set(loaded)


@pytest.mark.slow
def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    code = (
        "import rowgrad; rowgrad.sparse_segment_mean_grad_v2([[1.0]], [0], [0], 1)\n"
        "from rowgrad._kernels.compile import KERNELS\n"
        "print(sum(sum(k.stats.cache_misses.values()) for k in KERNELS.values()))"
    )
    assert int(run(code, ROWGRAD_CACHE_DIR=str(tmp_path))) > 0
    assert int(run(code, ROWGRAD_CACHE_DIR=str(tmp_path))) == 0


@pytest.mark.slow
def test_without_any_writable_folder_kernels_still_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    code = (
        "from rowgrad._kernels import compile\n"
        f"from pathlib import Path; compile._candidates = lambda: [Path({str(blocked)!r})]\n"
        "compile.cache_folder.cache_clear()\n"
        "import rowgrad; print(rowgrad.sparse_slice_grad([1.0], [[0]], [0], [[0]]), compile.cache_folder())"
    )
    assert run(code) == "[1.] None"


def test_a_changed_kernel_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp of a kernel covers the files that it calls helpers from, and no others."""
    from rowgrad._kernels import compile

    modules = ("sparse_segment", "optim", "order")
    before = [compile.source_stamp(compile.FOLDER / f"{module}.py") for module in modules]
    original = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda self: original(self) + b"#" * (self.name in ("lanes.py", "sparse_segment_grad.py"))
    )
    compile.source_stamp.cache_clear()
    try:
        after = [compile.source_stamp(compile.FOLDER / f"{module}.py") for module in modules]
    finally:
        compile.source_stamp.cache_clear()
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True]


@pytest.mark.parametrize("name", [name for name in rowgrad.__all__ if callable(getattr(rowgrad, name))])
def test_docstring_examples(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(rowgrad, name), name, globs={})
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0
    if name in rowgrad._ops.functions.__all__:
        assert any(test.examples for test in found)


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
