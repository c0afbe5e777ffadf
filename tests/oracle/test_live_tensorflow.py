"""The same calls to rowgrad, to `naive` and to a living TensorFlow: answers and errors agree.

These tests run in an environment of their own (`make test-oracle`). Where TensorFlow is wrong
(docs/deviations.md), the strategies keep away, or a line below says what is left out.
"""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
import naive
import rowgrad
import strategies
from golden import assert_same
from rowgrad._ops import functions

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

from record_golden import as_array, as_tensor

Array = np.ndarray[Any, Any]
Args = dict[str, Any]

RAW_OPS = {
    golden.snake_case(op): op
    for op in [
        *(f"SparseSegment{kind}{form}" for kind in ("Sum", "Mean", "SqrtN") for form in ("", "Grad", "GradV2")),
        *("SparseFillEmptyRows", "SparseFillEmptyRowsGrad", "RaggedFillEmptyRows", "RaggedFillEmptyRowsGrad"),
        *("SparseSlice", "SparseSliceGrad", "SparseReorder", "SparseReshape"),
        *(f"Segment{kind}" for kind in ("Sum", "Mean", "Prod", "Max", "Min")),
        *(f"UnsortedSegment{kind}" for kind in ("Sum", "Prod", "Max", "Min")),
        *("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseTensorDenseAdd", "SparseSoftmax"),
        *("SparseAdd", "SparseAddGrad", "SparseSparseMaximum", "SparseSparseMinimum"),
        *("SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax", "SparseReduceMaxSparse"),
    ]
}
LOW_PRECISION = (np.float16, ml_dtypes.bfloat16)
ROUNDED = (
    "segment_sum", "segment_mean", "segment_prod", "unsorted_segment_sum", "unsorted_segment_prod",
    "sparse_reduce_sum", "sparse_reduce_sum_sparse", "sparse_softmax",
)  # fmt: skip


def call_name(op: str, args: Args) -> str:
    is_counted = op.startswith("sparse_segment") and "num_segments" in args
    return RAW_OPS[op] + ("WithNumSegments" if is_counted else "")


def as_tensors(args: Args) -> dict[str, Any]:
    """The arguments as TensorFlow takes them: sizes of gradients are int32 there."""
    return {
        name: tf.cast(arg, tf.int32) if name.endswith("output_dim0") else as_tensor(np.asarray(arg))
        for name, arg in args.items()
    }


def ask_tensorflow(op: str, args: Args) -> tuple[Array, ...]:
    result = getattr(tf.raw_ops, call_name(op, args))(**as_tensors(args))
    tensors = result if isinstance(result, tuple) else (result,)
    return tuple(as_array(tensor) for tensor in tensors)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def terms(args: Args) -> int:
    """No sum of this call holds more numbers than this."""
    return max(1, *(np.size(arg) for arg in args.values()))


def comparable(op: str, results: tuple[Array, ...]) -> tuple[Array, ...]:
    """Without what TensorFlow rounds after every step: d_default_value and rows by segment in half and bfloat16."""
    if op.endswith("fill_empty_rows_grad") and results[0].dtype in LOW_PRECISION:
        return results[:1]
    if op in ROUNDED:
        return tuple(np.zeros(result.shape, result.dtype) if result.dtype in LOW_PRECISION else result
                     for result in results)  # fmt: skip
    return results


def assert_agree(op: str, args: Args, expected: tuple[Array, ...], actual: tuple[Any, ...]) -> None:
    expected, actual = comparable(op, expected), comparable(op, tuple(np.asarray(a) for a in actual))
    assert len(actual) == len(expected)
    for want, got in zip(expected, actual, strict=True):
        assert_same(want, got, "approx" if op == "sparse_softmax" else "ftz", terms(args))


# TensorFlow has no kernels for these, rowgrad has.
MORE_TYPES = {
    op: [np.dtype(t) for t in ("float16", ml_dtypes.bfloat16, "uint8", "uint16", "uint32", "uint64")]
    for op in ("sparse_add", "sparse_add_grad")
}

TYPED = [
    pytest.param(op, dtype, id=f"{op}-{golden.dtype_name(dtype)}")
    for op in RAW_OPS
    for dtype in strategies.OPERATORS[op][1]
    if not dtype.names  # TensorFlow has no kernels for the quantised types
    and dtype not in MORE_TYPES.get(op, ())
]


