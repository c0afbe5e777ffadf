"""The gradient operators and their forwards, called on NumPy arrays, against TensorFlow's eager calls.

TensorFlow's operators have the same names and its answers agree to the bit. Its inputs are its own tensors before the
clock starts. PyTorch's compact gradient is the backward pass of `embedding_bag(sparse=True)`, coalesced: only then has
it each row once, as ours has; its forward pass is done before the clock starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import rowgrad
from bench import lookups
from bench.case import OURS, THREADS, Case, short
from bench.contest import Entry
from rowgrad._runtime.dtypes import NUMPY, Array

NAME = "operators"
SIZES, WIDTHS = (32, 500, 5000, 50_000), (8, 64)
MANY = 1_000_000
DEFAULT = np.float32(0.25)  # for empty rows
SEGMENT = ("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad",
           "SparseSegmentMeanGradV2")  # fmt: skip
SPARSE = ("SparseFillEmptyRows", "SparseFillEmptyRowsGrad", "SparseSlice", "SparseSliceGrad")
# Operators on inputs that are special to them.
NO_EMPTY_ROW = "SparseFillEmptyRows, no row empty"  # TensorFlow hands its inputs back
READ_ONLY = "SparseSegmentMeanGradV2, read-only arrays"  # as JAX's and TensorFlow's are
ONE_THREAD = "one thread"
COMPACT = "SparseSegmentMeanGradV2, large batches"
TYPES = "SparseSegmentMeanGradV2, other types"


@dataclass(frozen=True)
class Shape:
    """`bags` bags of `ids` ids each into a table of `rows` × `width`."""

    rows: int
    width: int
    bags: int
    ids: int
    distribution: str = "uniform"
    dtype: str = "float32"
    index: str = "int64"

    @property
    def title(self) -> str:
        """For tables that people read."""
        return f"{short(self.rows)} × {self.width}, {self.bags:,} × {self.ids}, {self.distribution}"

    @property
    def key(self) -> str:
        """For `--only`."""
        return f"{short(self.rows)}x{self.width}-{self.distribution}"


SHAPES = (
    Shape(100_000, 64, 4096, 20, "zipf"),
    Shape(1_000_000, 64, 8192, 30, "zipf"),
    Shape(1_000_000, 16, 65536, 10),
    Shape(10_000_000, 32, 8192, 50),
    Shape(1_000, 128, 32768, 8),
)
LARGE = SHAPES[1:]  # where a second thread must pay
# By table: what the geometric mean of a contestant's ratios must be.
MEANS: dict[str, Mapping[str, float]] = {COMPACT: {"tensorflow": 15.0, "torch": 12.0}, TYPES: {"int64": 1.0}}


def cases(size: str) -> list[Case]:
    """The operators from 32 to 50,000 entries, then large batches."""
    found: list[Case] = []
    for entries in SIZES[::2] if size == "quick" else (*SIZES, MANY):
        segment = (*SEGMENT, READ_ONLY) if entries in SIZES else ()
        found += [_segment_case(operator, entries, width) for operator in segment for width in WIDTHS]
        found += [_sparse_case(operator, entries) for operator in (*SPARSE, NO_EMPTY_ROW)]
    shapes = (SHAPES[0], SHAPES[4]) if size == "quick" else SHAPES
    return [*found, *(case for shape in shapes for case in of_large(shape))]


def of_large(shape: Shape) -> list[Case]:
    """The compact gradient of a large batch; on one thread, and in other types."""
    operator = "SparseSegmentMeanGradV2"
    contestants = {
        OURS: partial(_ours, operator, shape),
        "tensorflow": partial(_tensorflow, operator, shape),
        "torch": partial(_torch, shape),
        ONE_THREAD: partial(_ours, operator, shape, threads=1),
    }
    found = [_large(COMPACT, shape, "gradient", contestants, {ONE_THREAD: 1.6} if shape in LARGE else {})]
    # PyTorch's bfloat16 sums stop growing at 256, so it cannot take part.
    for column, other, plain, limits in (
        ("bfloat16", replace(shape, dtype="bfloat16"), "float32", {"float32": 1 / 1.1}),
        ("int32 ids", replace(shape, index="int32"), "int64", {}),
    ):
        contestants = {
            OURS: partial(_ours, operator, other),
            "tensorflow": partial(_tensorflow, operator, other),
            plain: partial(_plain, shape, other),
        }
        found.append(_large(TYPES, shape, column, contestants, limits))
    return found


def _large(
    table: str, shape: Shape, column: str, entries: Mapping[str, Callable[[], Entry]], limits: Mapping[str, float]
) -> Case:
    key = "/".join(("SparseSegmentMeanGradV2", shape.key, *([] if table == COMPACT else [column.split()[0]])))
    return Case(NAME, key, table, shape.title, column, entries, limits)


def _segment_case(operator: str, entries: int, width: int) -> Case:
    shape = Shape(entries, width, max(entries // 8, 1), 8)
    return Case(
        NAME,
        f"{_slug(operator)}/{entries}x{width}",
        f"{entries:,} entries",
        operator,
        f"width {width}",
        {OURS: partial(_ours, operator, shape), "tensorflow": partial(_tensorflow, operator, shape)},
        {"tensorflow": 2.0},
    )


def _sparse_case(operator: str, entries: int) -> Case:
    return Case(
        NAME,
        f"{_slug(operator)}/{entries}",
        f"{entries:,} entries",
        operator,
        "width 8",  # a sparse matrix has no width; its figures stand in the first column
        {OURS: partial(_ours, operator, entries), "tensorflow": partial(_tensorflow, operator, entries)},
        {"tensorflow": 1.0 if operator == NO_EMPTY_ROW else 2.0},
    )


def _slug(operator: str) -> str:
    return operator.replace(", ", "-").replace(" ", "-")


@lookups.remembered
def arguments(operator: str, work: Shape | int) -> dict[str, Any]:
    """The arguments of `operator` under TensorFlow's names, as NumPy arrays."""
    found = _of_segments(operator, work) if isinstance(work, Shape) else _of_matrix(operator, work)
    if operator == READ_ONLY:
        for value in found.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
    return found


