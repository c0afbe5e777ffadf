"""Training with a table spread over ranks is training in one process."""

from functools import cache

import numpy as np
import pytest

from optional import framework

framework("torch")
from training import PADDING, train, train_here  # noqa: E402

POOLS = [(combiner, False) for combiner in ("sum", "mean", "sqrtn", "max")]
POOLS += [(combiner, True) for combiner in ("sum", "mean", "sqrtn")]
OPTIMIZERS = [None, "SGD", "Adagrad", "RowWiseAdagrad", "Adam"]


@cache
def alone(combiner, weighted, optimizer, dtype="float32", padding=None):
    """The same training in one process."""
    case = {"combiner": combiner, "weighted": weighted, "optimizer": optimizer, "dtype": dtype, "padding": padding}
    return train(None, case)


def one_process(case):
    return alone(
        case["combiner"], case["weighted"], case["optimizer"], case.get("dtype", "float32"), case.get("padding")
    )


def cases(size, exact):
    """Every way to pool; optimizers and shardings take turns, and meet all of them over the numbers of ranks."""
    return [
        {"combiner": combiner, "weighted": weighted, "exact": exact, "sharding": ("range", "hash")[(i + size) % 2],
         "optimizer": OPTIMIZERS[(2 * i + size + exact) % 5], "overlap": (i + size) % 3 == 0,
         "padding": PADDING if i == 5 else None, "sparse": i != 4}
        for i, (combiner, weighted) in enumerate(POOLS)
    ]  # fmt: skip


def equal(one, several, case, **tolerance):
    """Outputs and gradients of weights of all ranks in their order are those of one process; so are table and state."""
    compare = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
    for rank in several:
        compare(rank["table"], one["table"], err_msg=f"table of {case}", **tolerance)
        assert rank["state"].keys() == one["state"].keys()
        for name, array in rank["state"].items():
            compare(array, one["state"][name], err_msg=f"{name} of {case}", **tolerance)
    for what in ("outputs", "gradients"):
        for step, expected in enumerate(one[what]):
            found = np.concatenate([rank[what][step] for rank in several])
            compare(found, expected, err_msg=f"{what} of step {step} of {case}", **tolerance)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_exact_has_the_bits_of_one_process(ranks, size):
    chosen = cases(size, True)
    expected = [one_process(case) for case in chosen]
    found = ranks.run(size, train_here, chosen)
    for case, one, several in zip(chosen, expected, zip(*found, strict=True), strict=True):
        equal(one, several, case)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_default_is_one_process_to_rounding_and_the_same_bits_again(ranks, size):
    chosen = cases(size, False)
    expected = [one_process(case) for case in chosen]
    found = ranks.run(size, train_here, chosen)
    for case, one, several in zip(chosen, expected, zip(*found, strict=True), strict=True):
        equal(one, several, case, rtol=2e-4, atol=2e-5)
    again = ranks.run(size, train_here, chosen[:2])
    for case, several, before in zip(chosen[:2], zip(*again, strict=True), zip(*found, strict=True), strict=False):
        for rank, first in zip(several, before, strict=True):
            equal(first, [rank], case)


def test_every_fused_optimizer_has_the_bits_of_one_process(ranks):
    chosen = [{"combiner": "mean", "weighted": False, "exact": True, "sharding": "hash", "optimizer": optimizer}
              for optimizer in OPTIMIZERS]  # fmt: skip
    expected = [one_process(case) for case in chosen]
    found = ranks.run(3, train_here, chosen)
    for case, one, several in zip(chosen, expected, zip(*found, strict=True), strict=True):
        equal(one, several, case)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types(ranks, dtype):
    chosen = [{"combiner": combiner, "weighted": weighted, "exact": True, "sharding": "range", "optimizer": optimizer,
               "dtype": dtype}
              for combiner, weighted, optimizer in (("mean", False, "Adagrad"), ("sqrtn", False, None),
                                                    ("sum", True, None), ("max", False, "SGD"))]  # fmt: skip
    expected = [one_process(case) for case in chosen]
    found = ranks.run(3, train_here, chosen)
    for case, one, several in zip(chosen, expected, zip(*found, strict=True), strict=True):
        equal(one, several, case)
