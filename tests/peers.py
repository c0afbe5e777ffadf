"""Cases of every group that are small enough for the tests, and the comparison of a peer's answers with ours."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import optional
from bench import run
from bench.case import OURS, PEERS, Case, peer_of
from bench.groups import dlrm, layer, operators, recommender, segments

MODEL = recommender.Model(7, (4, 8), 1, 3, batches=2, tables=(50, 3, 200))


def tiny() -> Iterator[Case]:
    """Each kind of work once."""
    models = {
        "plain": MODEL,
        "int32": replace(MODEL, ids="int32"),
        "mean": replace(MODEL, pooling="mean"),
        "weighted": replace(MODEL, weighted=True),
        "uniform": replace(MODEL, distribution="uniform"),
    }
    for name, model in models.items():
        yield from recommender._of_model(model, "tiny", recommender.AHEAD, 2, {}, key=name)
    entries = {name: partial(dlrm._entry, name, replace(MODEL, widths=(dlrm.WIDTH,))) for name in DLRM}
    yield Case(dlrm.NAME, "tiny", "tiny", "tiny", "step", entries, needs=("torch",))
    shape = layer.Shape(4, 3, 8, 50)
    yield from (layer._case(shape, work, "tiny", "SGD") for work in layer.MOST_US)
    yield from (layer._case(shape, "fused step", "tiny", optimizer) for optimizer in layer.OTHERS)
    yield from segments.of_shape(shape)
    for operator in (*operators.SEGMENT, operators.READ_ONLY):
        yield operators._segment_case(operator, 64, 8)
    for operator in (*operators.SPARSE, operators.NO_EMPTY_ROW):
        yield operators._sparse_case(operator, 500)
    yield from operators.of_large(operators.Shape(300, 8, 64, 5, "zipf"))


DLRM = (OURS, "torch", "fbgemm", dlrm.ALONE)
CASES = list(tiny())


def cases(*wanted: str) -> list[Any]:
    """The cases in which one of these peers takes part; without any, those of ours alone."""
    return [
        pytest.param(case, id=case.name)
        for case in CASES
        if (set(wanted) & set(case.entries) if wanted else not any(map(peer_of, case.entries)))
    ]


def check(case: Case, *peers: str) -> dict[str, Any]:
    """Each of `peers` gives our answer; where one is missing, the test is skipped, but in CI it fails."""
    peers = tuple(peer for peer in peers if any(peer_of(name) == peer for name in case.entries))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer's import is not ours to judge
        for peer in (*peers, *case.needs):
            optional.framework(PEERS[peer].module)
        result = run.run_one(case, peers, rounds=1, turn=0)
    problems = {name: timing["problem"] for name, timing in result["timings"].items() if "problem" in timing}
    assert problems == {}
    assert set(result["timings"]) == set(case.contestants(peers))
    assert min(result["ratios"].values(), default=1) > 0
    return result
