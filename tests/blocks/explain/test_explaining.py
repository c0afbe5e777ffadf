"""Why this number: chains over pages, forward and back, for the five gradient operators and a whole model."""

import json
from typing import Any

import numpy as np
import pytest

import naive
from golden import assert_same
from rowgrad.blocks import Page, Session, explain, uses
from rowgrad.blocks._explain import calls
from rowgrad.errors import OutOfRangeError, PageError, RowgradError

GRAD = [[1.0, -2.0], [3.5, 4.0], [0.25, 6.0]]
FIVE: dict[str, dict[str, Any]] = {
    "SparseSegmentMeanGrad": {"grad": GRAD, "indices": [0, 2, 0, 3], "segment_ids": [0, 0, 1, 2], "output_dim0": 5},
    "SparseSegmentSqrtNGrad": {"grad": GRAD, "indices": [0, 2, 0, 3], "segment_ids": [0, 0, 1, 2], "output_dim0": 5},
    "SparseSegmentSumGrad": {"grad": GRAD, "indices": [0, 2, 0, 3], "segment_ids": [0, 0, 1, 2], "output_dim0": 5},
    "SparseFillEmptyRowsGrad": {"reverse_index_map": [1, 3], "grad_values": [0.5, 1.5, 2.5, 3.5, 4.5]},
    "SparseSliceGrad": {"backprop_val_grad": [0.5, 0.75], "input_indices": [[0, 0], [0, 2], [1, 1], [2, 0]],
                        "input_start": [0, 1], "output_indices": [[0, 1], [1, 0]]},
}  # fmt: skip
NAIVE = {
    "SparseSegmentMeanGrad": naive.sparse_segment_mean_grad,
    "SparseSegmentSqrtNGrad": naive.sparse_segment_sqrt_n_grad,
    "SparseSegmentSumGrad": naive.sparse_segment_sum_grad,
    "SparseFillEmptyRowsGrad": naive.sparse_fill_empty_rows_grad,
    "SparseSliceGrad": naive.sparse_slice_grad,
}


def run(page: Page) -> Session:
    session = Session(page)
    session.run().raise_first()
    return session


@pytest.mark.parametrize("op", FIVE)
def test_each_element_of_the_five_gradient_operators(op: str) -> None:
    page = Page()
    page.add(op, id="g", **FIVE[op])
    session = run(page)
    arrays = {name: np.asarray(value, np.float32 if "grad" in name else np.int64) for name, value in FIVE[op].items()}
    expected = NAIVE[op](**arrays)
    outputs = [pin.name for pin in page["g"].operator.outputs]
    for pin, array in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        for place in np.ndindex(array.shape):
            found = explain(session, f"g:{pin}", place)
            assert_same(array[place], np.asarray(found.value))
            assert_same(array[place], np.asarray(found.work_out()))
            # What is shown adds up, in the order that is shown.
            total = np.float32(0)
            for part in found.parts:
                product = np.float32(part.place.value if part.product is None else part.product)
                assert part.place.value == arrays[part.place.input][part.place.index]
                total = np.float32(total + product)
                assert part.total is None or part.total == total
            assert total == array[place]
            assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["value"] == float(array[place])


def test_the_chain_of_a_gradient_reaches_the_table() -> None:
    page = Page()
    page.add("Variable", id="table", initial_value=[[1.0, 2], [3, 4], [5, 6]])
    page.add("SparseSegmentMean", id="pool", data="table:ref", indices=[0, 2, 2, 1], segment_ids=[0, 0, 1, 1])
    page.add("Square", id="squares", x="pool")
    page.add("ReduceSum", id="loss", input="squares", axis=[0, 1])
    gradient = page.add_gradients("loss", ["table:ref"])["table:ref"]
    session = run(page)
    found = explain(session, gradient, (2, 0))
    assert str(found) == (
        "gradients/d_table:output[2, 0] = 7\n"
        "  output[2, 0] = grad[0, 0] · 1/2 + grad[1, 0] · 1/2\n"
        "  7 = 6 · 0.5 + 8 · 0.5"
    )
    chain = found.chain()
    assert {one.element.block for one in chain} >= {"table", "pool", "squares", "loss", "gradients/d_table"}
    assert len({str(one.element) for one in chain}) == len(chain)
    for one in chain:
        assert_same(session.results()[f"{one.element.block}:{one.element.pin}"][one.element.index], one.work_out())
    back = found.back(1)
    assert back is not None
    assert str(back.element) == "gradients/d_pool:z[1, 0]"
    reached = [str(element) for element in uses(session, "table:ref", (2, 0))]
    assert reached == ["pool:output[0, 0]", "pool:output[1, 0]"]
    reached = [str(element) for element in uses(session, "pool:output", (1, 1))]
    assert reached == ["squares:y[1, 1]", "gradients/Mul_squares:z[1, 1]"]


