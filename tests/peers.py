"""The work that peers are tried on in the tests, and the comparison of their answers with ours."""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from bench import contestants, run, work
from bench.work import Bags, Entries, Work

TINY = Bags(300, 8, 64, 5, "zipf")
WORKS = [
    *(Work(operation, operation, TINY, rivals) for operation, rivals in work.FORWARD_AND_BACK.items()),
    Work("mean_grad_v2", "shuffled", replace(TINY, shuffled=True), ("tensorflow",)),
    Work("mean_grad_v2", "bfloat16", replace(TINY, dtype="bfloat16"), ("tensorflow",)),
    Work("mean_grad_v2", "int32", replace(TINY, ids="int32"), ("tensorflow",)),
    *(Work(operation, operation, Entries(500), ("tensorflow",)) for operation in work.SPARSE),
]


def cases(wanted: Callable[[str], bool]) -> list[Any]:
    """Each of these peers with each work that it can do."""
    return [
        pytest.param(peer, item, id=f"{peer}-{item.name}") for item in WORKS for peer in item.rivals if wanted(peer)
    ]


def check(peer: str, item: Work) -> None:
    """The peer gives our answer; where it is missing, the test is skipped, but in CI it fails."""
    if contestants.missing([peer]) and not os.environ.get("CI"):
        pytest.skip(f"{peer} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run.run_one(item, _loaded(peer), rounds=1, pause=0)
    assert "problem" not in result["timings"][peer]
    assert set(result["timings"]) == {"rowgrad", peer}
    assert result["ratios"][peer] > 0


@cache
def _loaded(peer: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer's import is not ours to judge
        return contestants.load([peer])
