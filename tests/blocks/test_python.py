"""Scripts made of pages give the bits that sessions give, in a process of their own that knows no pages."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import example_pages
from rowgrad._runtime.dtypes import BFLOAT16, NUMPY
from rowgrad._runtime.files import read
from rowgrad.blocks import Page, Session
from rowgrad.blocks._spelling import WIDTH, array_text, same_bits
from rowgrad.errors import PageError

RUN_ALL = """
import json, runpy, sys
for script, arguments in json.loads(sys.argv[1]):
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
assert not {"rowgrad.blocks.page", "rowgrad.blocks._session"} & set(sys.modules)
"""


def run_scripts(folder: Path, scripts: dict[str, tuple[str, list[str]]]) -> None:
    """Run scripts, with arguments, one after the other in a new process."""
    calls = []
    for name, (text, arguments) in scripts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        calls.append((str(folder / f"{name}.py"), [*arguments, "--out", str(folder / f"{name}.results.npz")]))
    command = [sys.executable, "-W", "error", "-c", RUN_ALL, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def session_results(page: Page, steps: int, feeds: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    history = Session(page).loop(steps, feeds=feeds)
    assert not history.results.errors, history.results.errors
    return {f"{id}:{pin}": array for id, result in history.results.items() for pin, array in result.outputs.items()}


def assert_same(folder: Path, name: str, expected: dict[str, np.ndarray]) -> None:
    path = folder / f"{name}.results.npz"
    with np.load(path, allow_pickle=False) as archive:
        assert {member for member in archive.files if not member.endswith(".dtype")} == set(expected)
    for member, array in expected.items():
        found = read(path, member)
        if array.dtype.kind == "O":
            found = found.astype(object)
        assert same_bits(found, array), f"{name} {member}: {found!r} is not {array!r}"


def check(folder: Path, page: Page, steps: int = 1, feeds: dict[str, Any] | None = None) -> str:
    """Compare the script of `page` with a session; gives the script."""
    text = page.to_python()
    arguments = ["--loop", str(steps)]
    for id, array in (feeds or {}).items():
        np.save(folder / f"{id}.npy", array.view("V2") if array.dtype == BFLOAT16 else array)
        arguments += ["--feed", f"{id}={folder / id}.npy"]
    expected = session_results(page, steps, feeds)
    run_scripts(folder, {"script": (text, arguments)})
    assert_same(folder, "script", expected)
    return text


def test_every_operator(tmp_path: Path) -> None:
    pages = {
        f"{name}_{wired}": example_pages.of_example(operator, wired=wired)
        for name, operator in example_pages.EXAMPLES.items()
        for wired in (False, True)
        if not name.startswith("Serialize")  # files hold no texts that end with zeros
    }
    run_scripts(tmp_path, {name: (page.to_python(), ["--loop", "2"]) for name, page in pages.items()})
    for name, page in pages.items():
        assert_same(tmp_path, name, session_results(page, 2))


@pytest.mark.slow
def test_example_pages(tmp_path: Path) -> None:
    shutil.copytree(example_pages.FOLDER, tmp_path, dirs_exist_ok=True)
    pages = {path.name.partition(".")[0]: Page.load(tmp_path / path.name) for path in example_pages.FILES}
    expected = {name: session_results(page, 3) for name, page in pages.items()}
    run_scripts(tmp_path, {name: (page.to_python(), ["--loop", "3"]) for name, page in pages.items()})
    for name, results in expected.items():
        assert_same(tmp_path, name, results)


def test_values_of_every_type(tmp_path: Path) -> None:
    text = check(tmp_path, example_pages.of_values())
    assert "unpack(" in text
    assert max(map(len, text.splitlines())) <= WIDTH + len("  # fmt: skip")


def test_variables_change_after_the_step(tmp_path: Path) -> None:
    text = check(tmp_path, example_pages.training(), 3, {"x": np.ones((4, 3), np.float32)})
    assert "descend = rowgrad.blocks.raw_ops.ApplyGradientDescent(var=w, alpha=0.1, delta=decay)" in text
    assert "def step(x, w, table, accum, steps):" in text


def test_the_text(tmp_path: Path) -> None:
    page = Page("pooled mean")
    page.add("Const", id="grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32")
    page.add("SparseSegmentMeanGrad", grad="grad:output", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)
    text = page.to_python()
    assert text.startswith('''"""pooled mean