def _of_segments(operator: str, shape: Shape) -> dict[str, Any]:
    random = np.random.default_rng(lookups.SEED)
    ends = lookups.offsets(random, shape.bags, shape.ids, shape.ids)
    ids = lookups.ids(random, shape.rows, int(ends[-1]), shape.distribution).astype(shape.index)
    pairs = {"indices": ids, "segment_ids": lookups.segments(ends)}
    if "Grad" not in operator:
        return {"data": lookups.values(shape.rows, shape.width), **pairs}
    grad = lookups.values(shape.bags, shape.width, seed=2).astype(NUMPY[shape.dtype])
    return {"grad": grad, **pairs, "dense_output_dim0" if "V2" in operator else "output_dim0": shape.rows}


def _of_matrix(operator: str, entries: int) -> dict[str, Any]:
    """A matrix of about one entry a row, with empty rows, to fill; or of 250 a row, of which the middle is cut out."""
    filling = "Fill" in operator
    columns, gap = (8, 8) if filling else (1000, 4)
    random = np.random.default_rng(lookups.SEED)
    places = np.cumsum(random.integers(1, 2 * gap, entries))  # sorted, and no two alike
    if operator == NO_EMPTY_ROW:
        places = np.arange(entries) * columns
    shape = np.array([int(places[-1]) // columns + 1, columns])
    indices = np.stack([places // columns, places % columns], axis=1)
    values = lookups.values(entries)
    if filling:
        fill = {"indices": indices, "values": values, "dense_shape": shape, "default_value": DEFAULT}
        if not operator.endswith("Grad"):
            return fill
        filled = rowgrad.sparse_fill_empty_rows(indices, values, shape, DEFAULT)
        upstream = lookups.values(len(filled.output_values), seed=2)
        return {"reverse_index_map": np.array(filled.reverse_index_map), "grad_values": upstream}
    start, size = shape // 4, np.maximum(shape // 2, 1)
    if not operator.endswith("Grad"):
        return {"indices": indices, "values": values, "shape": shape, "start": start, "size": size}
    window = rowgrad.sparse_slice(indices, values, shape, start, size)
    return {
        "backprop_val_grad": lookups.values(len(window.output_values), seed=2),
        "input_indices": indices,
        "input_start": start,
        "output_indices": np.array(window.output_indices),
    }


def _ours(operator: str, work: Shape | int, *, threads: int = THREADS) -> Entry:
    run = partial(getattr(rowgrad, FUNCTIONS[operator.split(",")[0]]), *arguments(operator, work).values())
    return Entry(run, lambda: _arrays(run()), prepare=lambda: rowgrad.set_num_threads(threads))


FUNCTIONS = {
    "SparseSegmentMean": "sparse_segment_mean",
    "SparseSegmentSqrtN": "sparse_segment_sqrt_n",
    "SparseSegmentMeanGrad": "sparse_segment_mean_grad",
    "SparseSegmentSqrtNGrad": "sparse_segment_sqrt_n_grad",
    "SparseSegmentMeanGradV2": "sparse_segment_mean_grad_v2",
    "SparseFillEmptyRows": "sparse_fill_empty_rows",
    "SparseFillEmptyRowsGrad": "sparse_fill_empty_rows_grad",
    "SparseSlice": "sparse_slice",
    "SparseSliceGrad": "sparse_slice_grad",
}


def _plain(shape: Shape, other: Shape) -> Entry:
    """Ours in float32 with int64 ids, beside ours in the type of `other`."""
    entry = _ours("SparseSegmentMeanGradV2", shape)

    def answer() -> list[Array]:
        output, rows = _arrays(entry.run())
        return [output, rows.astype(other.index)]

    return replace(entry, answer=answer, exact=shape.dtype == other.dtype, tolerance=1e-2)


def _tensorflow(operator: str, work: Shape | int) -> Entry:
    tf: Any = import_module("tensorflow")
    tensors = {name: tf.convert_to_tensor(value) for name, value in arguments(operator, work).items()}
    run = partial(getattr(tf.raw_ops, operator.split(",")[0]), **tensors)
    return Entry(run, lambda: [np.asarray(array) for array in _arrays(run())], exact=True)


def _torch(shape: Shape) -> Entry:
    torch: Any = import_module("torch")
    given = arguments("SparseSegmentMeanGradV2", shape)
    ids, grad = torch.tensor(given["indices"]), torch.tensor(given["grad"])
    weight = torch.zeros(shape.rows, shape.width, requires_grad=True)
    offsets = torch.arange(0, len(ids), shape.ids)
    pooled = torch.nn.functional.embedding_bag(ids, weight, offsets, mode="mean", sparse=True)

    def run() -> Any:
        (gradient,) = torch.autograd.grad(pooled, weight, grad, retain_graph=True)
        return gradient.coalesce()

    def answer() -> list[Array]:
        gradient = run()
        return [gradient.values().numpy(), gradient.indices()[0].numpy()]

    return Entry(run, answer)


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]
