"""Errors carry what a program needs, read well, and survive a trip to another process."""

import pickle

import numpy as np
import pytest

import rowgrad
from rowgrad import errors

CODES = {
    "DTypeError": "wrong-dtype",
    "FileError": "bad-file",
    "InvalidArgumentError": "invalid-argument",
    "OutOfMemoryError": "out-of-memory",
    "OutOfRangeError": "out-of-range",
    "PageError": "bad-page",
    "RowgradError": "error",
}


def caught() -> rowgrad.RowgradError:
    with pytest.raises(rowgrad.OutOfRangeError) as info:
        rowgrad.sparse_segment_mean_grad(np.ones((1, 2), np.float32), [0, 7], [0, 0], 5)
    return info.value


def test_classes_are_also_the_built_in_ones() -> None:
    assert issubclass(rowgrad.InvalidArgumentError, rowgrad.RowgradError)
    assert issubclass(rowgrad.InvalidArgumentError, ValueError)
    assert issubclass(rowgrad.OutOfRangeError, rowgrad.InvalidArgumentError)
    assert issubclass(rowgrad.OutOfRangeError, IndexError)
    assert issubclass(rowgrad.DTypeError, TypeError)
    assert issubclass(rowgrad.OutOfMemoryError, MemoryError)


def test_all_errors_are_public() -> None:
    assert sorted(CODES) == sorted(errors.__all__)
    for name in CODES:
        assert name in rowgrad.__all__
        assert getattr(rowgrad, name) is getattr(errors, name)


@pytest.mark.parametrize("name", CODES)
def test_an_error_can_be_rebuilt_from_its_message(name: str) -> None:
    cls = getattr(errors, name)
    error = cls("the message")
    assert (str(error), error.code, error.args) == ("the message", CODES[name], ("the message",))
    assert (error.op, error.argument, error.position, error.value) == (None, None, None, None)
    assert cls("the message", code="special").code == "special"
    twin = cls(*error.args)
    assert twin.__dict__ == error.__dict__


def test_an_error_tells_all() -> None:
    error = caught()
    assert (error.op, error.argument, error.position, error.value) == ("SparseSegmentMeanGrad", "indices", 1, 7)
    assert error.code == "index-out-of-range"
    assert str(error) == (
        "SparseSegmentMeanGrad: indices[1] is 7; allowed: 0 to 4 (output_dim0 is 5). "
        "Drop the entry, or raise output_dim0."
    )


def test_arrays_of_different_lengths() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        rowgrad.sparse_segment_mean_grad([[1.0, 2.0]], [0, 7], [0], 5)
    assert str(info.value) == (
        "SparseSegmentMeanGrad: segment_ids has length 1, but indices has 2; they must be equally long."
    )


def test_an_error_can_be_pickled() -> None:
    error = caught()
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.__dict__ == error.__dict__


@pytest.mark.parametrize(
    "error",
    [
        errors.FileError("it is damaged.", "write it again.", code="no-such-part"),
        errors.PageError("it does not fit.", block="b", pin="indices", code="x", op="Add", position=(1, 2), value=3),
    ],
)
def test_errors_of_files_and_pages_can_be_pickled(error: rowgrad.RowgradError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin)) == (type(error), str(error))
    assert twin.__dict__ == error.__dict__


def test_the_lowest_position_is_named_by_any_number_of_threads(many_chunks: None) -> None:
    indices = np.zeros(50_000, np.int64)
    indices[[33_000, 17_001, 49_999]] = 9
    with pytest.raises(rowgrad.OutOfRangeError) as info:
        rowgrad.sparse_segment_sum_grad(np.ones((1, 2), np.float32), indices, np.zeros_like(indices), 5)
    assert info.value.position == 17_001
    with pytest.raises(rowgrad.OutOfRangeError) as info:
        rowgrad.sparse_segment_sum(np.ones((5, 2), np.float32), indices, np.zeros_like(indices))
    assert info.value.position == 17_001
    with pytest.raises(rowgrad.OutOfRangeError) as info:
        rowgrad.sparse_fill_empty_rows(indices[:, None], indices, [5], 0)
    assert info.value.position == (17_001, 0)
    with pytest.raises(rowgrad.OutOfRangeError) as info:
        rowgrad.sparse_fill_empty_rows_grad(indices, np.ones(5, np.float32))
    assert info.value.position == 17_001


@pytest.mark.parametrize(
    ("ids", "code", "position"),
    [
        ([0, 2, 1], "unsorted-segment-ids", 2),
        ([2, 2, 1], "unsorted-segment-ids", 2),
        ([-1, 0, 1], "segment-id-out-of-range", 0),
    ],
)
def test_forward_segment_ids(ids: list[int], code: str, position: int) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        rowgrad.sparse_segment_sum(np.ones((3, 1), np.float32), [0, 1, 2], ids)
    assert (info.value.code, info.value.position, info.value.argument) == (code, position, "segment_ids")


def test_missing_and_unknown_arguments_are_plain_type_errors() -> None:
    with pytest.raises(TypeError, match="output_dim0"):
        rowgrad.sparse_segment_sum_grad([[1.0]], [0], [0])
    with pytest.raises(TypeError, match="output_dim1"):
        rowgrad.sparse_segment_sum_grad([[1.0]], [0], [0], 1, output_dim1=1)
    with pytest.raises(TypeError, match="too many"):
        rowgrad.sparse_segment_sum_grad([[1.0]], [0], [0], 1, 2)
    with pytest.raises(rowgrad.InvalidArgumentError, match="sparse_gradient"):
        rowgrad.raw_ops.SparseSegmentSum([[1.0]], [0], [0], sparse_gradient=1)
