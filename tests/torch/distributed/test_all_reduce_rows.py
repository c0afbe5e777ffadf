"""Compact gradients summed over ranks, against the dense sum."""

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402

from rowgrad import InvalidArgumentError, RowGradient  # noqa: E402
from rowgrad._runtime import dtypes  # noqa: E402
from rowgrad.torch.distributed import PeerError, Traffic, all_reduce_rows  # noqa: E402

ROWS, WIDTH = 37, 5


def gradient(rank, dtype, ids_dtype, seed=0):
    """Whole numbers, so that sums are exact in each order; rank 1 has nothing, rank 2 only one row."""
    random = np.random.default_rng([seed, rank])
    size = [20, 0, 1, 30][rank]
    ids = np.sort(random.choice(ROWS, size, replace=False)).astype(ids_dtype)
    return RowGradient(random.integers(-8, 8, (size, WIDTH)).astype(dtypes.NUMPY[dtype]), ids)


def summed(group, dtype, ids_dtype, as_tensors):
    mine = gradient(dist.get_rank(group), dtype, ids_dtype)
    if as_tensors:
        output = torch.from_numpy(mine.output.astype(np.float32)).to(getattr(torch, dtype))
        mine = RowGradient(output, torch.from_numpy(mine.sorted_unique_indices))
    traffic = Traffic()
    found = all_reduce_rows(mine, ROWS, group, traffic=traffic)
    again = all_reduce_rows(mine, ROWS, group)
    assert type(found.output) is type(mine.output)
    assert found.output.dtype == mine.output.dtype
    assert found.sorted_unique_indices.dtype == mine.sorted_unique_indices.dtype
    if as_tensors:
        assert torch.equal(found.output, again.output)
        found = RowGradient(found.output.double().numpy(), found.sorted_unique_indices.numpy())
    return found.output.astype(np.float64), found.sorted_unique_indices, traffic.total


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("dtype", "ids_dtype", "as_tensors"),
    [
        ("float32", "int64", True),
        ("float64", "int32", False),
        ("bfloat16", "int32", True),
        ("float16", "int64", False),
    ],
)
def test_is_the_dense_sum(ranks, size, dtype, ids_dtype, as_tensors):
    dense, known = np.zeros((ROWS, WIDTH)), set()
    for rank in range(size):
        mine = gradient(rank, dtype, ids_dtype)
        dense[mine.sorted_unique_indices] += mine.output.astype(np.float64)
        known |= set(mine.sorted_unique_indices.tolist())
    for output, ids, sent in ranks.run(size, summed, dtype, ids_dtype, as_tensors):
        assert ids.tolist() == sorted(known)
        assert np.array_equal(output, dense[ids])
        assert (sent > 0) == (size > 1)


def nothing(group):
    found = all_reduce_rows(RowGradient(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)), 5, group)
    return tuple(found.output.shape), tuple(found.sorted_unique_indices.shape)


def test_nothing_anywhere(ranks):
    assert ranks.run(3, nothing) == [((0, 3), (0,))] * 3


def compact_on_the_wire(group):
    """Two rows of a table of a million: what travels must not know the size of the table."""
    traffic = Traffic()
    rank = dist.get_rank(group)
    ids = torch.tensor([rank, 999_999 - rank])
    all_reduce_rows(RowGradient(torch.ones(2, 4), ids), 1_000_000, group, traffic=traffic)
    return traffic.total


def test_never_dense_on_the_wire(ranks):
    assert all(sent < 2_000 for sent in ranks.run(4, compact_on_the_wire))


def refused(group, wrong_rank, ids, width):
    rank = dist.get_rank(group)
    right = RowGradient(np.ones((2, 3), np.float32), np.array([1, 4]))
    mine = RowGradient(np.ones((len(ids), width), np.float32), np.array(ids)) if rank == wrong_rank else right
    try:
        all_reduce_rows(mine, 5, group)
    except (InvalidArgumentError, PeerError) as error:
        found = type(error).__name__, error.code, str(error)
    else:
        found = None
    whole = all_reduce_rows(right, 5, group)  # and the group still works
    assert whole.output[0, 0] == 3
    return found


@pytest.mark.parametrize(
    ("ids", "width", "own", "others"),
    [
        ([1, 5], 3, ("OutOfRangeError", "index-out-of-range"), ("PeerError", "peer-refused")),
        ([-1, 2], 3, ("OutOfRangeError", "index-out-of-range"), ("PeerError", "peer-refused")),
        ([2, 2], 3, ("InvalidArgumentError", "unsorted-rows"), ("PeerError", "peer-refused")),
        ([1, 2], 4, ("PeerError", "ranks-differ"), ("PeerError", "ranks-differ")),
    ],
)
def test_an_error_on_one_rank_is_one_on_all(ranks, ids, width, own, others):
    found = ranks.run(3, refused, 1, ids, width)
    assert [kind[:2] for kind in found] == [others, own, others]
    assert all("1" in kind[2] for kind in found)
