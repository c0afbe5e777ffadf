"""Draw the example pages: forward by hand, backward by `add_training`. With --check, tell which files are stale.

Each page is a function below; `RESULTS` states what comes out. The tests run every page and compare.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rowgrad.blocks import Page

FOLDER = Path(__file__).parent / "pages"
G = [[1, 2, 3], [4, 4, 2], [3, 1, 5]]
ENTRIES = [[0, 0], [0, 3], [2, 0], [3, 0]]

PAGES: dict[str, Callable[[Page], None]] = {}
RESULTS: dict[str, dict[str, Any]] = {}


def page(name: str, **results: Any) -> Callable[[Callable[[Page], None]], Callable[[Page], None]]:
    """Register a page; `results` are stated as block__pin."""

    def register(draw: Callable[[Page], None]) -> Callable[[Page], None]:
        PAGES[name] = draw
        RESULTS[name] = {key.replace("__", ":"): value for key, value in results.items()}
        return draw

    return register


# The five gradient operators, one page each


@page("sqrt_n_grad", SparseSegmentSqrtNGrad__output=[[0.707107, 1.414214, 2.12132], [0.707107, 1.414214, 2.12132],
                                                     [3, 1, 5]])  # fmt: skip
def sqrt_n_grad(page: Page) -> None:
    """SparseSegmentSqrtNGrad: a segment of two rows gives each its gradient, divided by the square root of two."""
    page.add("Const", "grad", value=G, dtype="float32")
    page.add("SparseSegmentSqrtNGrad", grad="grad", indices=[0, 1, 2], segment_ids=[0, 0, 2], output_dim0=3)


@page("mean_grad", SparseSegmentMeanGrad__output=[[1, 0.333333, 1.666667]] * 3)
def mean_grad(page: Page) -> None:
    """SparseSegmentMeanGrad: three rows were averaged in segment 2; each gets a third of its gradient."""
    page.add("Const", "grad", value=G, dtype="float32")
    page.add("SparseSegmentMeanGrad", grad="grad", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)


@page("mean_grad_v2", SparseSegmentMeanGradV2__output=[[0.5, 1, 1.5], [4.5, 5, 3.5]],
      SparseSegmentMeanGradV2__sorted_unique_indices=[3, 900])  # fmt: skip
def mean_grad_v2(page: Page) -> None:
    """SparseSegmentMeanGradV2: a table of a thousand rows, of which two were looked up; only these have a gradient."""
    page.add("Const", "grad", value=G[:2], dtype="float32")
    page.add("SparseSegmentMeanGradV2", grad="grad", indices=[900, 3, 900], segment_ids=[0, 0, 1],
             dense_output_dim0=1000)  # fmt: skip


@page("fill_empty_rows_grad", fill__reverse_index_map=[0, 1, 3, 4], SparseFillEmptyRowsGrad__d_values=[1, 2, 4, 5],
      SparseFillEmptyRowsGrad__d_default_value=9)  # fmt: skip
def fill_empty_rows_grad(page: Page) -> None:
    """SparseFillEmptyRowsGrad: each entry gets its own gradient, the default the sum over what was empty."""
    page.add("SparseFillEmptyRows", "fill", indices=ENTRIES, values=["a", "b", "c", "d"], dense_shape=[5, 6],
             default_value={"value": "-"})  # fmt: skip
    page.add("SparseFillEmptyRowsGrad", reverse_index_map="fill:reverse_index_map", grad_values=[1.0, 2, 3, 4, 5, 6])


@page("slice_grad", slice__output_indices=[[0, 2]], slice__output_values=["b"], slice__output_shape=[3, 3],
      SparseSliceGrad__val_grad=[0, 7, 0, 0])  # fmt: skip
def slice_grad(page: Page) -> None:
    """SparseSliceGrad: one entry lay in the window; its gradient goes back to where it was, the others get 0."""
    page.add("Const", "entries", value=[[0, 0], [0, 3], [0, 4], [3, 0]], dtype="int64")
    page.add("Const", "start", value=[0, 1], dtype="int64")
    page.add("SparseSlice", "slice", indices="entries", values=["a", "b", "c", "d"], shape=[5, 6], start="start",
             size=[3, 3])  # fmt: skip
    page.add("SparseSliceGrad", backprop_val_grad=[7.0], input_indices="entries", input_start="start",
             output_indices="slice:output_indices")  # fmt: skip


# The other worked examples


@page("pooling", mean__output=[[3.5, 2.5, 3.5], [1, 2, 3]], sum__output=[[5, 6, 5], [3, 1, 5]],
      sqrt_n__output=[[3.535534, 4.242641, 3.535534], [0, 0, 0], [3, 1, 5]])  # fmt: skip
def pooling(page: Page) -> None:
    """The three forward operators: sum, mean, and the sum divided by the square root of the count."""
    page.add("Const", "table", value=G, dtype="float32")
    page.add("SparseSegmentMean", "mean", data="table", indices=[2, 1, 0], segment_ids=[0, 0, 1])
    page.add("SparseSegmentSqrtN", "sqrt_n", data="table", indices=[0, 1, 2], segment_ids=[0, 0, 2])
    page.add("SparseSegmentSum", "sum", data="table", indices=[0, 1, 2], segment_ids=[0, 0, 1])


@page("bfloat16", SparseSegmentSumGrad__output=[[4096]])
def bfloat16(page: Page) -> None:
    """4096 unit gradients meet in one bfloat16 row: summed in bfloat16 they would stop at 256."""
    page.add("BroadcastTo", "ones", input={"value": 1, "dtype": "bfloat16"}, shape=[4096, 1])
    page.add("BroadcastTo", "zeros", input={"value": 0, "dtype": "int32"}, shape=[4096])
    page.add("Range", "entries", start=0, limit=4096, delta=1)
    page.add("SparseSegmentSumGrad", grad="ones", indices="zeros", segment_ids="entries", output_dim0=1)


@page(
    "tour",
    pooled__output=[[3.5, 2.5, 3.5], [1, 2, 3]],
    SparseSegmentSqrtNGrad__output=RESULTS["sqrt_n_grad"]["SparseSegmentSqrtNGrad:output"],
    SparseSegmentMeanGrad__output=RESULTS["mean_grad"]["SparseSegmentMeanGrad:output"],
    SparseSegmentMeanGradV2__output=[[0.5, 1, 1.5], [4.5, 5, 3.5]],
    SparseSegmentMeanGradV2__sorted_unique_indices=[3, 900],
    SparseFillEmptyRowsGrad__d_values=[1, 2, 4, 5],
    SparseFillEmptyRowsGrad__d_default_value=9,
    SparseSliceGrad__val_grad=[0, 7, 0, 0],
)
def tour(page: Page) -> None:
    """All five gradient operators, with what goes before them."""
    page.add("Const", "grad", value=G, dtype="float32")
    page.add("SparseSegmentMean", "pooled", data="grad", indices=[2, 1, 0], segment_ids=[0, 0, 1])
    page.add("SparseSegmentSqrtNGrad", grad="grad", indices=[0, 1, 2], segment_ids=[0, 0, 2], output_dim0=3)
    page.add("SparseSegmentMeanGrad", grad="grad", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)
    page.add("SparseSegmentMeanGradV2", grad="grad", indices=[900, 3, 900], segment_ids=[0, 0, 1],
             dense_output_dim0=1000)  # fmt: skip
    fill_empty_rows_grad(page)
    slice_grad(page)
    page.tidy()


# Whole models


@page("safe_lookup", lookup__z=[[3.5, 2.5, 3.5], [0, 0, 0], [1, 2, 3]])
def safe_lookup(page: Page) -> None:
    """safe_embedding_lookup_sparse in blocks: negative ids are dropped, and rows without any come out as zeros."""
    page.add("Const", "table", value=G, dtype="float32")
    page.add("Const", "indices", value=[[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]], dtype="int64")
    page.add("Const", "ids", value=[2, -1, 1, -5, 0], dtype="int64")
    page.add("Const", "dense_shape", value=[3, 3], dtype="int64")
    # An id as one more index: a slice that begins at id 0 drops the negative ones.
    page.add("ExpandDims", "column", input="ids", axis=1)
    page.add("Concat", "with_id", values=["indices", "column"], axis=1)
    page.add("Concat", "window", values=["dense_shape", {"value": [2**40], "dtype": "int64"}], axis=0)
    page.add("SparseSlice", "keep", indices="with_id", values="ids", shape="window", start=[0, 0, 0], size="window")
    page.add("Slice", "kept", input="keep:output_indices", begin=[0, 0], size=[-1, 2])
    page.add("SparseFillEmptyRows", "fill", indices="kept", values="keep:output_values", dense_shape="dense_shape",
             default_value=0)  # fmt: skip
    page.add("Slice", "rows", input="fill:output_indices", begin=[0, 0], size=[-1, 1])
    page.add("Reshape", "segment_ids", tensor="rows", shape=[-1])
    page.add("SparseSegmentMean", "pooled", data="table", indices="fill:output_values", segment_ids="segment_ids")
    page.add("Cast", "was_empty", x="fill:empty_row_indicator", DstT="float32")
    page.add("Sub", "present", x=1.0, y="was_empty")
    page.add("ExpandDims", "present_rows", input="present", axis=1)
    page.add("Mul", "lookup", x="pooled", y="present_rows")
    page.tidy()


WEIGHTS = [[0.1, -0.1, 0.0], [0.0, 0.1, -0.1], [-0.1, 0.0, 0.1], [0.1, 0.1, -0.2], [0.2, -0.1, -0.1],
           [-0.1, 0.2, -0.1], [-0.1, -0.1, 0.2], [0.0, -0.2, 0.2]]  # fmt: skip


@page("classifier")
def classifier(page: Page) -> None:
    """A pooled-embedding classifier of support tickets that trains: each step is one pass over all of them."""
    page.add("File", "words", path="tickets.csv", part="word")
    page.add("File", "tickets", path="tickets.csv", part="ticket")
    page.add("File", "labels", path="labels.csv", dtype="float32")
    page.add("File", "initial", path="table.npy")
    page.add("Variable", "table", initial_value="initial")
    page.add("Variable", "weights", initial_value=WEIGHTS)
    page.add("Variable", "bias", initial_value=[0.0, 0.0, 0.0])
    page.add("SparseSegmentMeanWithNumSegments", "pooled", data="table", indices="words", segment_ids="tickets",
             num_segments=240, sparse_gradient=True)  # fmt: skip
    page.add("MatMul", "scores", a="pooled", b="weights")
    page.add("Add", "logits", x="scores", y="bias")
    page.add("SoftmaxCrossEntropyWithLogits", "entropy", features="logits", labels="labels")
    page.add("ReduceMean", "loss", input="entropy:loss", axis=0)
    page.tidy()
    page.add_training("loss", ["table", "weights", "bias"], "Adagrad", lr=0.5)


@page("batches")
def batches(page: Page) -> None:
    """The classifier in batches, from one file: random initial values, Adam, and a fifth of the tickets held out."""
    page.add("Batches", "data", path="messages.csv", columns=["words", "topic"], ragged=["words"], batch_size=32,
             seed=1, holdout=0.2)  # fmt: skip
    page.add("StatelessRandomNormal", "noise", shape=[55, 8], seed=[1, 2])
    page.add("Mul", "initial", x="noise", y=0.1)
    page.add("Variable", "table", initial_value="initial")
    page.add("Variable", "weights", initial_value=WEIGHTS)
    page.add("Variable", "bias", initial_value=[0.0, 0.0, 0.0])
    page.add("Size", "tickets", input="data:rows")
    page.add("SparseSegmentMeanWithNumSegments", "pooled", data="table", indices="data:words",
             segment_ids="data:words_segments", num_segments="tickets")  # fmt: skip
    page.add("MatMul", "scores", a="pooled", b="weights")
    page.add("Add", "logits", x="scores", y="bias")
    page.add("SparseSoftmaxCrossEntropyWithLogits", "entropy", features="logits", labels="data:topic")
    page.add("ReduceMean", "loss", input="entropy:loss", axis=0)
    page.add("ArgMax", "guess", input="logits", dimension=1)
    page.add("Equal", "right", x="guess", y="data:topic")
    page.add("Cast", "hits", x="right", DstT="float32")
    page.add("ReduceMean", "accuracy", input="hits", axis=0)
    page.tidy()
    page.group(["tickets", "pooled", "scores", "logits"], "model")
    page.group(["guess", "right", "hits", "accuracy"], "measure")
    page.add_training("loss", ["table", "weights", "bias"], "Adam", lr=0.05)


# Pages of the studio's lessons


@page("compact_or_dense")
def compact_or_dense(page: Page) -> None:
    """A dense gradient has a row for every row of the table; a compact one, only for the rows that were used."""
    page.add("Const", "grad", value=[[1, 1], [2, 2]], dtype="float32")
    page.add("SparseSegmentSumGrad", "dense", grad="grad", indices=[7, 2, 7], segment_ids=[0, 0, 1], output_dim0=1000)
    page.tidy()


@page("recommender")
def recommender(page: Page) -> None:
    """Eight users with three films that each has seen, and whether they liked the next one: a model to be trained."""
    films = ["Alien", "Dune", "Gravity", "Solaris", "Stalker", "Amélie", "Big", "Clue", "Elf", "Up"]
    seen = [3, 2, 0, 8, 9, 6, 3, 0, 1, 5, 9, 8, 1, 0, 4, 7, 5, 8, 3, 2, 1, 6, 7, 9]
    following = [1, 5, 8, 7, 2, 0, 6, 5]  # those of one's own kind are liked
    page.add("Const", "titles", value=films, dtype="string")
    page.add("StatelessRandomNormal", "start", shape=[10, 4], seed=[4, 2])
    page.add("Variable", "films", initial_value="start")
    page.add("SparseSegmentMean", "user", data="films", indices=seen, segment_ids=[n // 3 for n in range(24)])
    page.add("SparseSegmentSum", "next", data="films", indices=following, segment_ids=list(range(8)))
    page.add("Mul", "match", x="user", y="next")
    page.add("ReduceSum", "score", input="match", axis=1)
    page.add("Const", "liked", value=[1, 1, 0, 1, 1, 0, 0, 1], dtype="float32")
    page.add("Sub", "error", x="score", y="liked")
    page.add("Square", "squared", x="error")
    page.add("ReduceMean", "loss", input="squared", axis=0)
    page.tidy()


def drawn(name: str) -> Page:
    """The page `name`, drawn anew."""
    draw = PAGES[name]
    made = Page(name.replace("_", " "), folder=FOLDER)
    draw(made)
    made.note((draw.__doc__ or "").strip(), (40, -90))
    return made


def main() -> int:
    """Write all pages, or check them."""
    stale = []
    for name in PAGES:
        path = FOLDER / f"{name}.page.json"
        made = drawn(name)
        if not path.exists() or path.read_text(encoding="utf-8") != made.to_json():
            stale.append(path.name)
            if "--check" not in sys.argv:
                made.save(path)
    print(f"{len(PAGES)} pages, {len(stale)} {'stale' if '--check' in sys.argv else 'written'}: {', '.join(stale)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
