"""What ragged tensors are made of: what cannot be one is refused by name, and nothing is read as other rows."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import RaggedTensor
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfMemoryError, OutOfRangeError

VALUES = np.arange(5, dtype=np.float32)
ROWS = [[0.0, 1.0], [2.0, 3.0, 4.0]]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: RaggedTensor(3.0, [0, 1]), InvalidArgumentError, "values is a scalar"),
        (lambda: RaggedTensor([[1], [2, 3]], [0, 2]), InvalidArgumentError, "values: it cannot be read"),
        (lambda: RaggedTensor(VALUES, None), DTypeError, "row_splits is object"),
        (lambda: RaggedTensor(VALUES, [[0, 5]]), InvalidArgumentError, r"row_splits has shape \[1, 2\]"),
        (lambda: RaggedTensor(VALUES, np.array([0, 2**63 + 5], np.uint64)), OutOfRangeError, r"row_splits\[1\] is 9"),
        (lambda: RaggedTensor(VALUES, [0, 2, 5]).with_values(1), InvalidArgumentError, "values is a scalar"),
        (lambda: RaggedTensor.from_row_lengths(VALUES, [2.5, 2.5]), DTypeError, "row_lengths is float64"),
        (lambda: RaggedTensor.from_row_lengths(VALUES, [1, 1]), InvalidArgumentError, "adds up to 2, but .* 5 values"),
        (lambda: RaggedTensor.from_row_lengths(VALUES, [2**62] * 4), InvalidArgumentError, "more than int64 holds"),
        (lambda: RaggedTensor.from_row_lengths(VALUES, [6, -1]), OutOfRangeError, r"row_lengths\[1\] is -1"),
        (lambda: RaggedTensor.from_offsets(VALUES, [1, 2]), InvalidArgumentError, "offsets begins with 1"),
        (lambda: RaggedTensor.from_offsets(VALUES, None), DTypeError, "offsets is object"),
        (lambda: RaggedTensor.from_value_rowids(VALUES, [[0, 0, 1, 1, 1]]), InvalidArgumentError, "value_rowids has"),
        (lambda: RaggedTensor.from_value_rowids(VALUES, [0, 2, 1, 3, 3]), InvalidArgumentError, r"\[2\] is 1; .* Sort"),
        (
            lambda: RaggedTensor.from_value_rowids(VALUES, [0, 0, 1, 1, 1], 1),
            OutOfRangeError,
            r"\[2\] is 1; allowed: 0",
        ),
        (lambda: RaggedTensor.from_value_rowids(VALUES, [0, 0, 1, 1, 1], 2.5), DTypeError, "nrows is 2.5"),
        (lambda: RaggedTensor.from_value_rowids(VALUES, [0, 0, 1, 1, 2**60]), OutOfMemoryError, "takes"),
        (lambda: RaggedTensor(VALUES, [0, 2, 5]).gather([1.0]), DTypeError, "rows is float64"),
        (lambda: RaggedTensor(VALUES, [0, 2, 5]).to_dense(0, (2.5, 3)), DTypeError, "shape is 2.5"),
        (lambda: RaggedTensor.from_arrow([[1]]), InvalidArgumentError, "array is a list"),
        (lambda: RaggedTensor.from_polars(None), InvalidArgumentError, "array is a NoneType"),
        (lambda: RaggedTensor.from_tensorflow(VALUES), InvalidArgumentError, "tensor is a ndarray"),
        (lambda: RaggedTensor.from_torch(VALUES), InvalidArgumentError, "not nested"),
        (lambda: rowgrad.row_splits_to_segment_ids([0, 2**62]), OutOfMemoryError, "takes"),
        (lambda: rowgrad.segment_ids_to_row_splits([2**62]), OutOfMemoryError, "takes"),
    ],
)
def test_what_is_wrong_is_named(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (None, "rows is None"),
        ("abc", "rows is 'abc'"),
        ({"a": [1]}, "rows is {'a'"),
        ([[1], 2], r"rows\[1\] is 2"),
        ([None, [1]], r"rows\[0\] is None"),
        ([[[1]], [2]], "item 1 of level 2 of rows is 2"),
        ([[None], [1]], "NoneType"),
        ([[2**70]], "int"),
    ],
)
def test_lists_that_are_no_rows(rows: Any, text: str) -> None:
    with pytest.raises((InvalidArgumentError, DTypeError), match=text):
        RaggedTensor.from_list(rows)


def test_lists_are_not_rounded() -> None:
    with pytest.raises(DTypeError, match="float64, which int32 cannot hold"):
        RaggedTensor.from_list([[1.5]], dtype="int32")
    with pytest.raises(InvalidArgumentError, match="-1 out of bounds for uint8"):
        RaggedTensor.from_list([[-1]], dtype="uint8")


def test_lists_of_any_iterable_and_of_arrays() -> None:
    expected = RaggedTensor([1, 2, 3], [0, 1, 3])
    assert RaggedTensor.from_list(iter([[1], [2, 3]])) == expected
    assert RaggedTensor.from_list([np.array([1]), np.array([2, 3])]) == expected
    assert RaggedTensor.from_list([["a"], []]).to_list() == [["a"], []]


def test_rows_of_ids_may_be_empty_anywhere() -> None:
    splits = rowgrad.segment_ids_to_row_splits([2, 2, 5], 8)
    assert splits.tolist() == [0, 0, 0, 2, 2, 2, 3, 3, 3]
    assert rowgrad.segment_ids_to_row_splits([], 2).tolist() == [0, 0, 0]
    assert rowgrad.segment_ids_to_row_splits([]).tolist() == [0]


def test_columns_of_arrow_of_all_kinds() -> None:
    pa = framework("pyarrow")
    rows = [[1, 2], [], [3, 4]]
    shown_twice = pa.ListViewArray.from_arrays([2, 0, 0], [2, 2, 0], pa.array([1, 2, 3, 4]))
    assert RaggedTensor.from_arrow(shown_twice).to_list() == [[3, 4], [1, 2], []]
    fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
    assert RaggedTensor.from_arrow(fixed).to_list() == [[1, 2], [3, 4]]
    decoded = pa.ListArray.from_arrays(pa.array([0, 2, 2, 4]), pa.array([1, 2, 3, 4]).dictionary_encode())
    assert RaggedTensor.from_arrow(decoded).to_list() == rows
    with pytest.raises(InvalidArgumentError, match="column of int64, which has no rows"):
        RaggedTensor.from_arrow(pa.array([1, 2]))
    with pytest.raises(DTypeError, match="struct"):
        RaggedTensor.from_arrow(pa.array([[{"a": 1}]]))
    with pytest.raises(InvalidArgumentError, match="array is a Table"):
        RaggedTensor.from_arrow(pa.table({"a": rows}))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_jagged_tensors_with_gaps_are_refused() -> None:
    torch = framework("torch")
    offsets, lengths = torch.tensor([0, 3, 5]), torch.tensor([1, 2])
    gaps = torch.nested.nested_tensor_from_jagged(torch.from_numpy(VALUES), offsets, lengths)
    with pytest.raises(InvalidArgumentError, match="gaps"):
        RaggedTensor.from_torch(gaps)
    with pytest.raises(InvalidArgumentError, match="strided layout"):
        RaggedTensor.from_torch(torch.nested.nested_tensor([torch.ones(2)], layout=torch.strided))
    whole = torch.nested.nested_tensor_from_jagged(torch.from_numpy(VALUES), torch.tensor([0, 2, 5]))
    assert RaggedTensor.from_torch(whole).to_list() == ROWS
