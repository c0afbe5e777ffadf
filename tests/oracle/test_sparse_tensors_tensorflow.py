"""Operators on whole sparse tensors beside a living TensorFlow: those that take lists, and attributes of the others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import rowgrad
import strategies
import strategies_sparse
from golden import assert_same
from rowgrad import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

from record_golden import as_array, as_tensor

TYPES = pytest.mark.parametrize("dtype", strategies.ANYTHING, ids=golden.dtype_name)
FLOAT32 = np.dtype(np.float32)


def flat(result: Any) -> list[Any]:
    """All arrays of a result, lists of them one after the other."""
    if isinstance(result, tuple | list):
        return [array for part in result for array in flat(part)]
    return [as_array(result) if isinstance(result, tf.Tensor) else np.asarray(result)]


def tensors(value: Any) -> Any:
    return [as_tensor(part) for part in value] if isinstance(value, list) else as_tensor(value)


def agree(name: str, inputs: dict[str, Any], cmp: str = "ftz", **attributes: Any) -> None:
    """The same results, or an error of both."""
    try:
        expected = getattr(tf.raw_ops, name)(**{key: tensors(value) for key, value in inputs.items()}, **attributes)
    except tf.errors.OpError:
        with pytest.raises(rowgrad.RowgradError):
            getattr(raw_ops, name)(**inputs, **attributes)
        return
    found = getattr(raw_ops, name)(**inputs, **attributes)
    terms = max([1, *(np.size(value) for value in inputs.values() if not isinstance(value, list))])
    for want, got in zip(flat(expected), flat(found), strict=True):
        assert_same(want, got, cmp, terms)


@st.composite
def parts(draw: st.DrawFn, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Two or three tensors; now and then their shapes do not fit, or an index is out of range."""
    rank = draw(st.integers(1, 3))
    found = [
        list(draw(strategies_sparse.tensors(dtype, rank=rank, unique=True, least=1)))
        for _ in range(draw(st.integers(2, 3)))
    ]
    axis = draw(st.integers(-rank - 1, rank) if draw(st.integers(0, 9)) == 0 else st.integers(-rank, rank - 1))
    if draw(st.integers(0, 9)) > 0:
        for part in found[1:]:  # equal but for the axis
            length = int(part[2][axis % rank])
            part[2] = found[0][2].copy()
            part[2][axis % rank] = length
            part[0] = np.unique(part[0] % np.maximum(part[2], 1), axis=0)
            part[1] = part[1][: len(part[0])]
    indices, values, shapes = (list(column) for column in zip(*found, strict=True))
    return {"inputs": {"indices": indices, "values": values, "shapes": shapes}, "axis": axis}


@TYPES
def test_concat(dtype: np.dtype[Any]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(parts(dtype))
    def check(case: dict[str, Any]) -> None:
        agree("SparseConcat", case["inputs"], "bits", concat_dim=case["axis"])

    check()


@TYPES
def test_split(dtype: np.dtype[Any]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(strategies_sparse.tensors(dtype, least=1), st.integers(-3, 3), st.integers(1, 6), st.integers(0, 9))
    def check(tensor: Any, axis: int, count: int, spoil: int) -> None:
        indices, values, shape = tensor
        if spoil == 0 and indices.size:
            indices = indices.copy()
            indices.reshape(-1)[0] = [-1, 100][count % 2]
        inputs = {"split_dim": np.array(axis), "indices": indices, "values": values, "shape": shape}
        agree("SparseSplit", inputs, "bits", num_split=count)

    check()


@pytest.mark.parametrize(
    "name", ["SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax", "SparseReduceMaxSparse"]
)
def test_reductions_that_keep_dimensions(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(strategies_sparse.reductions(FLOAT32, tensorflow=True))
    def check(inputs: dict[str, Any]) -> None:
        agree(name, inputs, keep_dims=True)

    check()


COUNTS = pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("int32", "int64", "float32", "float64")], ids=str)


@COUNTS
@pytest.mark.parametrize("name", ["SparseBincount", "SparseCountSparseOutput", "DenseCountSparseOutput"])
def test_counts(name: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(strategies_sparse.tensors(dtype, rank=2, least=1), st.integers(0, 9), st.booleans(), st.booleans(),
           st.integers(-1, 6), st.integers(-1, 6))  # fmt: skip
    def check(tensor: Any, spoil: int, weighted: bool, binary: bool, least: int, most: int) -> None:
        indices, weights, shape = tensor
        ids = (np.arange(len(weights)) * 7 % 9).astype(np.int32) - (spoil == 0 and name != "SparseBincount")
        weights = weights if weighted else weights[:0]
        inputs: dict[str, Any] = {"indices": indices, "values": ids, "dense_shape": shape, "weights": weights}
        if name == "SparseBincount":
            agree(name, {**inputs, "size": np.array(most + 1, np.int32)}, binary_output=binary)
            return
        if name == "DenseCountSparseOutput":
            inputs = {"values": ids, "weights": weights}
        agree(name, inputs, minlength=least, maxlength=most, binary_output=binary)

    check()
