"""The work is what the benchmark says it is, and its inputs are what they claim to be."""

from dataclasses import replace

import numpy as np
import pytest

from bench import data, report, work
from bench.contestants import PEERS
from bench.work import Bags, Entries, Work

TINY = Bags(50, 4, 12, 5, "zipf")


def test_the_five_shapes():
    shapes = [(s.rows, s.width, s.bags, s.ids_per_bag, s.distribution) for s in work.SHAPES]
    assert shapes == [
        (100_000, 64, 4096, 20, "zipf"),
        (1_000_000, 64, 8192, 30, "zipf"),
        (1_000_000, 16, 65536, 10, "uniform"),
        (10_000_000, 32, 8192, 50, "uniform"),
        (1_000, 128, 32768, 8, "uniform"),
    ]


@pytest.mark.parametrize("works", [work.all_work(), work.quick_work()], ids=["all", "quick"])
def test_every_piece_of_work_has_a_name_a_table_and_peers_that_exist(works):
    names = [item.name for item in works]
    assert len(set(names)) == len(names)
    assert {item.group for item in works} <= set(report.GROUPS)
    assert {rival for item in works for rival in item.rivals} <= set(PEERS)
    assert {item.operation for item in works} <= set(work.OPERATORS)


def test_the_list_is_complete():
    names = {item.name for item in work.all_work()}
    for shape in work.SHAPES:
        for operation in ("mean_grad_v2", "mean_grad", "mean", "row_update", "sum_grad"):
            assert f"{operation}/{shape.name}" in names
        for variant in ("shuffled", "bfloat16", "int32", "threads"):
            assert f"mean_grad_v2/{shape.name}/{variant}" in names
    for size in ("1k", "1M", "10M"):
        assert {f"{operation}/{size}" for operation in work.SPARSE} <= names
    assert {"mean_grad_v2/small", "mean_grad_v2/width-1", "mean_grad_v2/width-512", "mean_grad_v2/ids-10M"} <= names
    assert len(work.quick_work()) < len(names) / 3


def test_matching_takes_parts_and_wildcards():
    works = work.all_work()
    assert len(work.matching(works, "")) == len(works)
    assert [item.name for item in work.matching(works, "small")] == ["mean_grad_v2/small", "train_sgd/small"]
    assert len(work.matching(works, "width-?")) == 10
    assert len(work.matching(works, "mean*int32")) == 5
    assert work.matching(works, "nothing") == []


def test_a_batch_is_the_same_each_time_and_read_only():
    first = data.batch(TINY)
    data.batch.cache_clear()
    again = data.batch(TINY)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert not any(array.flags.writeable for array in first)
    assert (first.ids.dtype, first.bags.dtype, first.grad.dtype) == (np.int64, np.int32, np.float32)
    assert first.grad.shape == (12, 4)
    assert first.offsets.tolist() == list(range(0, 60, 5))
    assert first.bags.tolist() == sorted(first.bags.tolist())
    assert data.batch(replace(TINY, ids="int32")).ids.dtype == np.int32
    assert data.batch(replace(TINY, dtype="bfloat16")).grad.dtype.name == "bfloat16"


def test_shuffled_bags_are_the_same_pairs():
    plain, shuffled = data.batch(TINY), data.batch(replace(TINY, shuffled=True))
    pairs = [sorted(zip(b.ids.tolist(), b.bags.tolist(), strict=True)) for b in (plain, shuffled)]
    assert pairs[0] == pairs[1]
    assert not np.array_equal(plain.bags, shuffled.bags)


def test_zipf_has_a_head_and_uniform_has_none():
    zipf = data.batch(Bags(1000, 1, 10_000, 10, "zipf")).ids
    expected = 1 / np.sum(np.arange(1, 1001) ** -1.2)
    assert np.mean(zipf == 0) == pytest.approx(expected, rel=0.05)
    assert np.mean(zipf == 1) == pytest.approx(expected * 2**-1.2, rel=0.05)
    uniform = data.batch(Bags(1000, 1, 10_000, 10)).ids
    assert np.bincount(uniform, minlength=1000).max() < 200
    assert max(zipf.max(), uniform.max()) < 1000


def test_matrices_are_sorted_have_empty_rows_and_a_window():
    entries = Entries(2000)
    for matrix in (data.fillable(entries), data.sliceable(entries)):
        flat = matrix.indices @ [matrix.shape[1], 1]
        assert np.all(np.diff(flat) > 0)
        assert np.all(matrix.indices < matrix.shape)
    filled = data.filled(entries)
    assert 0.02 < filled.empty_row_indicator.mean() < 0.5
    assert 0.1 < len(data.sliced(entries).output_values) / 2000 < 0.4


def test_bytes_to_move():
    bags = Bags(10, 4, 3, 2)
    unique = len(np.unique(data.batch(bags).ids))
    pairs, gathered = 6 * (8 + 4), 6 * 16
    for operation, results in [
        ("mean_grad_v2", unique * (16 + 8)),
        ("mean_grad", unique * 16),
        ("mean", 3 * 16),
        ("row_update", unique * 32),
    ]:
        assert data.bytes_to_move(Work(operation, "", bags)) == pairs + gathered + results
    entries = Entries(100)
    window = len(data.sliced(entries).output_values)
    assert data.bytes_to_move(Work("slice_grad", "", entries)) == 100 * (16 + 4) + window * (16 + 4)
    full = len(data.filled(entries).output_values)
    assert data.bytes_to_move(Work("fill_grad", "", entries)) == 100 * (8 + 4) + full * 4