@pytest.mark.parametrize(("op", "dtype"), TYPED)
def test_answers_agree(op: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(strategies.calls(op, dtype, tensorflow=True))
    def check(args: Args) -> None:
        expected = ask_tensorflow(op, args)
        assert_agree(op, args, expected, as_tuple(getattr(naive, op)(**args)))
        assert_agree(op, args, expected, as_tuple(getattr(functions, op)(**args)))

    check()


@pytest.mark.parametrize(("op", "dtype"), TYPED)
def test_tensors_come_back_as_tensors(op: str, dtype: np.dtype[Any]) -> None:
    @settings(max_examples=3, deadline=None)
    @given(strategies.calls(op, dtype, tensorflow=True))
    def check(args: Args) -> None:
        results = as_tuple(getattr(rowgrad.raw_ops, call_name(op, args))(**as_tensors(args)))
        assert all(isinstance(result, tf.Tensor) for result in results)
        assert_agree(op, args, ask_tensorflow(op, args), tuple(as_array(result) for result in results))

    check()


# ---------------------------------------------------------------- types

FLOAT8 = [np.dtype(t) for t in (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)]
ALL_TYPES = [*strategies.ANYTHING, *golden.QUANTISED.values(), *FLOAT8]
VALUES = (
    "a_values",
    "b_values",
    "b",
    "dense",
    "sp_values",
    "data",
    "input_values",
    "grad",
    "values",
    "default_value",
    "grad_values",
    "backprop_val_grad",
)


def zeros(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.full(shape, b"", object) if dtype.kind == "O" else np.zeros(shape, dtype)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=golden.dtype_name)
@pytest.mark.parametrize("op", RAW_OPS)
def test_types_agree(op: str, dtype: np.dtype[Any]) -> None:
    if dtype in MORE_TYPES.get(op, ()) or (op == "sparse_slice_grad" and dtype.names):
        return  # documented for the quantised types; TensorFlow has no kernels for them, rowgrad has

    @settings(max_examples=1, deadline=None)
    @given(strategies.calls(op, np.dtype(np.float32), tensorflow=True))
    def check(args: Args) -> None:
        args |= {name: zeros(dtype, np.shape(args[name])) for name in VALUES if name in args}
        try:
            ask_tensorflow(op, args)
        except (tf.errors.OpError, TypeError):
            with pytest.raises(rowgrad.DTypeError):
                getattr(functions, op)(**args)
        else:
            getattr(functions, op)(**args)

    check()


# ---------------------------------------------------------------- errors

WRONG_NUMBERS = [-(2**31), -9, -1, 0, 1, 2, 5, 9, 2**31 - 1]


def wrong_number(array: Array, at: int, number: int) -> Array:
    array = array.copy()
    array.reshape(-1)[at % array.size] = number
    return array


@st.composite
def spoiled(draw: st.DrawFn, op: str) -> Args:
    """A good call with one or two of its arguments bent: some are still good, and both must say so."""
    args = draw(strategies.calls(op, np.dtype(np.float32), tensorflow=True))
    args = {name: np.asarray(arg) for name, arg in args.items()}
    for name in draw(st.lists(st.sampled_from(sorted(args)), min_size=1, max_size=2)):
        array = args[name]
        bends = ["deepen", "none"]
        if array.ndim:
            bends += ["shorten", "lengthen", "flatten"]
        if array.size:
            bends += ["first"]
        if array.size and array.dtype.kind == "i":
            bends += ["number"] * 4
        match draw(st.sampled_from(bends)):
            case "deepen":
                array = array[None]
            case "none":
                array = array[:0] if array.ndim else array
            case "shorten":
                array = array[:-1]
            case "lengthen":
                array = np.concatenate([array, array[:1]])
            case "flatten":
                array = array.reshape(-1)
            case "first":
                array = array.reshape(-1)[0]
            case "number":
                array = wrong_number(array, draw(st.integers(0, 50)), draw(st.sampled_from(WRONG_NUMBERS)))
        args[name] = np.asarray(array)
    return args


# Rows that TensorFlow would build: it dies or swaps where they are too many. Rowgrad's answer to such sizes
# is tested in test_hostile.py.
ROWS = ("num_segments", "output_dim0", "dense_shape", "nrows", "segment_ids")


def too_many_rows(op: str, args: Args) -> bool:
    names = (*ROWS, "input_shape") if op.startswith("sparse_reduce") else ROWS
    return any(np.any(np.asarray(args[name]) > 10_000) for name in names if name in args)


@pytest.mark.parametrize("op", RAW_OPS)
def test_errors_agree(op: str) -> None:
    @settings(max_examples=500, deadline=None)
    @given(spoiled(op))
    def check(args: Args) -> None:
        if too_many_rows(op, args):
            return
        try:
            expected = ask_tensorflow(op, args)
        except tf.errors.OpError:
            with pytest.raises(rowgrad.RowgradError):
                getattr(functions, op)(**args)
        else:
            if refused_on_purpose(op, args):
                with pytest.raises(rowgrad.InvalidArgumentError):
                    getattr(functions, op)(**args)
                return
            actual = as_tuple(getattr(functions, op)(**args))
            if not wrong_in_tensorflow(op, args):
                assert_agree(op, args, expected, actual)

    check()


def refused_on_purpose(op: str, args: Args) -> bool:
    """Reductions to dense tensors write entries that are outside of one dimension to another place, if there is one."""
    if op.startswith("sparse_dense_cwise"):
        return args["dense"].size == 0 < np.prod(args["sp_shape"])  # TensorFlow broadcasts the sparse tensor to nothing
    if op not in ("sparse_reduce_sum", "sparse_reduce_max"):
        return False
    rank = len(args["input_shape"])
    kept = sorted(set(range(rank)) - {int(axis) % rank for axis in np.reshape(args["reduction_axes"], -1)})
    indices = args["input_indices"][:, kept]
    return bool(((indices < 0) | (indices >= args["input_shape"][kept])).any())


def wrong_in_tensorflow(op: str, args: Args) -> bool:
    """Dense gradients of an empty batch are memory that nobody wrote; a ragged fill of no rows has a wrong shape.

    The order of entries with one index is left open (deviation D16); TensorFlow keeps that of up to 16 entries.
    """
    if op in ("sparse_reorder", "sparse_reduce_sum", "sparse_reduce_sum_sparse"):
        entries = len(args["input_indices"])
        repeated = len(np.unique(args["input_indices"], axis=0)) < entries
        return repeated and (op == "sparse_reorder" or entries > 16)
    if op == "ragged_fill_empty_rows":
        return args["nrows"] == 0
    return op.startswith("sparse_segment") and op.endswith("_grad") and args["indices"].size == 0