Written by rowgrad from a page of 2 blocks; it needs NumPy and rowgrad.

    python SCRIPT.py --loop 1 --out results.npz
"""

import argparse
from pathlib import Path

import numpy as np
import rowgrad
from rowgrad._runtime.files import write

grad = np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 2.0], [3.0, 1.0, 5.0]], np.float32)


def step():
    """One step: what each block gives."""
    sparse_segment_mean_grad = rowgrad.sparse_segment_mean_grad(
        grad=grad, indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3
    )
    return {"grad:output": grad, "SparseSegmentMeanGrad:output": sparse_segment_mean_grad}


def main():
''')


def test_names_are_valid_and_stay_apart(tmp_path: Path) -> None:
    page = Page()
    ids = ["lambda", "np", "rowgrad", "step", "print", "a-b", "a.b", "a/b", "a_b", "1", "...", "match", "Neg", "neg",
           "results", "None", "x", "x_2", "unpack", "MyBlock"]  # fmt: skip
    before = page.add("Const", id="first", value=[1.0, 2.0])["output"]
    for id in ids:
        before = page.add("Neg", id=id, x=before)["y"]
    text = check(tmp_path, page)
    step = next(f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef) and f.name == "step")
    names = [node.targets[0].id for node in step.body if isinstance(node, ast.Assign)]  # type: ignore[attr-defined]
    assert len(set(names)) == len(names) == len(ids)
    assert not {"lambda", "np", "rowgrad", "step", "print"} & set(names)
    assert "MyBlock" in names


def test_literals_have_types_only_where_they_need_them(tmp_path: Path) -> None:
    page = Page()
    page.add("Const", id="half", value=[1, 2], dtype="float16")
    page.add("Const", id="brain", value=[1, 2], dtype="bfloat16")
    page.add("Mul", id="a", x="half:output", y=0.1)
    page.add("Mul", id="b", x=0.1, y="brain:output")
    page.add("Mul", id="c", x={"value": [0.1], "dtype": "float64"}, y=[2.5])
    page.add("Mul", id="d", x=[1, 2], y=[3, 4])
    page.add("Mul", id="e", x=np.array([1, 2], np.int8), y=3)
    page.add("AddN", id="f", inputs=["half:output", [1.5, 2.5], np.array([1, 2], np.float16)])
    page.add("Mul", id="g", x="half:output", y={"value": ["NaN", "Infinity"], "dtype": "float16"})
    page.add("Mul", id="h", x=list(map(float, range(40))), y=2.0)
    text = check(tmp_path, page)
    assert "a = rowgrad.blocks.raw_ops.Mul(x=half, y=0.1)" in text
    assert "b = rowgrad.blocks.raw_ops.Mul(x=0.1, y=brain)" in text
    assert "c = rowgrad.blocks.raw_ops.Mul(x=np.array([0.1], np.float64), y=[2.5])" in text
    assert "e = rowgrad.blocks.raw_ops.Mul(x=np.array([1, 2], np.int8), y=3)" in text
    assert "h = rowgrad.blocks.raw_ops.Mul(x=h_x, y=2.0)" in text


@pytest.mark.parametrize("dtype", [*NUMPY, "string"])
def test_spelled_arrays_are_the_same_bits(dtype: str) -> None:
    import base64

    import ml_dtypes

    def unpack(dtype: Any, shape: Any, *lines: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode("".join(lines)), dtype).reshape(shape)

    array = example_pages.values(dtype)
    for each in (array, array[0, 0:1].reshape(()), array[:0]):
        text = str(array_text(each))
        assert same_bits(eval(text, {"np": np, "ml_dtypes": ml_dtypes, "unpack": unpack}), each), text


@pytest.mark.slow
def test_placeholders_must_be_fed(tmp_path: Path) -> None:
    page = Page()
    page.add("Placeholder", id="x-1", dtype="bfloat16")
    page.add("Placeholder", id="word", dtype="string")
    page.add("Square", x="x-1:output")
    page.add("Identity", input="word:output")
    check(tmp_path, page, 1, {"x-1": np.array([0.1, 2], BFLOAT16), "word": np.array(["a", "bc"])})
    for arguments, words in [
        ([], "nothing is fed to x-1"),
        (["--feed", "y=a.npy"], "there is no placeholder 'y'; there are: x-1, word"),
        (["--feed", "x-1=missing.npy"], "there is no such file"),
        (["--feed", f"x-1={tmp_path / 'word.npy'}"], "cannot be converted to bfloat16"),
    ]:
        done = subprocess.run([sys.executable, tmp_path / "script.py", *arguments], capture_output=True, text=True)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(5))
    (tmp_path / "table.csv").write_text("a,b\n1,2.5\n3,4.5\n")
    page = Page("files", folder=tmp_path)
    page.add("File", id="ids", path="ids.npy", dtype="int32")
    page.add("File", id="column", path="table.csv", part="b")
    page.add("Const", id="held", value={"file": "ids.npy"})
    page.add("Variable", id="w", initial_value=[1.0, 2.0])
    page.add("Square", id="new", x="w:ref")
    page.add("Assign", id="set", ref="w:ref", value="new:y")
    page.add("Save", id="save", filename={"value": "out.npz"}, tensor_names=["w", "brain"],
             data=["set:output_ref", {"value": [0.1], "dtype": "bfloat16"}])  # fmt: skip
    text = check(tmp_path, page, 2)
    assert 'ids = folder.read(HERE, "ids.npy", None, dtype="int32")' in text
    assert 'held = folder.read(HERE, "ids.npy", None)' in text
    assert 'folder.write(HERE, "out.npz", {"w": set_' in text
    again = Page("again", folder=tmp_path)
    again.add("Restore", id="w", file_pattern={"value": "out.npz"}, tensor_name={"value": "w"}, dt="float32")
    again.add("Restore", id="brain", file_pattern={"value": "out.npz"}, tensor_name={"value": "brain"}, dt="bfloat16")
    again.add("Variable", id="start", initial_value="w:tensor")
    again.add("Assign", id="set", ref="start:ref", value=[0.0, 0.0])
    check(tmp_path, again, 2)


def test_initial_values_that_are_computed(tmp_path: Path) -> None:
    """Variables that begin as something computed, as another one, and as what is computed from one that changes."""
    page = Page()
    page.add("Placeholder", id="x", dtype="float32")
    page.add("Square", id="squared", x="x:output")
    page.add("Variable", id="a", initial_value="squared:y")
    page.add("Neg", id="negative", x="a:ref")
    page.add("Variable", id="still", initial_value="squared:y")
    page.add("Variable", id="copy", initial_value="still:ref")
    page.add("Variable", id="later", initial_value="negative:y")
    page.add("Add", id="more", x="a:ref", y=1.0)
    page.add("Assign", id="set_a", ref="a:ref", value="more:z")
    page.add("Assign", id="set_copy", ref="copy:ref", value="more:z")
    page.add("Assign", id="set_later", ref="later:ref", value="more:z")
    check(tmp_path, page, 3, {"x": np.array([1, 2], np.float32)})


def test_a_page_that_is_not_whole_is_refused() -> None:
    page = Page()
    page.add("Neg", id="n")
    with pytest.raises(PageError, match="n:x: it is unconnected"):
        page.to_python()


@pytest.mark.parametrize("name", ['"""', "a\\", 'ends in "', "two\nlines", "\uffff", "", "ü€"])
def test_any_name_of_a_page(name: str) -> None:
    text = Page(name).to_python()
    text.encode()
    compile(text, "script", "exec")
