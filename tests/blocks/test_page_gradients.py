"""Gradients on pages: right to the second order for every differentiable block, compact where asked for, no clutter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad import RowGradient
from rowgrad._ops import Operator
from rowgrad.blocks import Page, Session
from rowgrad.blocks.operators import OPERATORS
from rowgrad.errors import PageError

DIFFERENTIABLE = {name: operator for name, operator in OPERATORS.items() if operator.gradient}
# Values at which an operator is smooth: positive for logarithms and roots, off the kink for the rectifier.
POSITIVE = {"Log", "Log1p", "Sqrt", "Div", "Pow", "Rsqrt"}


def placed(operator: Operator) -> tuple[Page, list[str]]:
    """A page with `operator` on its worked example, its differentiable inputs wired from float64 constants."""
    rng = np.random.default_rng(len(operator.name))
    page = Page()
    xs = []

    def constant(name: str, value: Any) -> str:
        array = rng.uniform(0.5, 1.5, np.shape(value))
        if operator.name not in POSITIVE:
            array *= rng.choice([-1, 1], array.shape)
        page.add("Const", name, value=array)
        xs.append(f"{name}:output")
        return xs[-1]

    given: dict[str, Any] = {}
    for pin in operator.inputs:
        value = operator.example.inputs[pin.name]
        if pin.name not in operator.gradient:
            given[pin.name] = [{"value": item} for item in value] if pin.many else {"value": value}
        elif pin.many:
            given[pin.name] = [constant(f"{pin.name}{i}", item) for i, item in enumerate(value)]
        else:
            given[pin.name] = constant(pin.name, value)
    attributes = dict(operator.example.attributes)
    if "DstT" in attributes:
        attributes["DstT"] = "float64"
    page.add(operator.name, "it", **given, **attributes)
    return page, xs


def floats(page: Page, id: str) -> list[str]:
    wires = [f"{id}:{pin.name}" for pin in page[id].operator.outputs]
    return [wire for wire in wires if page.signal(wire).dtype == "float64"]


@pytest.mark.parametrize("operator", DIFFERENTIABLE.values(), ids=list(DIFFERENTIABLE))
def test_first_and_second_order(operator: Operator) -> None:
    page, xs = placed(operator)
    for y in floats(page, "it"):
        check = Session(page).check_gradients(y, xs)
        assert check.ok, str(check)
        assert check.checked > 0
        for x, gradient in page.add_gradients(y, xs).items():
            if isinstance(gradient, RowGradient):
                gradient = gradient.output
            second = Session(page).check_gradients(gradient, xs, tolerance=1e-5)
            assert second.ok, f"{y} to {x}: {second}"


def model(*, sparse: bool = False, twice: bool = False) -> Page:
    page = Page()
    page.add("Variable", "table", initial_value=np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2))
    page.add("SparseSegmentMean", "a", data="table", indices=[5, 0, 5], segment_ids=[0, 0, 1], sparse_gradient=sparse)
    page.add("Square", "y", x="a")
    if twice:
        page.add("SparseSegmentSum", "b", data="table", indices=[5, 2], segment_ids=[0, 1], sparse_gradient=sparse)
        page.add("Mul", "z", x="y:y", y="b")
    return page


def test_dense_and_compact_agree() -> None:
    dense, compact = model(), model(sparse=True)
    (whole,) = dense.add_gradients("y", ["table"]).values()
    (rows,) = compact.add_gradients("y", ["table"]).values()
    assert dense[whole.block].op == "SparseSegmentMeanGrad"
    assert isinstance(rows, RowGradient)
    assert compact[rows.output.block].op == "SparseSegmentMeanGradV2"
    expected = Session(dense).run(whole).raise_first()[str(whole)]
    results = Session(compact).run(rows.output).raise_first()
    indices = results[str(rows.sorted_unique_indices)]
    assert indices.tolist() == [0, 5]
    np.testing.assert_array_equal(results[str(rows.output)], expected[indices])


def test_where_ways_meet_gradients_are_summed() -> None:
    dense, compact = model(twice=True), model(sparse=True, twice=True)
    (whole,) = dense.add_gradients("z", ["table"]).values()
    (rows,) = compact.add_gradients("z", ["table"]).values()
    assert dense[whole.block].op == "AddN"
    expected = Session(dense).run(whole).raise_first()[str(whole)]
    results = Session(compact).run(rows.output).raise_first()
    indices = results[str(rows.sorted_unique_indices)]
    assert indices.tolist() == [0, 2, 5]
    np.testing.assert_allclose(results[str(rows.output)], expected[indices], rtol=1e-6)
    for page in (dense, compact):
        assert Session(page).check_gradients("z", ["table"]).ok


def test_one_look_up_that_is_not_compact_makes_all_dense() -> None:
    page = model(sparse=True, twice=True)
    page.change("b", sparse_gradient=False)
    (gradient,) = page.add_gradients("z", ["table"]).values()
    assert not isinstance(gradient, RowGradient)
    assert not any(block.op.endswith("V2") for block in page)


def test_a_look_up_in_something_computed_is_dense() -> None:
    page = Page()
    page.add("Variable", "w", initial_value=np.ones((4, 2)))
    page.add("Neg", "n", x="w")
    page.add("SparseSegmentSum", "s", data="n", indices=[3, 1], segment_ids=[0, 0], sparse_gradient=True)
    (gradient,) = page.add_gradients("s", ["w"]).values()
    assert Session(page).run(gradient)[str(gradient)].tolist() == [[0, 0], [-1, -1], [0, 0], [-1, -1]]


def test_what_y_does_not_depend_on_gets_zeros() -> None:
    page = Page()
    page.add("Const", "a", value=[1.0, 2.0])
    page.add("Const", "b", value=[3.0])
    page.add("Neg", "y", x="a")
    found = page.add_gradients("y", ["a", "b", "y"])
    results = Session(page).run()
    assert [results[str(found[name])].tolist() for name in ("a", "b", "y")] == [[-1, -1], [0], [1, 1]]


def test_only_floating_point_values_have_gradients() -> None:
    page = Page()
    page.add("Const", "a", value=[1, 2])
    page.add("Neg", "y", x="a")
    with pytest.raises(PageError, match="y:y: it is int32") as caught:
        page.add_gradients("y:y", ["a"])
    assert caught.value.code == "no-gradient"
    assert len(page) == 2


def test_sizes_that_are_certain_leave_no_clutter() -> None:
    page = Page()
    page.add("Const", "x", value=[[1.0, 2.0], [3.0, 4.0]])
    page.add("Const", "b", value=[1.0, 1.0])
    page.add("Add", "z", x="x", y="b")
    page.add("ReduceSum", "s", input="z", axis=[0, 1])
    before = len(page)
    page.add_gradients("s", ["x", "b"])
    assert sorted(block.op for block in list(page)[before:]) == ["BroadcastTo", "OnesLike", "ReduceSum", "Reshape"]


def test_named_sizes_leave_no_clutter_either() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="float32", shape=["batch", 3])
    page.add("Variable", "b", initial_value=[1.0, 1.0, 1.0])
    page.add("Add", "z", x="x", y="b")
    before = len(page)
    found = page.add_gradients("z", ["x", "b"])
    assert [block.op for block in list(page)[before:]] == ["OnesLike", "ReduceSum"]
    results = Session(page).run(feeds={"x": np.ones((4, 3))})
    assert results[str(found["x"])].shape == (4, 3)
    assert results[str(found["b"])].tolist() == [4, 4, 4]


def test_unknown_sizes_are_found_when_it_runs() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="float64", shape=["n", "m"])
    page.add("Variable", "b", initial_value=np.array([1.0, 2.0]))
    page.add("Mul", "z", x="x", y="b")
    page.add("ReduceMean", "s", input="z", axis=[0, 1])
    found = page.add_gradients("s", ["x", "b"])
    session = Session(page)
    for rows in (1, 3):
        results = session.run(feeds={"x": np.ones((rows, 2))}).raise_first()
        np.testing.assert_allclose(results[str(found["x"])], np.tile([1.0, 2.0], (rows, 1)) / (2 * rows))
        np.testing.assert_allclose(results[str(found["b"])], [0.5, 0.5])


def test_gradients_of_gradients() -> None:
    page = Page()
    page.add("Const", "x", value=np.array([2.0, 3.0]))
    page.add("Square", "s", x="x")
    page.add("Mul", "cube", x="s", y="x")
    wire: Any = "cube"
    expected = [[12.0, 27.0], [12.0, 18.0], [6.0, 6.0], [0.0, 0.0]]
    for values in expected:
        (wire,) = page.add_gradients(wire, ["x"]).values()
        assert Session(page).run(wire).raise_first()[str(wire)].tolist() == values


def test_the_blocks_are_laid_out_below_and_apart() -> None:
    page = model(twice=True)
    bottom = max(block.at[1] for block in page)
    before = len(page)
    page.add_gradients("z", ["table"])
    new = list(page)[before:]
    assert all(block.at[1] > bottom for block in new)
    assert len({block.at for block in page}) == len(page)


def test_nothing_is_added_if_anything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    page = model()
    before = page.to_json()
    monkeypatch.setattr(Page, "tidy", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        page.add_gradients("y", ["table"])
    assert page.to_json() == before


def test_checking_takes_feeds_variables_and_files_as_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([0.5, 2.0], np.float32))
    page = Page(folder=tmp_path)
    page.add("File", "f", path="x.npy")
    page.add("Placeholder", "p", dtype="float32", shape=["n"])
    page.add("Variable", "w", initial_value=[1.0, 1.0])
    page.add("Mul", "a", x="f", y="p")
    page.add("Mul", "y", x="a", y="w")
    page.add("Assign", ref="w", value="a")
    session = Session(page)
    session.run(feeds={"p": [3.0, 5.0]})
    before = session.variables["w"].tolist()
    check = session.check_gradients("y", ["f", "p", "w"])
    assert check.ok, str(check)
    assert check.checked == 6
    assert session.variables["w"].tolist() == before == [1.5, 10.0]


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    page.add("Const", "x", value=np.array([2.0, 3.0]))
    page.add("Square", "y", x="x")
    monkeypatch.setitem(dict.__getitem__(OPERATORS, "Square").gradient, "x", lambda op, d_y, x: op.Mul(d_y, x))  # type: ignore[arg-type]
    check = Session(page).check_gradients("y", ["x"])
    assert not check.ok
    assert "DISAGREE" in str(check)
    assert check.worst is not None
    assert check.worst.position in ((0,), (1,))
    assert check.worst.numeric == pytest.approx(2 * check.worst.analytic)


def test_a_compact_gradient_is_not_passed_on() -> None:
    page = Page()
    page.add("Variable", "x", initial_value=[[1.0, 2.0], [3.0, 4.0]])
    page.add("Neg", "table", x="x")
    page.add("SparseSegmentSum", "y", data="table", indices=[0, 0], segment_ids=[0, 1], sparse_gradient=True)
    assert isinstance(page.copy().add_gradients("y", ["table"])["table"], RowGradient)
    found = page.add_gradients("y", ["table", "x"])
    results = Session(page).run().raise_first()
    assert results[str(found["table"])].tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert results[str(found["x"])].tolist() == [[-2.0, -2.0], [0.0, 0.0]]


def test_gradients_are_checked_where_only_running_tells_the_shape() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="float64", shape=["n"])
    page.add("Concat", "joined", values=["x", "x"], axis=0)
    page.add("Square", "y", x="joined")
    assert not str(page.signal("joined").shape[0]).isidentifier()
    session = Session(page)
    session.run(feeds={"x": [1.0, 2.0]})
    assert session.check_gradients("y", ["joined", "x"]).ok
