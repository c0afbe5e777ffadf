"""What an installed rowgrad must be able to do, run by the interpreter of a clean environment, outside the checkout.

It imports nothing from the tests. `python smoke.py [studio]`; with the word, the studio must be there as well.
"""

import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

import numpy as np

import rowgrad
from rowgrad import blocks, optim, raw_ops
from rowgrad.tables import Table


def operators() -> None:
    """The five gradients, with the numbers of their reference pages."""
    upstream = np.array([[1, 2, 3], [4, 4, 2], [3, 1, 5]], np.float32)
    dense = rowgrad.sparse_segment_mean_grad(upstream, [0, 1, 2], [2, 2, 2], 3)
    assert dense.tolist() == np.tile(upstream[2] * np.float32(1 / 3), (3, 1)).tolist()
    rows = rowgrad.sparse_segment_mean_grad_v2(upstream, [7, 7], [0, 1], 9)
    assert rows.sorted_unique_indices.tolist() == [7] and rows.output.tolist() == [[5, 6, 5]]
    assert raw_ops.SparseSegmentSqrtNGrad(grad=[[2.0]], indices=[0] * 4, segment_ids=[0] * 4, output_dim0=1) == [[4]]
    filled = rowgrad.sparse_fill_empty_rows_grad([0, 1, 3], [1.0, 2.0, 4.0, 8.0])
    assert filled.d_values.tolist() == [1, 2, 8] and filled.d_default_value == 4
    assert rowgrad.sparse_slice_grad([5.0], [[0], [3]], [2], [[1]]).tolist() == [0, 5]
    half = rowgrad.sparse_segment_sum(np.ones((4096, 1), np.float16), np.arange(4096), np.zeros(4096, np.int32))
    assert half.tolist() == [[4096]]


def training(folder: Path) -> None:
    """Optimizers in memory and on disk give the same rows."""
    in_memory, adam = np.ones((100, 8), np.float32), optim.Adam(lr=0.1, clip_norm=1.0)
    state = adam.init(in_memory)
    grads, ids = np.ones((10, 8), np.float32), np.arange(40) % 13
    adam.step_pooled(in_memory, grads, ids, np.arange(40) // 4, state, combiner="mean")
    with Table.create(folder / "table", rows=100, width=8, optimizer=adam, initializer=1.0) as table:
        table.step_pooled(grads, ids, np.arange(40) // 4, combiner="mean")
        assert table.array.tobytes() == in_memory.tobytes()


def errors() -> None:
    """Wrong ids are named."""
    try:
        rowgrad.sparse_segment_mean_grad([[1.0, 2.0]], [0, 7], [0, 0], 5)
    except rowgrad.OutOfRangeError as error:
        assert (error.argument, error.position, error.value) == ("indices", 1, 7)
    else:
        raise AssertionError("7 is no row of 5")


def pages() -> None:
    """A page runs."""
    page = blocks.Page("smoke")
    page.add("Const", id="grad", value=[[1, 2]], dtype="float32")
    page.add("SparseSegmentSumGrad", id="sum", grad="grad:output", indices=[0, 0], segment_ids=[0, 0], output_dim0=1)
    assert blocks.Session(page).run()["sum"].output.tolist() == [[2, 4]]


def command(*arguments: str) -> str:
    """What the command prints."""
    path = Path(sys.executable).with_name("rowgrad")
    return subprocess.run([path, *arguments], check=True, capture_output=True, text=True).stdout


def studio() -> None:
    """The server's page and its examples are in the wheel."""
    files = resources.files("rowgrad_studio")
    for name in ("app.js", "index.html", "widget.js"):
        assert (files / "static" / name).is_file(), name
    assert [path.name for path in (files / "examples").iterdir() if path.name.endswith(".page.json")]
    assert "--folder" in command("studio", "--help")


if __name__ == "__main__":
    assert "site-packages" in rowgrad.__file__, rowgrad.__file__
    assert metadata.version("rowgrad") == rowgrad.__version__
    with tempfile.TemporaryDirectory() as folder:
        operators()
        training(Path(folder))
    errors()
    pages()
    assert "SparseSegmentMeanGrad" in command("ops")
    assert "output_dim0" in command("ops", "SparseSegmentMeanGrad")
    if "studio" in sys.argv:
        studio()
    print("done")
