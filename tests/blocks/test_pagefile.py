"""Page files: lossless, one block a line, checked on the way in, whole on the way out."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks import Page, Session
from rowgrad.blocks.pagefile import MOST_BLOCKS
from rowgrad.errors import FileError, PageError

DESIGN = """{"rowgrad_page": 1, "name": "pooled mean", "blocks": [
  {"id": "grad", "op": "Const", "attrs": {"dtype": "float32", "value": [[1, 2, 3], [4, 4, 2], [3, 1, 5]]}, "at": [40, 40]},
  {"id": "SparseSegmentMeanGrad", "op": "SparseSegmentMeanGrad",
   "inputs": {"grad": "grad:output", "indices": [0, 1, 2], "segment_ids": [2, 2, 2], "output_dim0": 3}, "at": [320, 40]}]}
"""  # noqa: E501


def everything() -> Page:
    """A page with literals of every kind and type."""
    page = Page("änything “quoted”")
    rng = np.random.default_rng(3)
    for name, dtype in NUMPY.items():
        words = rng.integers(0, 2 if name == "bool" else 100, (2, 3))
        array = words.astype(dtype[0]).view(dtype) if dtype.names else words.astype(dtype)
        page.add("Const", id=name, value=array)
        page.add("Const", id=f"{name}.empty", value=np.zeros((0, 3), dtype))
    page.add("Const", id="text", value=["a", 'b"\n', "ß\u2028"], dtype="string")
    page.add("Const", id="odd", value=["NaN", "-Infinity", -0.0, 0.1], dtype="float32")
    page.add("Const", id="plain", value=[[1, 2], [3, 4]])
    page.add("SparseFillEmptyRows", indices=[[0, 0]], values=["a"], dense_shape=[2, 2], default_value={"value": "-"})
    page.add("Mul", id="m", x="float64:output", y=[float("nan"), 1.5, 2])
    page.add("AddN", inputs=["m:z", "float64", {"value": [[1, 2, 3]] * 2, "dtype": "float64"}], at=(3.5, -7))
    page.add("Placeholder", id="p", dtype="bfloat16", shape=["batch", 3])
    page.add("SparseSegmentSum", data="m:z", sparse_gradient=True)
    page.note("what this is “for”\n", (0, -80))
    page.note("second", (10.5, 3))
    return page


def test_the_form_of_the_design_is_read_and_written() -> None:
    page = Page.from_json(DESIGN)
    assert page.name == "pooled mean"
    assert Session(page).run()["SparseSegmentMeanGrad"].output.shape == (3, 3)
    text = page.to_json()
    assert json.loads(text) == json.loads(DESIGN)
    assert [line.startswith('  {"id"') for line in text.splitlines()] == [False, True, True]


def test_everything_comes_back(tmp_path: Path) -> None:
    page = everything()
    assert Page.from_json(page.to_json()) == page
    page.save(tmp_path / "x.page.json")
    back = Page.load(tmp_path / "x.page.json")
    assert back == page
    assert os.listdir(tmp_path) == ["x.page.json"]
    first, second = Session(page).run(), Session(back).run()
    for block in page:
        for pin, array in first[block.id].outputs.items():
            other = second[block.id].outputs[pin]
            assert other.dtype == array.dtype
            assert other.shape == array.shape
            assert array.dtype.kind == "O" or other.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "string"])
def test_large_arrays_lie_beside_the_page(tmp_path: Path, dtype: str) -> None:
    array = np.arange(4000).astype(str).astype(object) if dtype == "string" else np.arange(4000).astype(NUMPY[dtype])
    page = Page()
    page.add("Const", id="c", value=array)
    page.save(tmp_path / "x.page.json")
    assert (tmp_path / "x.page.json").stat().st_size < 300
    (name,) = (path.name for path in tmp_path.iterdir() if path.suffix != ".json")
    assert name.startswith("x-")
    back = Page.load(tmp_path / "x.page.json")
    assert Session(back).run()["c"].output.tolist() == array.tolist()
    assert back == page
    (tmp_path / "other").mkdir()
    back.save(tmp_path / "other" / "y.page.json")
    assert Page.load(tmp_path / "other" / "y.page.json") == page


def one(block: str) -> str:
    return f'{{"rowgrad_page": 1, "blocks": [{block}]}}'


BAD = {
    '{"rowgrad_page": 1, "blocks": [], "notes": {}}': "notes: it must be a list",
    '{"rowgrad_page": 1, "blocks": [], "notes": [{"text": "a"}]}': r"notes\[0\]: it is incomplete: the field 'at'",
    '{"rowgrad_page": 1, "blocks": [], "notes": [{"text": "a", "at": [1, "b"]}]}': r"notes\[0\].at: .*two numbers",
    '{"rowgrad_page": 1, "blocks": [], "notes": [{"text": "", "at": [1, 2]}]}': r"notes\[0\].text: it is empty",
    "": "line 1, column 1",
    DESIGN[:-40]: "not valid JSON",
    "[]": "it must be an object",
    "{}": "'rowgrad_page' is missing",
    '{"rowgrad_page": 1}': "'blocks' is missing",
    '{"rowgrad_page": "1", "blocks": []}': "a whole number",
    '{"rowgrad_page": true, "blocks": []}': "a whole number",
    '{"rowgrad_page": 0, "blocks": []}': "no version 0",
    '{"rowgrad_page": 2, "blocks": [], "new": 1}': "no such field",
    '{"rowgrad_page": 1, "blocks": {}}': "blocks: it must be a list",
    '{"rowgrad_page": 1, "name": 5, "blocks": []}': "name: it must be a text",
    '{"rowgrad_page": 1, "blocks": [5]}': r"blocks\[0\]: it must be an object",
    one('{"id": "a"}'): r"blocks\[0\]: it is incomplete: the field 'op'",
    one('{"id": 5, "op": "Neg"}'): r"blocks\[0\].id: it must be a text",
    one('{"id": "a", "op": "Neg", "color": 1}'): r"blocks\[0\].color: .*known: id, op",
    one('{"id": "a", "op": "Neg", "inputs": []}'): r"blocks\[0\].inputs: .*an object",
    one('{"id": "a", "op": "Neg", "inputs": {"z": 1}}'): r"blocks\[0\].inputs.z: .*known: x",
    one('{"id": "a", "op": "Neg", "attrs": {"z": 1}}'): r"blocks\[0\].attrs.z: .*known: none",
    one('{"id": "a", "op": "Neg", "at": [1]}'): r"blocks\[0\].at: it must be two numbers",
    one('{"id": "a", "op": "Neg", "at": [1, 1e300]}'): "two numbers",
    one('{"id": "a", "op": "Nog"}'): "no operator 'Nog'",
    one('{"id": "a b", "op": "Neg"}'): "not a valid name for a block",
    one('{"id": "a", "op": "Neg"}, {"id": "a", "op": "Neg"}'): r"blocks\[1\].id: 'a' already exists",
    one('{"id": "a", "id": "b", "op": "Neg"}'): "'id': the field is there twice",
    one('{"id": "a", "op": "Neg", "inputs": {"x": "a:y"}}'): "cycle: a ← a",
    '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg", "inputs": {"x": "b"}}, '
    '{"id": "b", "op": "Neg", "inputs": {"x": "a"}}]}': "cycle: a ← b ← a",
    one('{"id": "a", "op": "Neg", "inputs": {"x": "q"}}'): "no block 'q'",
    one('{"id": "a", "op": "Neg", "inputs": {"x": NaN}}'): "JSON has no NaN",
    one('{"id": "a", "op": "Neg", "inputs": {"x": null}}'): "null",
    one('{"id": "a", "op": "Neg", "inputs": {"x": [[1], [2, 3]]}}'): "unevenly",
    one('{"id": "a", "op": "File", "attrs": {"path": "../../x.npy"}}'): "outside the folder",
    one('{"id": "a", "op": "File", "attrs": {"path": 5}}'): "path is 5; it must be a text",
    one('{"id": "a", "op": "File", "attrs": {"path": "' + "x" * 5000 + '.npy"}}'): "is not a file name",
    one('{"id": "a", "op": "Nog", "inputs": {"self": 1, "x": 1}, "attrs": {"x": 1}}'): "no operator 'Nog'",
    one('{"id": "a", "op": "Neg", "inputs": {"x": ' + "9" * 5000 + "}}"): "more than 400 digits",
    one('{"id": "a", "op": "Neg", "inputs": {"x": 1e400}}'): "1e400: the number is too large",
    one('{"id": "a", "op": "Neg", "inputs": {"x": 1e40}}'): "too large for float32",
    '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg", "inputs": {"x": {"value": [], "dtype": "float32", '
    '"shape": [0, 2147483647, 2147483647, 2147483647]}}}]}': "without elements",
    '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg", "inputs": {"x": {"value": [], "dtype": "float32", '
    '"shape": [1099511627776, 5]}}}]}': "without elements",
    '{"rowgrad_page": 1, "blocks": [' + "[" * 100_000 + "]" * 100_000 + "]}": "nested too deep",
    '{"rowgrad_page": 1, "blocks": [{"id": "a", "op": "Neg", "inputs": {"x": ' + "[" * 500 + "]" * 500 + "}}]}": "deep",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_malformed_pages_say_what_and_where(tmp_path: Path, text: str) -> None:
    with pytest.raises(PageError, match=BAD[text]):
        Page.from_json(text)
    path = tmp_path / "x.page.json"
    path.write_text(text)
    with pytest.raises((PageError, FileError), match=BAD[text]):
        Page.load(path)


def test_a_newer_page_says_so() -> None:
    with pytest.raises(PageError, match=r"version 7, from a newer rowgrad; this one reads versions up to 2. Update"):
        Page.from_json('{"rowgrad_page": 7, "blocks": []}')


def test_too_many_blocks() -> None:
    blocks = ", ".join(f'{{"id": "b{i}", "op": "Neg"}}' for i in range(100_000))
    with pytest.raises(PageError, match=f"there are 100000; a page holds at most {MOST_BLOCKS}"):
        Page.from_json(f'{{"rowgrad_page": 1, "blocks": [{blocks}]}}')


def test_a_long_chain_in_any_order_loads() -> None:
    blocks = [{"id": "b0", "op": "Const", "attrs": {"value": 1.0}}]
    blocks += [{"id": f"b{i}", "op": "Neg", "inputs": {"x": f"b{i - 1}"}} for i in range(1, 3000)]
    page = Page.from_json(json.dumps({"rowgrad_page": 1, "blocks": blocks[::-1]}))
    assert next(iter(page)).id == "b2999"
    assert page.order()[0] == "b0"


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "x.page.json").write_bytes(b"\xff\xfe\x00")
    for name in ("x.page.json", "missing.page.json", "."):
        with pytest.raises(FileError):
            Page.load(tmp_path / name)
    with pytest.raises(FileError, match="end in"):
        Page().save(tmp_path / "x.txt")


def test_a_file_in_a_literal_cannot_lead_out(tmp_path: Path) -> None:
    np.save(tmp_path / "secret.npy", np.ones(1))
    (tmp_path / "inner").mkdir()
    text = DESIGN.replace("[[1, 2, 3], [4, 4, 2], [3, 1, 5]]", '{"file": "../secret.npy"}')
    (tmp_path / "inner" / "x.page.json").write_text(text)
    with pytest.raises(PageError, match=r"grad:value: \.\./secret.npy is outside"):
        Page.load(tmp_path / "inner" / "x.page.json")


def test_a_header_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "x.npy").write_bytes(data + b"1234")
    with pytest.raises(PageError, match=r"x\.npy"):
        Page(folder=tmp_path).add("File", path="x.npy")


def test_bfloat16_words_in_a_lone_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, ml_dtypes.bfloat16).view("V2"))
    page = Page(folder=tmp_path)
    with pytest.raises(PageError, match="Name a dtype"):
        page.add("File", path="x.npy")
    page.add("File", id="f", path="x.npy", dtype="bfloat16")
    assert Session(page).run()["f"].output.astype(float).tolist() == [1, 1, 1]


KILLED = """
import os, sys
from rowgrad.blocks import Page
page = Page("big")
for i in range(400):
    page.add("Const", value=list(range(500)))
print("ready", flush=True)
while True:
    page.name += "x"
    page.save(sys.argv[1])
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
@pytest.mark.slow
def test_killed_while_saving_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.page.json"
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])}
    for attempt in range(4):
        worker = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=environment, text=True
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        while not path.exists():
            time.sleep(0.001)
        time.sleep(0.01 + 0.013 * attempt)
        worker.kill()
        worker.wait()
        worker.stdout.close()
        assert len(Page.load(path)) == 400


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "version1").iterdir()), ids=lambda path: path.name)
def test_version_1_opens_for_ever(path: Path) -> None:
    page = Page.load(path)
    assert page.groups == {}
    assert page.to_json() == path.read_text(encoding="utf-8")
    assert page.to_json().startswith('{"rowgrad_page": 1,')
