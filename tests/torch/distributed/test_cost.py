"""The cost model tells the bytes that travel, on two, three and four ranks, and they do not grow with the table."""

from collections.abc import Iterator

import numpy as np
import pytest

from optional import framework

torch = framework("torch")
import torch.distributed as dist  # noqa: E402
from ranks import Ranks  # noqa: E402

from rowgrad import InvalidArgumentError, optim  # noqa: E402
from rowgrad.torch.distributed import ShardedEmbeddingBag, cost  # noqa: E402

ROWS, WIDTH, BAGS, IDS = 200_000, 16, 500, 8
CASES = {
    "mean": {},
    "no gradient": {"train": False},
    "weights": {"combiner": "sum", "weighted": True},
    "weights that learn": {"combiner": "sqrtn", "weighted": True, "weights_learn": True},
    "exact": {"exact": True},
    "max": {"combiner": "max"},
    "float64": {"dtype": "float64", "combiner": "sum"},
    "bfloat16": {"dtype": "bfloat16"},
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Processes that run functions as the ranks of a group."""
    found = Ranks()
    yield found
    found.end()


def sent(group, case, rows, bags):
    """What this rank sends in one step, and how many different ids it has."""
    case = {"combiner": "mean", "exact": False, "dtype": "float32", **case}
    layer = ShardedEmbeddingBag(
        rows, WIDTH, combiner=case["combiner"], exact=case["exact"], sharding="hash", group=group,
        dtype=getattr(torch, case["dtype"]), fused_optimizer=optim.RowWiseAdagrad(0.1),
    )  # fmt: skip
    layer.traffic.reset()  # layers compare their settings when they are made
    ids = np.random.default_rng(dist.get_rank(group)).integers(0, rows, (bags, IDS))
    weights = torch.ones(bags, IDS, dtype=layer.weight.dtype) if case.get("weighted") else None
    if case.get("weights_learn"):
        weights.requires_grad_()
    with torch.set_grad_enabled(case.get("train", True)):
        output = layer(torch.from_numpy(ids), per_sample_weights=weights)
    if case.get("train", True):
        output.sum().backward()
    return dict(layer.traffic.sent), len(np.unique(ids)), layer.traffic.exchanges.total()


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_the_model_tells_what_is_sent(ranks, size, name):
    found = ranks.run(size, sent, CASES[name], ROWS, BAGS)
    unique = float(np.mean([count for _, count, _ in found]))
    batch = cost.Batch(BAGS, IDS, WIDTH, unique=unique, **CASES[name])
    expected = cost.wire_bytes(size, batch)
    for purpose, number in expected.items():
        measured = np.mean([counted.get(purpose, 0) for counted, _, _ in found])
        assert measured == pytest.approx(number, rel=0.03), purpose
    total = np.mean([sum(counted.values()) for counted, _, _ in found])
    assert total == pytest.approx(sum(expected.values()), rel=0.02)
    assert total < ROWS * WIDTH * cost.SIZES[batch.dtype] / 10  # never the dense table
    assert {exchanges for _, _, exchanges in found} == {cost.exchanges(batch)}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", ["mean", "no gradient", "weights that learn", "exact", "bfloat16"])
def test_rows_of_small_tables_travel_once(ranks, size, name):
    """Every bag touches nearly every rank, but there are only 300 rows: sums would be more."""
    found = ranks.run(size, sent, CASES[name], 300, BAGS)
    expected = cost.wire_bytes(size, cost.Batch(BAGS, IDS, WIDTH, unique=300, rows=300, **CASES[name]))
    assert np.mean([sum(counted.values()) for counted, _, _ in found]) == pytest.approx(
        sum(expected.values()), rel=0.03
    )
    sums = cost.wire_bytes(size, cost.Batch(BAGS, IDS, WIDTH, unique=300, **CASES[name]))
    assert (sum(expected.values()) < 0.6 * sum(sums.values())) == (name not in ("exact", "bfloat16"))


@pytest.mark.parametrize("size", [2, 4])
def test_the_size_of_the_table_does_not_matter(ranks, size):
    few, many = (
        np.mean([sum(counted.values()) for counted, _, _ in ranks.run(size, sent, {}, rows, BAGS)])
        for rows in (20_000, 500_000)
    )
    assert few == pytest.approx(many, rel=0.02)


def test_time_grows_with_what_it_is_made_of():
    batch = cost.Batch(bags=1000, ids_per_bag=20, width=32)
    here = cost.Machine(kernel=1e-7, bandwidth=1e9, latency=1e-4, message=1e-5)
    assert cost.step_seconds(1, batch, here) == pytest.approx(1000 * 20 * 1e-7)
    times = [cost.step_seconds(ranks, batch, here) for ranks in (1, 2, 8, 64, 1024)]
    assert times == sorted(times)
    faster = cost.Machine(kernel=1e-7, bandwidth=2e9, latency=1e-4, message=1e-5)
    gained = times[1] - cost.step_seconds(2, batch, faster)
    assert gained == pytest.approx(sum(cost.wire_bytes(2, batch).values()) / 2e9)
    shared = cost.Machine(kernel=1e-7, cores=2)
    assert cost.step_seconds(4, batch, shared) == pytest.approx(2 * cost.step_seconds(2, batch, shared))
    assert cost.packet_bytes(2, batch) > sum(cost.wire_bytes(2, batch).values())


def test_what_it_refuses():
    with pytest.raises(InvalidArgumentError, match="dtype is 'int8'"):
        cost.Batch(1, 1, 1, dtype="int8")
    with pytest.raises(InvalidArgumentError, match="ranks is 0"):
        cost.wire_bytes(0, cost.Batch(1, 1, 1))
