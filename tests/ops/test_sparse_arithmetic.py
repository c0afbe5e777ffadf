"""Sums, larger ones, products and softmax of sparse tensors: gradients, large calls, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_check import check

import naive
import rowgrad
from golden import assert_same
from rowgrad._ops import functions
from rowgrad.errors import RowgradError
from shared_texts import out_of_range

RNG = np.random.default_rng(8)
A = {"a_indices": np.array([[0, 0], [0, 3], [2, 1]]), "a_values": RNG.standard_normal(3), "a_shape": [3, 4]}
B = {"b_indices": np.array([[0, 3], [1, 1], [2, 1], [2, 2]]), "b_values": RNG.standard_normal(4), "b_shape": [3, 4]}
SP = {"sp_indices": np.array([[2, 1], [0, 3], [2, 0], [1, 1]]), "sp_values": RNG.standard_normal(4), "sp_shape": [3, 4]}


def test_gradients_of_two_tensors() -> None:
    check("SparseAdd", {**A, **B, "thresh": np.float64(0)})
    check("SparseSparseMaximum", {**A, **B})
    check("SparseSparseMinimum", {**A, **B})


@pytest.mark.parametrize("shape", [(3, 4), (4,), (1, 4), (3, 1), ()])
@pytest.mark.parametrize("name", ["SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"])
def test_gradients_beside_a_dense_tensor(name: str, shape: tuple[int, ...]) -> None:
    check(name, {**SP, "dense": 1.5 + RNG.random(shape)})


def test_gradients_of_a_dense_sum() -> None:
    check("SparseTensorDenseAdd", {**A, "b": RNG.standard_normal((3, 4))})


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
def test_gradients_of_softmax(order: str) -> None:
    entries = dict(SP)
    if order == "sorted":
        entries["sp_indices"] = np.array([[0, 1], [0, 3], [2, 0], [2, 1]])
    check("SparseSoftmax", entries)


@pytest.mark.parametrize("kind", ["shuffled", "repeated", "one side empty"])
def test_large_sums_of_entries_in_any_order(kind: str) -> None:
    """Threads share what ascends; the rest meets as it does on one thread."""
    args: dict[str, Any] = {}
    for name, size in (("a", 40_000), ("b", 25_000)):
        indices = np.stack([RNG.integers(0, 300, size), RNG.integers(0, 50, size)], axis=1)
        if kind != "shuffled":
            indices = indices[np.lexsort(indices.T[::-1])]
        indices = indices[:0] if kind == "one side empty" and name == "a" else indices
        args |= {f"{name}_indices": indices, f"{name}_values": RNG.standard_normal(len(indices)),
                 f"{name}_shape": np.array([300, 50])}  # fmt: skip
    results = []
    for threads in (1, 2, 3):
        rowgrad.set_num_threads(threads)
        total = functions.sparse_add(**args, thresh=np.float64(0.1))
        grad = np.arange(1.0, len(total.sum_indices) + 1)
        back = functions.sparse_add_grad(grad, args["a_indices"], args["b_indices"], total.sum_indices)
        results.append([*total, *functions.sparse_sparse_maximum(**args), *back])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    expected = naive.sparse_add(**args, thresh=np.float64(0.1))
    for one, two in zip(results[0], expected, strict=False):
        np.testing.assert_array_equal(one, np.asarray(two))


def test_large_calls() -> None:
    """The same for every number of threads, and as the plain loops have it."""
    shape = [200, 300]
    args: dict[str, Any] = {}
    for name in "ab":
        indices = np.unique(np.stack([RNG.integers(0, size, 30_000) for size in shape], axis=1), axis=0)
        args |= {f"{name}_indices": indices, f"{name}_values": RNG.standard_normal(len(indices)).astype(np.float32),
                 f"{name}_shape": np.array(shape)}  # fmt: skip
    dense = RNG.standard_normal(shape).astype(np.float32)
    sp = {f"sp_{key[2:]}": value for key, value in args.items() if key.startswith("a_")}
    calls = {
        "sparse_add": {**args, "thresh": np.float32(0.5)},
        "sparse_sparse_maximum": args,
        "sparse_softmax": sp,
        "sparse_dense_cwise_mul": {**sp, "dense": dense},
        "sparse_tensor_dense_add": {**{k: v for k, v in args.items() if k.startswith("a_")}, "b": dense},
    }
    before = rowgrad.get_num_threads()
    try:
        for name, given in calls.items():
            expected = getattr(naive, name)(**given)
            for threads in (1, 2, 8):
                rowgrad.set_num_threads(threads)
                found = getattr(functions, name)(**given)
                pairs = zip(expected, found, strict=True) if isinstance(found, tuple) else [(expected, found)]
                for want, got in pairs:
                    assert_same(want, got)
    finally:
        rowgrad.set_num_threads(before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rowgrad.sparse_add([[0]], [1.0], [2], [[1]], [1.0], [3], 0),
         "SparseAdd: b_shape is [3], but a_shape is [2]; they must be equal. Broadcast or slice one of them."),
        (lambda: rowgrad.sparse_sparse_maximum([[0]], [1.0], [2], [[2]], [1.0], [2]),
         "SparseSparseMaximum: " + out_of_range("b_indices", (0, 0), 2, 2, "b_shape[0]",
                                                "Drop the entry, or raise b_shape.")),
        (lambda: rowgrad.sparse_dense_cwise_div([[0], [1]], [1.0, 2.0], [2], [1.0, 0.0]),
         "SparseDenseCwiseDiv: dense is 0 at the place of sp_indices[1], [1]; it cannot be divided by. Drop the entry, "
         "or change dense."),
        (lambda: rowgrad.sparse_dense_cwise_mul([[0, 1]], [1.0], [2, 3], [1.0, 2.0]),
         "SparseDenseCwiseMul: dense has shape [2], which does not broadcast to sp_shape [2, 3]. Reshape it."),
        (lambda: rowgrad.sparse_softmax([[0]], [1.0], [2]),
         "SparseSoftmax: sp_shape is [2]; the tensor must have two dimensions or more. Reshape it."),
        (lambda: rowgrad.sparse_tensor_dense_add([[0]], [1.0], [2], [1.0, 2.0, 3.0]),
         "SparseTensorDenseAdd: b has shape [3], but a_shape is [2]; they must be equal. Reshape or broadcast b."),
    ],
)  # fmt: skip
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RowgradError) as info:
        call()
    assert str(info.value) == message