def test_a_row_that_nobody_looks_up_says_so() -> None:
    page = Page()
    page.add("SparseSegmentSumGrad", id="g", **FIVE["SparseSegmentSumGrad"])
    found = explain(run(page), "g", (4, 1))
    assert (found.value, found.parts, found.reason) == (0, (), "no entry looks up row 4")


def test_long_sums_tell_their_brackets() -> None:
    page = Page()
    data = np.arange(1, 12, dtype=np.float32).reshape(-1, 1) / 3
    page.add("SparseSegmentMean", id="m", data=data, indices=list(range(11)), segment_ids=[0] * 11)
    found = explain(run(page), "m", (0, 0))
    assert found.formula == (
        "output[0, 0] = (data[0, 0] + data[1, 0] + data[2, 0] + (data[3, 0] + data[4, 0] + data[5, 0] + data[6, 0] + "
        "data[7, 0] + data[8, 0] + data[9, 0] + data[10, 0])) / 11"
    )
    assert_same(found.work_out(), found.value)


def test_data_tells_where_it_is_from(tmp_path: Any) -> None:
    page = Page(folder=tmp_path)
    page.add("Const", id="c", value=[1.0, 2.0])
    page.add("Placeholder", id="p", dtype="float32", shape=[2])
    page.add("Batches", id="b", data=[[[1.0], [2.0], [3.0]]], columns=["x"], batch_size=2, shuffle=False)
    page.add("Add", id="sum", x="c", y="p")
    session = Session(page)
    session.run(feeds={"p": [3.0, 4.0]}).raise_first()
    assert explain(session, "c", 1).reason == "a constant"
    assert explain(session, "p", 0).reason == "fed to the session"
    assert explain(session, "b:x", (1, 0)).reason == "column x of example 1"
    assert explain(session, "sum", 1).numbers == "6 = 2 + 4"
    assert str(explain(session, "sum", [1]).parts[1].source) == "p:output[1]"


def test_functions_tell_their_derivatives() -> None:
    page = Page()
    page.add("MatMul", id="m", a=[[1.0, 2.0]], b=[[3.0], [4.0]])
    found = explain(run(page), "m", (0, 0))
    assert [(part.name, part.derivative) for part in found.parts] == [
        ("a[0, 0]", 3.0), ("a[0, 1]", 4.0), ("b[0, 0]", 1.0), ("b[1, 0]", 2.0)]  # fmt: skip


def test_wrong_questions() -> None:
    page = Page()
    page.add("SparseSegmentSumGrad", id="g", **FIVE["SparseSegmentSumGrad"])
    page.add("Relu", id="r", features="g")
    session = Session(page)
    with pytest.raises(PageError, match=r"it has no results to explain: waiting. Run it first"):
        explain(session, "g", (0, 0))
    session.run().raise_first()
    for index in [(0,), (5, 0), (-1, 0), (0, 0, 0), (True, 0), (0.5, 0), None, object(), "00"]:
        with pytest.raises(OutOfRangeError, match=r"index is .*, and g:output has shape \[5, 2\]"):
            explain(session, "g", index)  # type: ignore[arg-type]
    found = explain(session, "r", (0, 0))
    with pytest.raises(RowgradError, match="session is a Page; pass the Session"):
        explain(page, "g", (0, 0))  # type: ignore[arg-type]
    for part in (99, 2**70, None):
        with pytest.raises(OutOfRangeError, match="part is"):
            found.back(part)  # type: ignore[arg-type]
    with pytest.raises(RowgradError, match="depth is -1"):
        found.chain(-1)
    assert len(found.chain(2**70)) > 1  # ends with the last element, whatever the depth
    page.change("g", indices=[1, 2, 0, 3])
    with pytest.raises(PageError, match=r"the page has changed since it ran\. Run it again"):
        explain(session, "r", (0, 0))


def test_what_is_made_of_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_ENTRIES", 1)
    page = Page()
    page.add("SparseSegmentSumGrad", id="g", **FIVE["SparseSegmentSumGrad"])
    with pytest.raises(PageError, match="this number is made of 2 entries; up to 1 can be explained"):
        explain(run(page), "g", (0, 0))


def test_odd_numbers_are_texts_in_json() -> None:
    page = Page()
    page.add("SparseSegmentSum", id="s", data=np.array([[np.inf], [-np.inf]], np.float32), indices=[0, 1],
             segment_ids=[0, 0])  # fmt: skip
    found = json.loads(json.dumps(explain(run(page), "s", (0, 0)).to_dict(), allow_nan=False))
    assert (found["value"], [part["value"] for part in found["parts"]]) == ("NaN", ["Infinity", "-Infinity"])
