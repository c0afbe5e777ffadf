"""Whatever is wrong is named, and nothing is changed then; odd but valid inputs do what the formula says."""

from typing import Any

import numpy as np
import pytest
from dense_formulas import EVERY

import rowgrad
from optional import framework
from rowgrad import optim

ROWS, WIDTH = 30, 4


def problem() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "table": rng.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "grad": rng.standard_normal((5, WIDTH)).astype(np.float32),
        "indices": rng.integers(0, ROWS, 12),
        "segment_ids": rng.integers(0, 5, 12),
        "combiner": "sum",
        "weights": None,
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an index past the table": ({"indices": np.full(12, ROWS)}, "indices"),
    "a negative index": ({"indices": np.full(12, -1)}, "indices"),
    "a segment past grad": ({"segment_ids": np.full(12, 5)}, "segment_ids"),
    "ids of another length": ({"segment_ids": [0]}, "segment_ids"),
    "ids that are no vector": ({"indices": [[0]]}, "indices"),
    "ids that are no integers": ({"indices": [0.5] * 12}, "indices"),
    "a grad of other width": ({"grad": np.ones((5, 3), np.float32)}, "grad"),
    "a grad of another type": ({"grad": np.ones((5, WIDTH))}, "grad"),
    "a table that is a list": ({"table": [[0.0] * WIDTH]}, "table"),
    "a table of integers": ({"table": np.zeros((ROWS, WIDTH), np.int32)}, "table"),
    "a combiner that is none": ({"combiner": "max"}, "combiner"),
    "weights for a mean": ({"combiner": "mean", "weights": np.ones(12)}, "weights"),
    "too few weights": ({"weights": np.ones(11)}, "weights"),
    "weights that are a matrix": ({"weights": np.ones((12, 1))}, "weights"),
    "weights of integers": ({"weights": np.ones(12, np.int64)}, "weights"),
    "weights and an index past the table": ({"weights": np.ones(12), "indices": np.full(12, ROWS)}, "indices"),
    "weights and a segment past grad": ({"weights": np.ones(12), "segment_ids": np.full(12, 5)}, "segment_ids"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("name", ["sgd", "row-wise adagrad", "adam"])
def test_nothing_changes_when_something_is_wrong(name: str, untouched: bool, what: str) -> None:
    optimizer = EVERY[name](weight_decay=0.1, decay_untouched=untouched)
    given = problem()
    state, table = optimizer.init(given["table"]), given["table"]
    before = [table.copy(), *(value.copy() for value in state.values())]
    change, argument = WRONG[what]
    given |= change
    with pytest.raises(rowgrad.RowgradError) as info:
        optimizer.step_pooled(given.pop("table"), given.pop("grad"), given.pop("indices"), given.pop("segment_ids"),
                              state, **given)  # fmt: skip
    assert info.value.argument == argument
    for array, old in zip((table, *state.values()), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("rows", [[0, 0], [5, 4], [0, ROWS], [-1, 0]])
@pytest.mark.parametrize("name", EVERY)
def test_rows_must_ascend_and_fit(name: str, rows: list[int]) -> None:
    optimizer, table = EVERY[name](decay_untouched=True, weight_decay=0.1), problem()["table"]
    state = optimizer.init(table)
    before = [table.copy(), *(value.copy() for value in state.values())]
    for width in (WIDTH, 0):
        narrow = table[:, :width].copy() if width == 0 else table
        gradient = rowgrad.RowGradient(np.ones((2, width), np.float32), rows)
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            optimizer.step(narrow, gradient, state if width else optimizer.init(narrow))
        assert info.value.argument == "sorted_unique_indices"
    for array, old in zip((table, *state.values()), before, strict=True):
        np.testing.assert_array_equal(array, old)


def damaged_states() -> dict[str, Any]:
    table = problem()["table"]
    good = optim.Adam(0.1).init(table)
    read_only = good["m"].copy()
    read_only.flags.writeable = False
    return {
        "none": None,
        "not a dict": [good["m"]],
        "one missing": {"m": good["m"], "v": good["v"]},
        "one too many": {**good, "sum": good["m"]},
        "another optimizer's": optim.Adagrad(0.1).init(table),
        "of another table": optim.Adam(0.1).init(table[:-1].copy()),
        "of another type": optim.Adam(0.1).init(table.astype(np.float64)),
        "read-only": {**good, "m": read_only},
        "a list": {**good, "m": good["m"].tolist()},
        "twice the same array": {**good, "v": good["m"]},
        "steps in another type": {**good, "step": np.zeros((), np.int32)},
        "a plain number of steps": {**good, "step": 3},
        "a negative number of steps": {**good, "step": np.array(-1)},
        "a vector of steps": {**good, "step": np.zeros(1, np.int64)},
    }


@pytest.mark.parametrize("what", damaged_states())
def test_states_that_are_wrong(what: str) -> None:
    given = problem()
    before, state = given["table"].copy(), damaged_states()[what]
    gradient = rowgrad.RowGradient(given["grad"][:1], [3])
    for act in (
        lambda: optim.Adam(0.1).step(given["table"], gradient, state),
        lambda: optim.Adam(0.1).step_pooled(given["table"], given["grad"], [3], [0], state),
    ):
        with pytest.raises(rowgrad.RowgradError) as info:
            act()
        assert "state" in str(info.value)
        assert info.value.argument.startswith("state")
    np.testing.assert_array_equal(given["table"], before)


def test_a_state_of_the_other_kind_of_array() -> None:
    torch = framework("torch")
    table = torch.zeros(3, 2)
    with pytest.raises(rowgrad.DTypeError, match="numpy"):
        optim.Adagrad(0.1).step_pooled(table, torch.ones(1, 2), [0], [0], {"sum": np.zeros((3, 2), np.float32)})
    assert not table.any()


def test_shared_memory_is_refused() -> None:
    table = np.ones((8, WIDTH), np.float32)
    optimizer = optim.Adagrad(0.1)
    state = optimizer.init(table)
    for grad, kept in (
        (table[:2], state),
        (state["sum"][:2], state),
        (np.ones((2, WIDTH), np.float32), {"sum": table}),
    ):
        with pytest.raises(rowgrad.InvalidArgumentError, match="shares memory"):
            optimizer.step_pooled(table, grad, [0, 1], [0, 1], kept)
        with pytest.raises(rowgrad.InvalidArgumentError, match="shares memory"):
            optimizer.step(table, rowgrad.RowGradient(grad, [0, 1]), kept)
    assert (table == 1).all()


@pytest.mark.parametrize("name", EVERY)
def test_tables_that_cannot_be_written(name: str) -> None:
    table = np.ones((8, 6), np.float32)
    read_only = table.copy()
    read_only.flags.writeable = False
    for given in (read_only, table[:, ::2], table.T, np.float32(1.0), table.astype(">f4")):
        with pytest.raises(rowgrad.RowgradError) as info:
            EVERY[name]().init(given)
        assert info.value.argument == "table"
    assert (read_only == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_views_that_cannot_be_written_in_place(dtype: str) -> None:
    torch = framework("torch")
    table = torch.ones(4, 4, dtype=getattr(torch, dtype))
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        optim.SGD(0.1).step_pooled(table.T, torch.ones_like(table), [0], [0])
    assert info.value.argument == "table"
    assert (table == 1).all()


@pytest.mark.parametrize("name", EVERY)
def test_nothing_to_do(name: str) -> None:
    optimizer = EVERY[name]()
    for shape in ((0, 3), (3, 0), (0, 0), (5, 3)):
        table = np.ones(shape, np.float32)
        state = optimizer.init(table)
        none = np.empty((0, *shape[1:]), np.float32)
        optimizer.step(table, rowgrad.RowGradient(none, np.empty(0, np.int64)), state)
        optimizer.step_pooled(table, none, [], [], state)
        assert (table == 1).all()
        assert int(state.get("step", 2)) == 2
    wide = np.ones((3, 0), np.float32)
    optimizer.step_pooled(wide, np.ones((1, 0), np.float32), [2], [0], optimizer.init(wide))


@pytest.mark.parametrize("name", EVERY)
def test_an_empty_gradient_still_decays(name: str) -> None:
    optimizer = EVERY[name](weight_decay=0.5, decay_untouched=True)
    stepped, pooled = np.ones((5, 3), np.float32), np.ones((5, 3), np.float32)
    none = np.empty((0, 3), np.float32)
    optimizer.step(stepped, rowgrad.RowGradient(none, np.empty(0, np.int64)), optimizer.init(stepped))
    optimizer.step_pooled(pooled, none, [], [], optimizer.init(pooled))
    assert (stepped < 1).all()
    np.testing.assert_array_equal(stepped, pooled)


@pytest.mark.parametrize("name", EVERY)
def test_nan_stays_in_its_row(name: str) -> None:
    optimizer = EVERY[name]()
    table = np.ones((6, 5), np.float32)
    state = optimizer.init(table)
    grad = np.ones((2, 5), np.float32)
    grad[0, 2] = np.nan
    optimizer.step_pooled(table, grad, [1, 4], [0, 1], state)
    expected = np.zeros((6, 5), bool)
    expected[1, 2] = True
    if name in ("row-wise adagrad", "partial row-wise adam"):
        expected[1] = True  # the row shares one sum
    np.testing.assert_array_equal(np.isnan(table), expected)


def test_gradients_that_are_none() -> None:
    with pytest.raises(rowgrad.DTypeError, match="RowGradient"):
        optim.SGD(0.1).step(np.ones((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.0]])
def test_with_a_plan(weights: Any) -> None:
    indices, segments = np.array([2, 0, 2]), np.array([0, 1, 1])
    grad = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    made = rowgrad.plan(indices, segments, 4, 2)
    planned, plain = np.ones((4, 2), np.float32), np.ones((4, 2), np.float32)
    optimizer = optim.SGD(0.5)
    optimizer.step_pooled(planned, grad, None, None, combiner="sum", weights=weights, plan=made)
    optimizer.step_pooled(plain, grad, indices, segments, combiner="sum", weights=weights)
    np.testing.assert_array_equal(planned, plain)
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        optimizer.step_pooled(np.ones((5, 2), np.float32), grad, None, None, combiner="sum", weights=weights, plan=made)
    assert info.value.code == "wrong-plan"
