"""`from_ragged`: ids and offsets of lists, columns, ragged and jagged tensors and CSR matrices; without copies."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import RaggedTensor, from_ragged
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError

pa = framework("pyarrow")
ROWS = [[5, 3], [], [8], [1, 1, 2]]
IDS, OFFSETS = [5, 3, 8, 1, 1, 2], [0, 2, 2, 3, 6]


def check(x: Any, ids: list[int] = IDS, offsets: list[int] = OFFSETS, dtype: Any = np.int64) -> Any:
    found = from_ragged(x)
    assert found.ids.tolist() == ids and found.offsets.tolist() == offsets
    assert found.ids.dtype == found.offsets.dtype == dtype
    return found


def shares(array: Any, other: Any) -> bool:
    return bool(np.shares_memory(np.asarray(array), np.asarray(other)))


def test_lists() -> None:
    check(ROWS)
    check(tuple(map(tuple, ROWS)))
    check([np.array(row, np.int32) for row in ROWS if row], IDS, [0, 2, 3, 6], np.int32)
    check([np.array(row, np.int64) for row in ROWS])
    check(np.array([*ROWS, None], object), IDS, [*OFFSETS, 6])
    check([], [], [0])
    check([[], []], [], [0, 0, 0])
    check([[np.uint8(3)]], [3], [0, 1])


def test_ragged_tensors_and_matrices() -> None:
    values = np.array(IDS)
    assert shares(check(RaggedTensor(values, OFFSETS)).ids, values)
    matrix = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert shares(check(matrix, list(range(6)), [0, 3, 6], np.int32).ids, matrix)
    check(np.empty((3, 0), np.int64), [], [0, 0, 0, 0])


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list], ids=["list", "large_list"])
@pytest.mark.parametrize("dtype", [pa.int32(), pa.int64()], ids=str)
def test_pyarrow(kind: Any, dtype: Any) -> None:
    array = pa.array(ROWS, kind(dtype))
    found = check(array, dtype=dtype.to_pandas_dtype())
    assert shares(found.ids, array.values.to_numpy())
    assert shares(found.offsets, array.offsets.to_numpy()) == (array.offsets.type == dtype)
    assert shares(check(pa.chunked_array([array]), dtype=dtype.to_pandas_dtype()).ids, array.values.to_numpy())
    # a slice, which begins in the middle of the values
    assert shares(check(array[1:], [8, 1, 1, 2], [0, 0, 1, 4], dtype.to_pandas_dtype()).ids, array.values.to_numpy())
    check(array[:0], [], [0], dtype.to_pandas_dtype())
    both = pa.chunked_array([array, array[2:], array[:0]])
    check(both, [*IDS, 8, 1, 1, 2], [*OFFSETS, 7, 10], dtype.to_pandas_dtype())
    check(pa.chunked_array([], kind(dtype)), [], [0], dtype.to_pandas_dtype())


@pytest.mark.parametrize("kind", ["list", "large_list", "list_view", "large_list_view"])
def test_nulls_are_empty_rows(kind: str) -> None:
    make = {
        "list": pa.list_,
        "large_list": pa.large_list,
        "list_view": pa.list_view,
        "large_list_view": pa.large_list_view,
    }
    array = pa.array([[5, 3], None, [8], None], make[kind](pa.int64()))
    check(array, [5, 3, 8], [0, 2, 2, 3, 3])
    check(array[1:], [8], [0, 0, 1, 1])
    check(pa.chunked_array([array, array]), [5, 3, 8, 5, 3, 8], [0, 2, 2, 3, 3, 5, 5, 6, 6])


def test_values_under_nulls_are_left_out() -> None:
    """Arrow lets a null row have values."""
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5]), pa.array([5, 3, 9, 9, 8]), mask=pa.array([False, True, False])
    )
    check(array, [5, 3, 8], [0, 2, 2, 3])


def test_views_out_of_order() -> None:
    array = pa.ListViewArray.from_arrays(
        pa.array([3, 0], pa.int32()), pa.array([2, 2], pa.int32()), pa.array([1, 2, 3, 4, 5])
    )
    check(array, [4, 5, 1, 2], [0, 2, 4])


def test_fixed_size_lists() -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    check(array, [1, 2, 3, 4], [0, 2, 2, 4])
    check(array[2:], [3, 4], [0, 2])


def test_dictionary_encoding() -> None:
    """Of rows, and of ids."""
    rows = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), pa.array([[5, 3], [8]]))
    check(rows, [8, 5, 3, 8], [0, 1, 3, 3, 4])
    check(pa.chunked_array([rows, rows]), [8, 5, 3, 8] * 2, [0, 1, 3, 3, 4, 5, 7, 7, 8])
    ids = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([70, 80, 70]).dictionary_encode())
    check(ids, [70, 80, 70], [0, 2, 3])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16", "uint32", "uint64"])
def test_other_integers_become_int64(dtype: str) -> None:
    check(pa.array(ROWS, pa.list_(getattr(pa, dtype)())))
    check([np.array(row, dtype) for row in ROWS if row], IDS, [0, 2, 3, 6])


def test_polars() -> None:
    polars = framework("polars")
    series = polars.Series(ROWS)
    found = check(series)
    assert shares(found.ids, series.to_arrow().values.to_numpy())
    check(polars.Series([[5, 3], None, [8]]), [5, 3, 8], [0, 2, 2, 3])
    check(polars.concat([series, series]), IDS * 2, [*OFFSETS, 8, 8, 9, 12])
    check(polars.Series([[1, 2], [3, 4]], dtype=polars.Array(polars.Int32, 2)), [1, 2, 3, 4], [0, 2, 4], np.int32)


def test_pandas() -> None:
    pandas = framework("pandas")
    check(pandas.Series(ROWS))
    check(pandas.Series([[5, 3], None, [8]]), [5, 3, 8], [0, 2, 2, 3])
    check(pandas.DataFrame({"ids": ROWS})["ids"])
    array = pa.array(ROWS)
    found = check(pandas.Series(array, dtype=pandas.ArrowDtype(array.type)))
    assert shares(found.ids, array.values.to_numpy())
    check(pandas.Series(pa.array([[5, 3], None, [8]]), dtype=pandas.ArrowDtype(array.type)), [5, 3, 8], [0, 2, 2, 3])


def test_scipy() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_array((np.ones(4), np.array([1, 4, 0, 2], np.int32), np.array([0, 2, 2, 4], np.int32)), (3, 5))
    found = check(matrix, [1, 4, 0, 2], [0, 2, 2, 4], np.int32)
    assert shares(found.ids, matrix.indices) and shares(found.offsets, matrix.indptr)
    check(sparse.csr_matrix(matrix), [1, 4, 0, 2], [0, 2, 2, 4], np.int32)
    with pytest.raises(InvalidArgumentError, match=r"tocsr"):
        from_ragged(matrix.tocoo())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch() -> None:
    torch = framework("torch")
    jagged = torch.nested.nested_tensor([torch.tensor(row, dtype=torch.int64) for row in ROWS], layout=torch.jagged)
    found = from_ragged(jagged)
    assert found.ids.tolist() == IDS and found.offsets.tolist() == OFFSETS
    assert found.ids.data_ptr() == jagged.values().data_ptr() and found.offsets.dtype is torch.int64
    small = from_ragged(torch.nested.nested_tensor([torch.tensor([1], dtype=torch.int32)], layout=torch.jagged))
    assert small.ids.dtype is small.offsets.dtype is torch.int32
    matrix = from_ragged(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8))
    assert matrix.ids.tolist() == [1, 2, 3, 4] and matrix.ids.dtype is matrix.offsets.dtype is torch.int64
    for wrong, text in (
        (torch.nested.nested_tensor([torch.tensor([1])], layout=torch.strided), "layout=torch.jagged"),
        (torch.nested.nested_tensor([torch.tensor([1.0])], layout=torch.jagged), "whole numbers"),
        (torch.nested.nested_tensor([torch.ones(1, 2, dtype=torch.int64)], layout=torch.jagged), "further dimensions"),
        (torch.tensor([1]), "no rows"),
    ):
        with pytest.raises((InvalidArgumentError, DTypeError), match=text):
            from_ragged(wrong)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ([1, 2], r"x\[0\] is 1"),
        ([[1], [[2]]], r"x\[1\]"),
        ([[1, None]], r"x\[0\]"),
        ([[1.5]], "whole numbers"),
        ([["a"]], "whole numbers"),
        ([[True]], "whole numbers"),
        (RaggedTensor.from_list([[[1]]]), "rows inside rows"),
        (pa.array([1, 2]), "no rows"),
        (pa.array([[[1]]]), "rows inside rows"),
        (pa.array([[1, None]]), r"1 ids are null, the first at 1"),
        (pa.array([["a"]]), "string_to_hash_bucket_fast"),
        (pa.array([[0.5]]), "whole numbers"),
        (np.array([1, 2]), "no rows"),
        (5, "is a int"),
        ({"a": [1]}, "is a dict"),
        (None, "is a NoneType"),
    ],
    ids=lambda value: repr(getattr(value, "tolist", lambda: value)()),  # some objects are named by where they are
)
def test_errors(x: Any, text: str) -> None:
    with pytest.raises((InvalidArgumentError, DTypeError), match=text):
        from_ragged(x)


def test_ids_that_int64_does_not_hold() -> None:
    with pytest.raises(OutOfRangeError, match="more than int64 holds"):
        from_ragged(pa.array([[2**63]], pa.list_(pa.uint64())))


def test_plain_functions_point_here() -> None:
    polars, pandas = framework("polars"), framework("pandas")
    table = np.ones((9, 2))
    for column in (ROWS, pa.array(ROWS), pa.chunked_array([pa.array(ROWS)]), polars.Series(ROWS), pandas.Series(ROWS)):
        with pytest.raises(InvalidArgumentError, match=r"indices: .*rowgrad\.from_ragged"):
            rowgrad.sparse_segment_sum(table, column, [0])
    with pytest.raises(InvalidArgumentError, match=r"indices: .*1 nulls.*fill_null"):
        rowgrad.sparse_segment_sum(table, pa.array([1, None]), [0, 0])
    with pytest.raises(rowgrad.RowgradError, match=r"indices"):
        rowgrad.sparse_segment_sum(table, pa.array(["a"]), [0])


def test_what_comes_out_goes_into_a_look_up() -> None:
    table = np.arange(18.0).reshape(9, 2)
    ids, offsets = from_ragged(pa.array(ROWS))
    segments = rowgrad.row_splits_to_segment_ids(offsets)
    pooled = rowgrad.sparse_segment_sum(table, ids, segments, len(ROWS))
    np.testing.assert_array_equal(pooled, [table[row].sum(0) for row in ROWS])


def test_arrow_offsets_that_lead_out_of_the_values() -> None:
    pa = framework("pyarrow")
    values = pa.array([1, 2, 3])
    for offsets in ([0, 5, 3], [0, -2, 3], [1, 0, 3]):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
        column = pa.Array.from_buffers(pa.list_(pa.int64()), 2, buffers, children=[values])
        with pytest.raises(InvalidArgumentError, match="x is damaged"):
            from_ragged(column)
