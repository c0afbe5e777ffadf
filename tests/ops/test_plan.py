"""Plans give the same bits, refuse what they were not made for, and results go where `out` says."""

import threading
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad._ops import functions
from rowgrad._ops.order import order_ids
from rowgrad._runtime import memory
from rowgrad._runtime.threads import Workers

RNG = np.random.default_rng(3)
INDICES = RNG.integers(0, 90, 3000)
SEGMENTS = np.sort(RNG.integers(0, 40, 3000)).astype(np.int32)
GRAD = RNG.standard_normal((40, 7)).astype(np.float32)
TABLE = RNG.standard_normal((90, 7)).astype(np.float32)


@pytest.mark.parametrize("kind", ["sum", "mean", "sqrt_n"])
def test_the_same_with_and_without(kind: str) -> None:
    made = rowgrad.plan(INDICES, SEGMENTS, 90, 40)
    dense, compact, forward = (getattr(rowgrad, f"sparse_segment_{kind}{end}") for end in ("_grad", "_grad_v2", ""))
    np.testing.assert_array_equal(dense(GRAD, None, None, 90, plan=made), dense(GRAD, INDICES, SEGMENTS, 90))
    for with_plan, without in zip(
        compact(GRAD, INDICES, SEGMENTS, 90, plan=made), compact(GRAD, INDICES, SEGMENTS, 90), strict=True
    ):
        np.testing.assert_array_equal(with_plan, without)
    np.testing.assert_array_equal(forward(TABLE, None, None, plan=made), forward(TABLE, INDICES, SEGMENTS))


def test_a_plan_is_what_it_says() -> None:
    made = rowgrad.plan(INDICES, SEGMENTS, 90)
    assert (made.size, made.rows, made.segments) == (3000, 90, SEGMENTS.max() + 1)
    assert made.distinct == len(np.unique(INDICES))
    assert rowgrad.plan([], [], 5).distinct == 0


def test_threads_may_share_a_plan() -> None:
    made = rowgrad.plan(INDICES, SEGMENTS, 90, 40)
    expected = rowgrad.sparse_segment_mean_grad(GRAD, INDICES, SEGMENTS, 90)
    results: list[Any] = []

    def work() -> None:
        results.extend(rowgrad.sparse_segment_mean_grad(GRAD, None, None, 90, plan=made) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_large_ids_can_be_planned() -> None:
    ids = np.array([2**61, 5, 2**61])
    made = rowgrad.plan(ids, [0, 1, 1], 2**62)
    result = rowgrad.sparse_segment_sum_grad_v2([[1.0], [2.0]], None, None, 2**62, plan=made)
    assert result.sorted_unique_indices.tolist() == [5, 2**61]
    assert result.output.tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda made: rowgrad.sparse_segment_sum_grad(GRAD, INDICES[::-1], None, 90, plan=made), "indices"),
        (lambda made: rowgrad.sparse_segment_sum_grad(GRAD, None, SEGMENTS[:-1], 90, plan=made), "segment_ids"),
        (lambda made: rowgrad.sparse_segment_sum_grad(GRAD, None, None, 91, plan=made), "output_dim0"),
        (lambda made: rowgrad.sparse_segment_sum_grad(GRAD[:-1], None, None, 90, plan=made), None),
        (lambda made: rowgrad.sparse_segment_sum(TABLE[:-1], None, None, plan=made), "data"),
    ],
)
def test_other_ids_and_tables_are_refused(call: Any, argument: str | None) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        call(rowgrad.plan(INDICES, SEGMENTS, 90, 40))
    assert argument is None or (info.value.argument, info.value.code) == (argument, "wrong-plan")


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        (([0, 5], [0, 0], 5), "indices"),
        (([0, 1], [0, 2], 5, 2), "segment_ids"),
        (([0, 1], [0], 5), "segment_ids"),
        (([[0]], [0], 5), "indices"),
        (([0], [0], -1), "rows"),
        (([0], [0], 1.5), "rows"),
        (([0.5], [0], 5), "indices"),
    ],
)
def test_bad_plans_are_refused(arguments: tuple[Any, ...], argument: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as info:
        rowgrad.plan(*arguments)
    assert info.value.argument == argument


OUTS = [
    ("sparse_segment_mean", (TABLE, INDICES, SEGMENTS)),
    ("sparse_segment_sum", (TABLE, INDICES, SEGMENTS, 60)),
    ("sparse_segment_mean_grad", (GRAD, INDICES, SEGMENTS, 90)),
    ("sparse_segment_mean_grad_grad", (TABLE, INDICES, SEGMENTS, 40)),
    ("sparse_slice_grad", ([5.0, 7.0], [[0, 0], [0, 3], [0, 4]], [0, 3], [[0, 0], [0, 1]])),
    ("sparse_slice_grad_grad", ([1.0, 2.0, 3.0], [[0, 0], [0, 3], [0, 4]], [0, 3], [[0, 0], [0, 1]])),
    ("sparse_fill_empty_rows_grad_grad", ([0, 2], [1.0, 2.0], 9.0, 4)),
]


@pytest.mark.parametrize(("name", "arguments"), OUTS)
def test_out(name: str, arguments: tuple[Any, ...]) -> None:
    function = getattr(functions, name)
    expected = function(*arguments)
    out = np.full_like(expected, 99)
    assert function(*arguments, out=out) is out
    np.testing.assert_array_equal(out, expected)
    for bad in (np.zeros((*expected.shape, 1), expected.dtype), expected.astype(np.float64), [1.0]):
        with pytest.raises(rowgrad.RowgradError) as info:
            function(*arguments, out=bad)
        assert (info.value.argument, info.value.code) == ("out", "bad-out")
    out.flags.writeable = False
    with pytest.raises(rowgrad.InvalidArgumentError, match="read-only"):
        function(*arguments, out=out)


def test_out_of_the_fill_gradient() -> None:
    out = np.empty(2, np.float32)
    result = rowgrad.sparse_fill_empty_rows_grad([0, 2], [1.0, 2.0, 4.0], out=out)
    assert result.d_values is out
    assert out.tolist() == [1.0, 4.0]
    assert float(result.d_default_value) == 2.0


def test_out_must_not_be_an_input() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="shares memory"):
        rowgrad.sparse_segment_mean_grad(GRAD, INDICES % 40, SEGMENTS, 40, out=GRAD)


