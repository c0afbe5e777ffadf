"""Every kind of array goes in without a copy where none is needed, and comes out as the kind it was."""

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad._runtime import arrays

GRAD = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
INDICES = np.array([4, 1, 4])
SEGMENTS = np.array([0, 2, 1], np.int32)


def expected() -> "np.ndarray[Any, Any]":
    return np.array([[5.0, 6.0], [4.0, 6.0]], np.float32)


def assert_rows(result: Any, kind: type) -> None:
    assert type(result) is rowgrad.RowGradient
    assert isinstance(result.output, kind)
    assert isinstance(result.sorted_unique_indices, kind)
    np.testing.assert_array_equal(np.asarray(result.output), expected())
    np.testing.assert_array_equal(np.asarray(result.sorted_unique_indices), [1, 4])


def call(grad: Any, indices: Any = INDICES, segments: Any = SEGMENTS) -> Any:
    return rowgrad.sparse_segment_sum_grad_v2(grad, indices, segments, 5)


def test_lists_give_numpy_with_tensorflows_types() -> None:
    result = call(GRAD.tolist(), INDICES.tolist(), SEGMENTS.tolist())
    assert_rows(result, np.ndarray)
    assert result.output.dtype == np.float32
    assert result.sorted_unique_indices.dtype == np.int32


def test_lists_of_large_ids_are_int64() -> None:
    result = rowgrad.sparse_segment_sum_grad_v2([[1.0]], [2**40], [0], 2**41)
    assert result.sorted_unique_indices.dtype == np.int64
    assert result.sorted_unique_indices.tolist() == [2**40]


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a[::-1][::-1],
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
        lambda a: a.view(type("Sub", (np.ndarray,), {})),
    ],
    ids=["fortran", "strided", "reversed twice", "big endian", "unaligned", "subclass"],
)
def test_any_numpy_layout(change: Any) -> None:
    assert_rows(call(change(GRAD), change(INDICES), change(SEGMENTS)), np.ndarray)


def test_read_only_inputs_are_not_changed() -> None:
    grad = GRAD.copy()
    grad.flags.writeable = False
    assert_rows(call(grad), np.ndarray)
    np.testing.assert_array_equal(grad, GRAD)


@pytest.mark.parametrize("nbytes", [64, arrays.SMALL_COPY, arrays.SMALL_COPY + 1])
def test_read_only_arrays_are_lent_unless_copying_is_faster(nbytes: int) -> None:
    array = np.zeros(nbytes, np.uint8)
    array.flags.writeable = False
    lent = arrays.settle(array)
    assert lent.flags.carray
    assert np.shares_memory(lent, array) == (nbytes > arrays.SMALL_COPY)


def test_read_only_memory_outlives_the_array_it_was_lent_from() -> None:
    lent = arrays.settle(np.frombuffer(bytes(range(256)) * 100, np.uint8))
    np.testing.assert_array_equal(lent, np.tile(np.arange(256), 100))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64])
def test_smaller_and_unsigned_ids_are_converted(dtype: Any) -> None:
    assert_rows(call(GRAD, INDICES.astype(dtype), SEGMENTS.astype(dtype)), np.ndarray)


@pytest.mark.parametrize("count", [5, np.int8(5), np.array(5), np.uint64(5), np.array(5, ">i4")])
def test_counts_are_any_whole_number(count: Any) -> None:
    assert rowgrad.sparse_segment_sum_grad(GRAD, INDICES, SEGMENTS, count).shape == (5, 2)


@pytest.mark.parametrize(
    ("bad", "argument"),
    [
        (lambda: call(GRAD.astype(np.int32)), "grad"),
        (lambda: call(GRAD, INDICES.astype(float)), "indices"),
        (lambda: call(GRAD, INDICES > 1), "indices"),
        (lambda: call(GRAD, np.array([])), "indices"),
        (lambda: call(GRAD, [1.0, 2.0, 3.0]), "indices"),
        (lambda: call([["a", "b"]] * 3), "grad"),
        (lambda: call(None), "grad"),
        (lambda: call(np.ma.masked_array(GRAD)), "grad"),
        (lambda: call([[2**24 + 1]] * 3), None),
        (lambda: rowgrad.sparse_segment_sum_grad(GRAD, INDICES, SEGMENTS, 5.0), "output_dim0"),
        (lambda: rowgrad.sparse_fill_empty_rows([[0]], np.array([1]), [2], 1.5), "default_value"),
        (lambda: rowgrad.sparse_fill_empty_rows([[0]], np.array([1], np.int8), [2], 300), "default_value"),
        (lambda: rowgrad.sparse_fill_empty_rows([[0]], GRAD[:1, 0], [2], 1e300), "default_value"),
        (lambda: rowgrad.sparse_fill_empty_rows([[0]], ["a"], [2], 1), "default_value"),
        (lambda: rowgrad.sparse_fill_empty_rows([[0]], np.array([object()]), [2], "x"), "values"),
    ],
)
def test_what_would_lose_something_is_refused(bad: Any, argument: str | None) -> None:
    if argument is None:  # 2**24 + 1 needs float64, which a list of whole numbers may get
        assert bad().output.dtype == np.float64
        return
    with pytest.raises(rowgrad.DTypeError) as caught:
        bad()
    assert caught.value.argument == argument
    assert argument in str(caught.value)


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"grad: .*nested evenly"):
        call([[1.0], [1.0, 2.0]])


