"""Sparse tensors of so many entries that threads share them: against NumPy, whatever the number of threads."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad import raw_ops
from rowgrad._runtime.dtypes import Array

ROWS, COLUMNS, ENTRIES = 20_000, 100, 60_000


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = rowgrad.get_num_threads()
    yield
    rowgrad.set_num_threads(before)


def matrix(seed: int, rows: int = ROWS) -> tuple[Array, Array, Array]:
    """A matrix in order; all entries are in the first half of the rows."""
    random = np.random.default_rng(seed)
    places = np.sort(random.choice(rows // 2 * COLUMNS, ENTRIES, replace=False))
    values = random.standard_normal(ENTRIES).astype(np.float32)
    return np.stack([places // COLUMNS, places % COLUMNS], axis=1), values, np.array([rows, COLUMNS])


def for_all_threads(call: Callable[[], Any]) -> list[Array]:
    """The results, which are the same to the bit for all numbers of threads."""
    found = []
    for threads in (1, 2, 8):
        rowgrad.set_num_threads(threads)
        result = call()
        found.append([np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert one.tobytes() == same.tobytes() and one.shape == same.shape
    return found[0]


def flat(indices: Array) -> Array:
    return np.asarray(indices[:, 0] * COLUMNS + indices[:, 1])


@pytest.mark.parametrize("thresh", [0.0, 1.5])
def test_a_sum_and_its_gradient(thresh: float) -> None:
    a, b = matrix(1), matrix(2)
    indices, values, _ = for_all_threads(lambda: raw_ops.SparseAdd(*a, *b, np.float32(thresh)))
    union, counts = np.unique(np.concatenate([flat(a[0]), flat(b[0])]), return_counts=True)
    total = np.zeros(union.size, np.float32)
    for part in (a, b):
        total[np.searchsorted(union, flat(part[0]))] += part[1]
    stays = (counts == 1) | (np.abs(total) >= thresh)
    assert stays.all() == (thresh == 0)
    np.testing.assert_array_equal(flat(indices), union[stays])
    np.testing.assert_array_equal(values, total[stays])
    grad = np.arange(1, values.size + 1, dtype=np.float32)
    grads = for_all_threads(lambda: raw_ops.SparseAddGrad(grad, a[0], b[0], indices))
    flowing = np.zeros(ROWS * COLUMNS, np.float32)
    flowing[flat(indices)] = grad
    for part, found in zip((a, b), grads, strict=True):
        np.testing.assert_array_equal(found, flowing[flat(part[0])])


@pytest.mark.parametrize("segments", [100, 50_000, 200_000])
@pytest.mark.parametrize("sort", [False, True])
def test_means_count_the_entries_of_each_segment(segments: int, sort: bool) -> None:
    # Threads count apart where that takes little memory, and together elsewhere.
    random = np.random.default_rng(segments)
    ids, indices = random.integers(0, segments, ENTRIES), random.integers(0, ROWS, ENTRIES)
    ids = np.sort(ids) if sort else ids
    grad = random.standard_normal((segments, 4)).astype(np.float32)
    output, rows = for_all_threads(lambda: rowgrad.sparse_segment_mean_grad_v2(grad, indices, ids, ROWS))
    scaled = grad * (1 / np.maximum(np.bincount(ids, minlength=segments), 1)).astype(np.float32)[:, None]
    dense = np.zeros((ROWS, 4), np.float32)
    np.add.at(dense, indices, scaled[ids])  # in input order, as ours
    np.testing.assert_array_equal(output, dense[rows])


def test_a_sum_of_entries_that_fall() -> None:
    """Chunks cannot be merged by themselves then; the result is that of one thread."""
    a, b = matrix(1), matrix(2)
    fallen = a[0].copy()
    fallen[30_000:] = a[0][30_000:][::-1]
    for_all_threads(lambda: raw_ops.SparseAdd(fallen, *a[1:], *b, np.float32(0)))


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int8"])
def test_a_sum_with_a_dense_tensor(order: str, dtype: str) -> None:
    """The result is large enough for non-temporal stores."""
    indices, values, shape = matrix(3)
    dense = np.random.default_rng(4).integers(-9, 9, (ROWS, COLUMNS)).astype(dtype)
    values = (values * 4).astype(dtype)
    if order == "shuffled":
        indices = np.random.default_rng(5).permutation(indices)
    (found,) = for_all_threads(lambda: raw_ops.SparseTensorDenseAdd(indices, values, shape, dense))
    dense[indices[:, 0], indices[:, 1]] += values
    np.testing.assert_array_equal(found, dense)


def test_an_index_outside_of_a_dense_tensor() -> None:
    indices, values, shape = matrix(3)
    indices[-1, 0] = ROWS
    with pytest.raises(rowgrad.OutOfRangeError, match=r"a_indices\[59999, 0\] is 20000"):
        raw_ops.SparseTensorDenseAdd(indices, values, shape, np.zeros((ROWS, COLUMNS), np.float32))


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
@pytest.mark.parametrize("defaults", [900, 200_000])
def test_the_gradient_of_a_fill(defaults: int, order: str) -> None:
    """Few and many defaults are summed in different ways, and maps in order in another than those that are not."""
    random = np.random.default_rng(10)
    size = 300_000
    places = np.sort(random.permutation(size + defaults)[:size])
    if order == "shuffled":
        places = random.permutation(places)
    grad = random.standard_normal(size + defaults).astype(np.float32)
    values, default = for_all_threads(lambda: rowgrad.sparse_fill_empty_rows_grad(places, grad))
    np.testing.assert_array_equal(values, grad[places])
    left = np.setdiff1d(np.arange(grad.size), places)
    assert default == np.cumsum(grad[left])[-1]
    places[[size // 2, size - 1]] = grad.size, -1
    for threads in (1, 2, 8):
        rowgrad.set_num_threads(threads)
        with pytest.raises(rowgrad.OutOfRangeError, match=rf"reverse_index_map\[{size // 2}\] is {grad.size}"):
            rowgrad.sparse_fill_empty_rows_grad(places, grad)


@pytest.mark.parametrize("bins", [7, 100, 300])
@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_counts(bins: int, order: str) -> None:
    indices, weights, shape = matrix(6)
    values = np.random.default_rng(7).integers(0, 120, ENTRIES)
    if order == "shuffled":
        indices = np.random.default_rng(5).permutation(indices)
    (found,) = for_all_threads(lambda: raw_ops.SparseBincount(indices, values, shape, bins, weights))
    expected, kept = np.zeros((ROWS, bins), np.float32), values < bins
    np.add.at(expected, (indices[kept, 0], values[kept]), weights[kept])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [1, 16, 40])
def test_products(width: int) -> None:
    """Rows behind the last entry are cleared."""
    indices, values, shape = matrix(8)
    b = np.random.default_rng(9).standard_normal((COLUMNS, width)).astype(np.float32)
    (found,) = for_all_threads(lambda: raw_ops.SparseTensorDenseMatMul(indices, values, shape, b))
    expected = np.zeros((ROWS, width), np.float32)
    np.add.at(expected, indices[:, 0], values[:, None] * b[indices[:, 1]])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("separator", ["_X_", b"_X_", "\u2013"])
def test_crosses_as_text(separator: Any) -> None:
    rows = 5000
    numbers = np.random.default_rng(1).integers(-(10**9), 10**9, (2, rows, 1))
    found = raw_ops.SparseCrossV2([], [], [], list(numbers), np.array(separator, object)).output_values
    if isinstance(separator, bytes):
        assert [*found] == [b"%d_X_%d" % (one, other) for one, other in numbers[:, :, 0].T]
        assert {*map(type, found)} == {bytes}
    else:
        assert found.tolist() == [f"{one}{separator}{other}" for one, other in numbers[:, :, 0].T]


def test_rows_as_messages_are_those_of_their_tensors() -> None:
    indices, values, _ = matrix(10)
    shape = np.array([300, COLUMNS])
    indices, values = indices[indices[:, 0] < 200], values[indices[:, 0] < 200]
    found = raw_ops.SerializeManySparse(indices, values, shape)
    for row in (0, 1, 57, 199, 299):
        here = indices[:, 0] == row
        one = raw_ops.SerializeSparse(np.ascontiguousarray(indices[here, 1:]), values[here], shape[1:])
        assert found[row].tolist() == one.tolist()


@pytest.mark.parametrize(("name", "given", "attributes"), [
    ("DenseCountSparseOutput", ([[2**63 - 1, 1]], np.empty(0, np.int64)), {"binary_output": False}),
    ("RaggedCountSparseOutput", ([0, 1], np.array([2**63 - 1]), np.empty(0, np.int64)), {"binary_output": False}),
    ("SparseTensorDenseMatMul", ([[0, 0]], [1.0], np.empty(0, np.int64), [[1.0]]), {}),
    ("UnsortedSegmentJoin", (["a"], [0], 2**63 - 1), {}),
    ("SparseSplitOffset", (0, [4]), {"num_split": 2, "index": -(2**63)}),
])  # fmt: skip
def test_sizes_that_do_not_fit(name: str, given: Any, attributes: dict[str, Any]) -> None:
    with pytest.raises(rowgrad.RowgradError):
        getattr(raw_ops, name)(*given, **attributes)