@pytest.mark.parametrize(
    "call",
    [
        lambda out: rowgrad.sparse_segment_sum(TABLE, [0, 90], [0, 1], out=out[:2]),
        lambda out: rowgrad.sparse_segment_sum_grad(GRAD, [0, 90], [0, 1], 90, out=out),
        lambda out: functions.sparse_segment_sum_grad_grad(TABLE, [0, 90], [0, 1], 90, out=out),
    ],
)
def test_out_is_left_alone_when_something_is_wrong(call: Any) -> None:
    out = np.full((90, 7), 99, np.float32)
    with pytest.raises(rowgrad.OutOfRangeError):
        call(out)
    assert (out == 99).all()


def test_out_may_be_a_tensor() -> None:
    torch = framework("torch")
    out = torch.full((90, 7), 99.0)
    assert rowgrad.sparse_segment_sum_grad(torch.from_numpy(GRAD), INDICES, SEGMENTS, 90, out=out) is out
    np.testing.assert_array_equal(out.numpy(), rowgrad.sparse_segment_sum_grad(GRAD, INDICES, SEGMENTS, 90))


def test_memory_of_dropped_results_is_used_again_and_never_shared() -> None:
    memory.clear_pool()
    first = memory.allocate((1 << 18,), np.float64)
    first[:] = 1
    address = first.__array_interface__["data"][0]
    view = first[5:9]
    del first
    assert not memory._free  # a view keeps the memory
    del view
    assert len(memory._free) == 1
    second = memory.allocate((1 << 18,), np.float64, zero=True)
    assert second.__array_interface__["data"][0] == address
    assert not second.any()
    third = memory.allocate((1 << 18,), np.float64)
    assert not np.may_share_memory(second, third)
    del second, third
    assert memory.clear_pool() > 0
    assert not memory._free


def test_threads_of_a_team_share_the_sort() -> None:
    """As many strips as threads, whosever these are; one thread can do them all."""
    strips: list[int] = []

    class Team(Workers):
        def run(self, kernel: Any, *args: Any) -> Any:
            strips.append(args[0])
            return super().run(kernel, *args)

    team = Team(0)
    team.threads, team.chunks = 3, 6
    rows = np.random.default_rng(0).integers(0, 1000, 5000)
    order = order_ids(team, rows, None, 1000, rows.size)
    assert strips == [3, 3]
    assert np.array_equal(order.words & ((1 << order.shift) - 1), np.argsort(rows, kind="stable"))