def test_a_python_number_rounds_to_the_type_of_the_values() -> None:
    filled = rowgrad.sparse_fill_empty_rows([[0]], np.array([1], np.float16), [2], 0.1)
    assert filled.output_values.dtype == np.float16
    assert filled.output_values[1] == np.float16(0.1)


def test_strings_keep_their_type_and_grow_where_needed() -> None:
    filled = rowgrad.sparse_fill_empty_rows([[0]], np.array(["a"]), [2], "none")
    assert filled.output_values.tolist() == ["a", "none"]
    filled = rowgrad.sparse_fill_empty_rows([[0]], np.array([b"a"], object), [2], b"none")
    assert filled.output_values.dtype == object
    assert filled.output_values.tolist() == [b"a", b"none"]
    words = rowgrad.sparse_slice([[0], [1]], np.array(["a", "bc"], np.dtypes.StringDType()), [2], [1], [1])
    assert words.output_values.tolist() == ["bc"]


class Lent:
    """An array that only speaks DLPack."""

    def __init__(self, array: "np.ndarray[Any, Any]", *, cpu: bool = True) -> None:
        self.array = array
        self.cpu = cpu

    def __dlpack__(self, **options: Any) -> Any:
        if not self.cpu:
            raise BufferError("it lives elsewhere")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack() -> None:
    assert_rows(call(Lent(GRAD.copy())), np.ndarray)
    with pytest.raises(rowgrad.InvalidArgumentError, match="DLPack") as caught:
        call(Lent(GRAD, cpu=False))
    assert caught.value.argument == "grad"


def test_the_first_array_decides() -> None:
    torch = framework("torch")
    assert_rows(call(GRAD.tolist(), torch.from_numpy(INDICES)), torch.Tensor)
    assert_rows(call(GRAD, torch.from_numpy(INDICES)), np.ndarray)


def test_torch() -> None:
    torch = framework("torch")
    grad = torch.from_numpy(GRAD)
    assert_rows(call(grad, torch.from_numpy(INDICES), torch.from_numpy(SEGMENTS)), torch.Tensor)
    assert_rows(call(torch.nn.Parameter(grad, requires_grad=False)), torch.Tensor)
    assert_rows(call(grad.T.contiguous().T), torch.Tensor)
    half = call(grad.to(torch.bfloat16))
    assert half.output.dtype is torch.bfloat16
    assert half.output.float().tolist() == expected().tolist()
    shared = arrays.adopt(grad)
    assert shared.__array_interface__["data"][0] == grad.data_ptr()
    brain = grad.to(torch.bfloat16)
    shared = arrays.adopt(brain)
    assert shared.dtype == ml_dtypes.bfloat16
    assert shared.__array_interface__["data"][0] == brain.data_ptr()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torch_may_free_its_memory_after_a_call(dtype: str) -> None:
    torch = framework("torch")
    grad = torch.ones(GRAD.shape, dtype=getattr(torch, dtype))
    call(grad)
    grad.untyped_storage().resize_(0)
    kept = arrays.adopt(torch.full((1000,), 7.0, dtype=getattr(torch, dtype)))
    torch.full((1000,), 8.0, dtype=getattr(torch, dtype))  # would get the memory, if that had been freed
    assert (kept == 7).all()


def test_torch_refusals() -> None:
    torch = framework("torch")
    grad = torch.from_numpy(GRAD.copy()).requires_grad_()
    with pytest.raises(rowgrad.InvalidArgumentError, match="requires a gradient") as caught:
        call(grad)
    assert caught.value.argument == "grad"
    with torch.no_grad():
        assert_rows(call(grad), torch.Tensor)
    with pytest.raises(rowgrad.DTypeError, match="dense"):
        call(torch.from_numpy(GRAD).to_sparse())
    with pytest.raises(rowgrad.InvalidArgumentError, match="device meta"):
        call(torch.from_numpy(GRAD).to("meta"))


def test_jax() -> None:
    jax = framework("jax")
    result = call(jax.numpy.asarray(GRAD), jax.numpy.asarray(INDICES), jax.numpy.asarray(SEGMENTS))
    assert_rows(result, jax.Array)
    half = call(jax.numpy.asarray(GRAD, jax.numpy.bfloat16))
    assert half.output.dtype == jax.numpy.bfloat16
    np.testing.assert_array_equal(np.asarray(half.output, np.float32), expected())


def test_jax_never_cuts_ids() -> None:
    jax = framework("jax")
    values = jax.numpy.ones(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = rowgrad.sparse_slice(np.array([[2**40]]), values, [2**41], [0], [2**41])
        assert isinstance(filled.output_indices, np.ndarray)  # the first array was NumPy's
        with pytest.raises(rowgrad.OutOfRangeError, match="64-bit"):
            rowgrad.sparse_segment_sum_grad_v2(jax.numpy.ones((1, 1)), np.array([2**40]), [0], 2**41)


def test_jax_tracers_are_refused() -> None:
    jax = framework("jax")
    with pytest.raises(rowgrad.InvalidArgumentError, match="no value here"):
        jax.jit(lambda grad: call(grad).output)(GRAD)
