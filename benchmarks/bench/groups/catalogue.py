"""Operators on sparse and ragged tensors, called under TensorFlow's names on NumPy arrays, against TensorFlow's.

TensorFlow's inputs are its own tensors before the clock starts; so are PyTorch's and SciPy's, which take part where
they have the same operation. A sparse tensor is a matrix in order, of 8 entries a row.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench import lookups
from bench.case import OURS, Case
from bench.contest import Entry
from rowgrad import raw_ops
from rowgrad._runtime.dtypes import Array

NAME = "catalogue"
SMALL, MANY, MOST = 1_000, 1_000_000, 10_000_000
COLUMNS, WIDTH = 100, 16
Given = tuple[dict[str, Any], dict[str, Any]]  # inputs and attributes


@lookups.remembered
def matrix(entries: int, seed: int = lookups.SEED) -> tuple[Array, Array, Array]:
    """A sparse matrix in order, of about 8 entries a row."""
    random = np.random.default_rng(seed)
    places = np.cumsum(random.integers(1, 2 * COLUMNS // 8, entries))
    shape = np.array([2 * entries // 8 + 2, COLUMNS])
    places = places % int(shape.prod())
    places.sort()
    places = np.unique(places)
    return np.stack([places // COLUMNS, places % COLUMNS], axis=1), lookups.values(len(places), seed=seed), shape


def _named(entries: int, *names: str) -> dict[str, Any]:
    return dict(zip(names, matrix(entries), strict=True))


def _two(entries: int) -> dict[str, Any]:
    names = ("a_indices", "a_values", "a_shape"), ("b_indices", "b_values", "b_shape")
    found: dict[str, Any] = {}
    for seed, given in enumerate(names):
        found |= dict(zip(given, matrix(entries, seed + 1), strict=True))
    return found


def _texts(entries: int) -> Array:
    return np.array([b"feature %d" % number for number in _ids(entries, 10**6)], object)


def _ids(entries: int, limit: int = 1000) -> Array:
    return np.random.default_rng(lookups.SEED).integers(0, limit, entries)


def _splits(entries: int) -> Array:
    return np.append(np.arange(0, entries, 8), entries)


def _columns(entries: int, values: Array) -> dict[str, Any]:
    rows = len(values) // 2
    indices = np.stack([np.arange(2 * rows) // 2, np.arange(2 * rows) % 2], axis=1)
    shape = np.array([rows, 2])
    return {"indices": [indices], "values": [values[: 2 * rows]], "shapes": [shape],
            "dense_inputs": [_ids(rows).reshape(rows, 1)]}  # fmt: skip


def _added(entries: int) -> Given:
    a, b = matrix(entries, 1), matrix(entries, 2)
    total = raw_ops.SparseAdd(*a, *b, np.float32(0))
    grad = lookups.values(len(total.sum_indices), seed=3)
    return {"backprop_val_grad": grad, "a_indices": a[0], "b_indices": b[0], "sum_indices": total.sum_indices}, {}


def _shuffled(entries: int) -> Given:
    indices, values, shape = matrix(entries)
    order = np.random.default_rng(lookups.SEED).permutation(len(values))
    return {"input_indices": indices[order], "input_values": values[order], "input_shape": shape}, {}


INPUT = ("input_indices", "input_values", "input_shape")
SP = ("sp_indices", "sp_values", "sp_shape")
ALONG = np.array([1], np.int32)
COUNTING = {"minlength": -1, "maxlength": -1, "binary_output": False}
WORK: dict[str, Callable[[int], Given]] = {
    "SegmentSum": lambda n: ({"data": lookups.values(n, WIDTH), "segment_ids": np.arange(n) // 8}, {}),
    "UnsortedSegmentSum": lambda n: ({"data": lookups.values(n, WIDTH), "segment_ids": _ids(n, n // 8),
                                      "num_segments": n // 8}, {}),
    "SparseReorder": _shuffled,
    "SparseReshape": lambda n: ({"input_indices": matrix(n)[0], "input_shape": matrix(n)[2],
                                 "new_shape": np.array([-1, 10])}, {}),
    "SparseReduceSum": lambda n: ({**_named(n, *INPUT), "reduction_axes": ALONG}, {"keep_dims": False}),
    "SparseReduceMax": lambda n: ({**_named(n, *INPUT), "reduction_axes": ALONG}, {"keep_dims": False}),
    "SparseTensorDenseMatMul": lambda n: ({**_named(n, "a_indices", "a_values", "a_shape"),
                                           "b": lookups.values(COLUMNS, WIDTH)}, {}),
    "SparseConcat": lambda n: (
        {name: [part, part] for name, part in _named(n // 2, "indices", "values", "shapes").items()}, {"concat_dim": 1}
    ),
    "SparseSplit": lambda n: ({"split_dim": np.array(1), **_named(n, "indices", "values", "shape")}, {"num_split": 4}),
    "SparseAdd": lambda n: ({**_two(n // 2), "thresh": np.float32(0)}, {}),
    "SparseAddGrad": lambda n: _added(n // 2),
    "SparseSparseMaximum": lambda n: (_two(n // 2), {}),
    "SparseTensorDenseAdd": lambda n: ({**_named(n, "a_indices", "a_values", "a_shape"),
                                        "b": lookups.values(int(matrix(n)[2][0]), COLUMNS)}, {}),
    "SparseDenseCwiseMul": lambda n: ({**_named(n, *SP), "dense": lookups.values(COLUMNS)}, {}),
    "SparseSoftmax": lambda n: (_named(n, *SP), {}),
    "SparseBincount": lambda n: ({"indices": matrix(n)[0], "values": _ids(len(matrix(n)[0]), 100),
                                  "dense_shape": matrix(n)[2], "size": np.array(100),
                                  "weights": np.empty(0, np.float32)}, {}),
    "DenseCountSparseOutput": lambda n: ({"values": _ids(n, 100).reshape(-1, 8), "weights": np.empty(0, np.int64)},
                                         COUNTING),
    "RaggedRange": lambda n: ({"starts": np.zeros(n // 8, np.int64), "limits": np.full(n // 8, 8),
                               "deltas": np.ones(n // 8, np.int64)}, {}),
    "RaggedTensorToTensor": lambda n: ({"shape": np.array([-1, -1]), "values": lookups.values(n),
                                        "default_value": np.float32(0), "row_partition_tensors": [_splits(n)]},
                                       {"row_partition_types": ["ROW_SPLITS"]}),
    "RaggedGather": lambda n: ({"params_nested_splits": [_splits(n)], "params_dense_values": lookups.values(n),
                                "indices": _ids(n // 8, n // 8)}, {"OUTPUT_RAGGED_RANK": 1}),
    "SparseCrossHashed": lambda n: ({**_columns(n, _ids(n)), "num_buckets": np.array(1000), "strong_hash": False,
                                     "salt": np.array([1, 2])}, {}),
    "SparseCrossV2": lambda n: ({**_columns(n, _ids(n)), "sep": np.array("_X_", object)}, {}),
    "StringToHashBucketFast": lambda n: ({"input": _texts(n)}, {"num_buckets": 1000}),
    "SerializeManySparse": lambda n: (_named(n, "sparse_indices", "sparse_values", "sparse_shape"), {}),
}  # fmt: skip
LIMITS = {"SparseTensorDenseMatMul": {"tensorflow": 3.0, "scipy": 1.0}}


def cases(size: str) -> list[Case]:
    """Every operator at a thousand and a million entries; a full run also has ten million."""
    sizes = (SMALL,) if size == "quick" else (SMALL, MANY) if size == "normal" else (SMALL, MANY, MOST)
    return [of(operator, entries) for operator in WORK for entries in sizes]


def of(operator: str, entries: int) -> Case:
    """One operator on so many entries."""
    contestants: dict[str, Callable[[], Entry]] = {
        OURS: partial(_ours, operator, entries),
        "tensorflow": partial(_tensorflow, operator, entries),
    }
    for peer, make in OTHERS.get(operator, {}).items():
        contestants[peer] = partial(make, entries)
    limits = {"tensorflow": 1.0} if entries == SMALL else LIMITS.get(operator, {"tensorflow": 2.0})
    title = "Sparse and ragged tensors"
    return Case(NAME, f"{operator}/{entries}", title, operator, f"{entries:,} entries", contestants, limits)


@lookups.remembered
def arguments(operator: str, entries: int) -> Given:
    """Inputs and attributes of `operator`."""
    return WORK[operator](entries)


def _ours(operator: str, entries: int) -> Entry:
    inputs, attributes = arguments(operator, entries)
    run = partial(getattr(raw_ops, operator), **inputs, **attributes)
    return Entry(run, lambda: _arrays(run()))


def _tensorflow(operator: str, entries: int) -> Entry:
    tf: Any = import_module("tensorflow")
    inputs, attributes = arguments(operator, entries)
    tensors = {
        name: [*map(tf.convert_to_tensor, value)] if isinstance(value, list) else tf.convert_to_tensor(value)
        for name, value in inputs.items()
    }
    run = partial(getattr(tf.raw_ops, operator), **tensors, **attributes)
    # Exponentials, and sums of very many entries, are rounded otherwise; all else is the same to the bit.
    exact = operator not in ("SparseSoftmax", "SparseReduceSum", "SegmentSum")
    return Entry(run, lambda: _arrays(run()), exact=exact)


def _arrays(result: Any) -> list[Array]:
    """All arrays of a result, those of lists too."""
    if isinstance(result, tuple | list):
        return [array for part in result for array in _arrays(part)]
    found = np.asarray(result)
    if found.dtype.kind in "USO":  # texts are compared by their bytes
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in found.ravel().tolist()]
        return [np.frombuffer(b"\n".join(texts), np.uint8)]
    return [found]


# PyTorch and SciPy


def _scipy_product(entries: int) -> Entry:
    sparse: Any = import_module("scipy.sparse")
    given, _ = arguments("SparseTensorDenseMatMul", entries)
    rows, columns = given["a_indices"].T
    left = sparse.csr_matrix((given["a_values"], (rows, columns)), shape=tuple(given["a_shape"].tolist()))
    return Entry(lambda: left @ given["b"], lambda: [left @ given["b"]])


def _torch_product(entries: int) -> Entry:
    torch: Any = import_module("torch")
    given, _ = arguments("SparseTensorDenseMatMul", entries)
    left = torch.sparse_coo_tensor(torch.tensor(given["a_indices"].T), torch.tensor(given["a_values"]),
                                   tuple(given["a_shape"].tolist())).coalesce().to_sparse_csr()  # fmt: skip
    right = torch.tensor(given["b"])
    return Entry(lambda: left @ right, lambda: [(left @ right).numpy()])


def _torch_segments(entries: int) -> Entry:
    torch: Any = import_module("torch")
    given, _ = arguments("SegmentSum", entries)
    data, lengths = torch.tensor(given["data"]), torch.tensor(np.bincount(given["segment_ids"]))
    run = partial(torch.segment_reduce, data, "sum", lengths=lengths, axis=0)
    return Entry(run, lambda: [run().numpy()])


def _torch_unsorted(entries: int) -> Entry:
    torch: Any = import_module("torch")
    given, _ = arguments("UnsortedSegmentSum", entries)
    data = torch.tensor(given["data"])
    places = torch.tensor(given["segment_ids"])[:, None].expand(-1, WIDTH)

    def run() -> Any:
        return torch.zeros(given["num_segments"], WIDTH).scatter_reduce(0, places, data, "sum")

    return Entry(run, lambda: [run().numpy()])


def _scipy_sum(entries: int) -> Entry:
    sparse: Any = import_module("scipy.sparse")
    given, _ = arguments("SparseAdd", entries)
    parts = [
        sparse.csr_matrix(
            (given[f"{side}_values"], tuple(given[f"{side}_indices"].T)), tuple(given[f"{side}_shape"].tolist())
        )
        for side in "ab"
    ]

    def answer() -> list[Array]:
        total = (parts[0] + parts[1]).tocoo()
        return [np.stack([total.row, total.col], axis=1).astype(np.int64), total.data, given["a_shape"]]

    return Entry(lambda: parts[0] + parts[1], answer)


OTHERS: Mapping[str, Mapping[str, Callable[[int], Entry]]] = {
    "SparseTensorDenseMatMul": {"scipy": _scipy_product, "torch": _torch_product},
    "SegmentSum": {"torch": _torch_segments},
    "UnsortedSegmentSum": {"torch": _torch_unsorted},
    "SparseAdd": {"scipy": _scipy_sum},
}
