"""`out=` is an array of the caller's: it must fit, and lie apart from everything that is read."""

import numpy as np
import pytest

import rowgrad


def test_ids_under_the_result_are_noticed() -> None:
    buffer = np.zeros(4000, np.int64)
    with pytest.raises(rowgrad.InvalidArgumentError, match="out shares memory with indices") as caught:
        rowgrad.sparse_segment_sum(
            np.ones((8, 4)), buffer[:1000], np.arange(1000), out=buffer.view(float).reshape(1000, 4)
        )
    assert (caught.value.code, caught.value.argument, caught.value.value) == ("bad-out", "out", "indices")


def test_ids_of_a_plan_under_the_result_are_noticed() -> None:
    buffer = np.zeros(4000, np.int64)
    plan = rowgrad.plan(buffer[:1000], np.arange(1000), rows=4)
    with pytest.raises(rowgrad.InvalidArgumentError, match="out shares memory with indices"):
        rowgrad.sparse_segment_sum_grad(
            np.ones((1000, 4)), None, None, 4, plan=plan, out=buffer[:16].view(float).reshape(4, 4)
        )


def test_the_byte_order_is_named() -> None:
    out = np.empty((1, 2), ">f4")
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"float32 in the other byte order.*type float32"):
        rowgrad.sparse_segment_sum(np.ones((1, 2), np.float32), [0], [0], out=out)
