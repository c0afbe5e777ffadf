"""Pages are sound at every moment: what does not fit is refused with block and pin, and changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Session, Wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError

GRAD = [[1, 2, 3], [4, 4, 2], [3, 1, 5]]


@pytest.fixture
def page() -> Page:
    page = Page("pooled mean")
    page.add("Const", id="grad", value=GRAD, dtype="float32")
    page.add("SparseSegmentMeanGrad", grad="grad:output", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)
    return page


def refused(page: Page, act: Any) -> PageError:
    """The error of `act`, which must leave the page as it was."""
    before = page.to_json()
    inferred = {block.id: page.inferred(block.id) for block in page}
    with pytest.raises(PageError) as caught:
        act()
    assert page.to_json() == before
    assert {block.id: page.inferred(block.id) for block in page} == inferred
    return caught.value


def test_ids_are_unique_in_the_pages_scope(page: Page) -> None:
    again = page.add("SparseSegmentMeanGrad")
    third = page.add("SparseSegmentMeanGrad")
    assert (again.id, third.id) == ("SparseSegmentMeanGrad_1", "SparseSegmentMeanGrad_2")
    assert Page().add("SparseSegmentMeanGrad").id == "SparseSegmentMeanGrad"
    error = refused(page, lambda: page.add("Const", id="grad", value=1))
    assert error.code == "duplicate-id"


@pytest.mark.parametrize("id", ["", "a:b", "a b", "-a", "ä", "a" * 300, "a\n", 5])
def test_bad_ids(page: Page, id: Any) -> None:
    assert refused(page, lambda: page.add("Const", id=id, value=1)).code == "bad-id"


@pytest.mark.parametrize(
    ("given", "pin", "code"),
    [
        ({"nonsense": 1}, "nonsense", "unknown-pin"),
        ({"grad": "missing:output"}, "grad", "unknown-block"),
        ({"grad": "grad:nonsense"}, "grad", "unknown-pin"),
        ({"indices": "grad:output"}, "indices", "wrong-dtype"),
        ({"indices": [0.5]}, "indices", "wrong-dtype"),
        ({"indices": [[0], [1]]}, "indices", "wrong-rank"),
        ({"grad": [[1, 2], [3]]}, "grad", "ragged"),
        ({"indices": [0, 1], "segment_ids": [0]}, "segment_ids", "length-mismatch"),
        ({"indices": {"value": [0], "type": "int32"}}, "indices", "bad-literal"),
        ({"indices": {"value": [0], "dtype": "int3"}}, "indices", "wrong-dtype"),
        ({"indices": {"value": [2**40], "dtype": "int32"}}, "indices", "bad-literal"),
        ({"indices": {"file": "../ids.npy"}}, "indices", "bad-file"),
        ({"indices": {"file": "/etc/passwd"}}, "indices", "bad-file"),
    ],
)
def test_what_does_not_fit_is_refused_by_block_and_pin(page: Page, given: Any, pin: str, code: str) -> None:
    error = refused(page, lambda: page.add("SparseSegmentMeanGrad", id="new", **given))
    assert (error.block, error.pin, error.code) == ("new", pin, code)
    assert str(error).startswith(f"new:{pin}: ")
    assert "new" not in page


def test_unknown_operators_suggest(page: Page) -> None:
    assert "Did you mean SparseSlice?" in refused(page, lambda: page.add("sparseslice")).message
    assert refused(page, lambda: page.add("Nonsense")).code == "unknown-operator"


def test_wires_type_literals_and_literals_follow() -> None:
    page = Page()
    page.add("Const", id="wide", value=[1.0, 2.0], dtype="float64")
    page.add("Mul", x=2, y="wide:output")
    assert str(page.signal("Mul")) == "float64 [2]"
    page.add("Const", id="narrow", value=[1.0], dtype="float32")
    error = refused(page, lambda: page.connect("narrow:output", "Mul:x"))
    assert (error.block, error.pin, error.code) == ("Mul", "y", "wrong-dtype")
    assert "Cast" in error.message


def test_connect_and_disconnect(page: Page) -> None:
    block = page.add("SparseSegmentMeanGrad")
    assert [problem.pin for problem in page.problems()] == ["grad", "indices", "segment_ids", "output_dim0"]
    page.connect("grad", f"{block.id}:grad")
    assert page[block.id].inputs["grad"] == Wire("grad", "output")
    assert page.signal(f"{block.id}:output").shape is not None
    page.disconnect(f"{block.id}:grad")
    assert "grad" not in page[block.id].inputs
    page.disconnect(f"{block.id}:grad")
    assert refused(page, lambda: page.connect("grad", f"{block.id}:nonsense")).code == "unknown-pin"
    assert refused(page, lambda: page.connect("grad", "missing:grad")).code == "unknown-block"
    assert refused(page, lambda: page.disconnect("grad:output")).code == "unknown-pin"


def test_cycles_are_refused() -> None:
    page = Page()
    page.add("Neg", id="a", x=[1.0])
    page.add("Neg", id="b", x="a:y")
    page.add("Neg", id="c", x="b:y")
    error = refused(page, lambda: page.connect("c:y", "a:x"))
    assert (error.block, error.pin, error.code) == ("a", "x", "cycle")
    assert refused(page, lambda: page.connect("a:y", "a:x")).code == "cycle"


def test_a_change_that_breaks_what_follows_is_refused(page: Page) -> None:
    error = refused(page, lambda: page.change("grad", dtype="int32"))
    assert (error.block, error.pin, error.code) == ("SparseSegmentMeanGrad", "grad", "wrong-dtype")
    page.change("grad", dtype="float64")
    assert page.signal("SparseSegmentMeanGrad").dtype == "float64"
    page.change("grad", value=[[1, 2]])
    assert page.signal("SparseSegmentMeanGrad").shape == (3, 2)


def test_remove_takes_wires_along(page: Page) -> None:
    page.remove("grad")
    assert page["SparseSegmentMeanGrad"].missing() == ["grad"]
    assert page.signal("SparseSegmentMeanGrad").dtype is None
    assert refused(page, lambda: page.remove("grad")).code == "unknown-block"


def test_ids_of_a_type_that_is_not_known_yet_are_no_values(tmp_path: Path) -> None:
    page = Page(folder=tmp_path)
    page.add("File", id="ids", path="later.npy")
    page.add("SparseSegmentMeanGradV2", id="g", grad=[[1.0]], indices="ids", segment_ids=[0], dense_output_dim0=1)
    assert page.signal("g:output").dtype == "float32"
    assert page.signal("g:sorted_unique_indices").dtype is None


def test_rename_takes_wires_along(page: Page) -> None:
    page.rename("grad", "upstream")
    assert [block.id for block in page] == ["upstream", "SparseSegmentMeanGrad"]
    assert page["SparseSegmentMeanGrad"].inputs["grad"] == Wire("upstream", "output")
    assert refused(page, lambda: page.rename("upstream", "SparseSegmentMeanGrad")).code == "duplicate-id"
    assert refused(page, lambda: page.rename("upstream", "a b")).code == "bad-id"
    page.rename("upstream", "upstream")


def test_move_keeps_results_fresh(page: Page) -> None:
    session = Session(page)
    before = session.run()["grad"]
    page.move("grad", 5, 7.5)
    assert page["grad"].at == (5, 7.5)
    assert session.run()["grad"] is before


def test_many_inputs() -> None:
    page = Page()
    page.add("Const", id="a", value=[1.0])
    page.add("AddN", inputs=["a:output", [2.0]])
    page.connect("a:output", "AddN:inputs")
    assert Session(page).run()["AddN"].sum.tolist() == [4.0]
    assert refused(page, lambda: page.add("AddN", inputs="a:output")).code == "not-a-list"
    page.remove("a")
    assert Session(page).run()["AddN"].sum.tolist() == [2.0]


def test_updates_need_a_variable_of_their_own() -> None:
    page = Page()
    page.add("Const", id="c", value=[1.0])
    page.add("Variable", id="w", initial_value=[1.0])
    error = refused(page, lambda: page.add("Assign", id="set", ref="c:output", value=[2.0]))
    assert (error.block, error.pin, error.code) == ("set", "ref", "not-a-variable")
    page.add("Assign", id="set", ref="w:ref", value=[2.0])
    error = refused(page, lambda: page.add("ApplyGradientDescent", var="w:ref", alpha=0.1, delta=[1.0]))
    assert error.code == "updated-twice"
    assert "set" in error.message


def test_sizes_that_are_not_known_have_names() -> None:
    page = Page()
    page.add("Placeholder", id="rows", dtype="float32", shape=["batch", 4])
    page.add("SparseSegmentSumGradV2", id="g", grad="rows:output", indices=[1], segment_ids=[0], dense_output_dim0=9)
    assert str(page.signal("rows")) == "float32 [batch, 4]"
    assert str(page.signal("g:output")) == "float32 [g.U, 4]"
    assert str(page.signal("g:sorted_unique_indices")) == "int32 [g.U]"
    page.add("Placeholder", id="any", dtype="float32")
    page.add("Neg", x="any:output")
    assert str(page.signal("Neg")) == "float32 [?]"


def test_a_type_that_is_required_must_be_one(page: Page) -> None:
    for dtype in (None, "float", 5, ["float32"]):
        error = refused(page, lambda dtype=dtype: page.add("Placeholder", id="p", dtype=dtype))
        assert (error.block, error.pin) == ("p", "dtype")


@pytest.mark.parametrize("shape", [[-1], ["a b"], "n", [1.5], [True]])
def test_bad_shapes(page: Page, shape: Any) -> None:
    error = refused(page, lambda: page.add("Placeholder", id="p", dtype="float32", shape=shape))
    assert (error.block, error.pin) == ("p", "shape")


def test_every_worked_example_is_a_page_that_gives_its_results() -> None:
    for operator in BLOCKS.values():
        if operator.role != "operator" or operator.updates:
            continue
        page = Page()
        given = {name: _literal(operator, name, value) for name, value in operator.example.inputs.items()}
        page.add(operator.name, id="it", **given, **operator.example.attributes)
        result = Session(page).run().raise_first()["it"]
        for pin, stated in operator.example.outputs.items():
            array = result[pin]
            signal = page.signal(f"it:{pin}")
            assert signal.dtype in (None, "string") or array.dtype == signal.dtype
            if signal.shape is not None:
                assert len(signal.shape) == array.ndim
                assert all(isinstance(s, str) or s == n for s, n in zip(signal.shape, array.shape, strict=True))
            if array.dtype.kind in "fc":
                np.testing.assert_allclose(array, stated, rtol=1e-5, atol=1e-6)
            else:
                assert array.tolist() == stated


def _literal(operator: Any, name: str, value: Any) -> Any:
    if next(pin for pin in operator.inputs if pin.name == name).many:
        return [{"value": item} for item in value]
    return {"value": value}


def test_adding_is_quick_to_undo() -> None:
    page = Page()
    with pytest.raises(RuntimeError), page.changing():
        page.add("Const", value=1)
        raise RuntimeError
    assert len(page) == 0


def test_states_and_notes(page: Page) -> None:
    empty = Page().state()
    before = page.state()
    first = page.note("hello", (1, 2))
    second = page.note("there", (3, 4))
    assert first and second
    assert [note.text for note in page.notes] == ["hello", "there"]
    page.note("hello again", (5, 6), first.id)
    assert page.note("", (0, 0), second.id) is None
    assert [(note.text, note.at) for note in page.notes] == [("hello again", (5, 6))]
    page.remove("grad")
    page.name = "changed"
    after = page.state()
    page.restore(before)
    assert page.name == "pooled mean"
    assert page.notes == []
    assert page["SparseSegmentMeanGrad"].missing() == []
    page.add("Neg", "new", x="grad")
    page.restore(after)
    assert (page.name, len(page), len(page.notes)) == ("changed", 1, 1)
    page.restore(empty)
    assert len(page) == 0
    assert refused(page, lambda: page.note("x" * 20_000, (0, 0))).code == "bad-note"


@pytest.mark.parametrize("at", [(float("nan"), 0), (0, float("inf")), (1,), "ab", (1e12, 0), (True, 0), (None, 0)])
def test_places_are_two_numbers(page: Page, at: Any) -> None:
    assert refused(page, lambda: page.add("Neg", "n", at=at)).code == "bad-place"
    assert refused(page, lambda: page.move("grad", *(at if len(at) == 2 else (None, 0)))).code == "bad-place"
    assert refused(page, lambda: page.note("hello", at)).code == "bad-place"


def test_constants_that_json_has_no_words_for() -> None:
    page = Page()
    page.add("Const", "a", value=[float("nan"), 1.5])
    page.add("Const", "b", value=[1 + 2j, 3j])
    assert Page.from_json(page.to_json()) == page
    assert [str(page.signal(name)) for name in "ab"] == ["float32 [2]", "complex128 [2]"]


@pytest.mark.parametrize("nothing", [5, None, ["a"], {"a": 1}, b"a"], ids=repr)
def test_what_is_no_name_is_refused_everywhere(nothing: Any) -> None:
    page = Page()
    page.add("Const", "a", value=[1.0])
    page.add("Neg", "n", x="a")
    for act in (
        lambda: page[nothing],
        lambda: page.wire(nothing),
        lambda: page.connect(nothing, "n:x"),
        lambda: page.connect("a", nothing),
        lambda: page.disconnect(nothing),
        lambda: page.remove(nothing),
        lambda: page.rename(nothing, "b"),
        lambda: page.rename("a", nothing),
        lambda: page.add(nothing),
        lambda: page.add_gradients("n", [nothing]),
        lambda: setattr(page, "name", nothing),
    ):
        refused(page, act)
    assert nothing not in page


def test_names_of_pins_that_python_uses_itself() -> None:
    page = Page()
    page.add("Neg", "n")
    for name in ("self", "id", "op"):
        assert refused(page, lambda name=name: page.change("n", **{name: 1})).code == "unknown-pin"


def test_an_attribute_that_is_none_is_not_given() -> None:
    page, other = Page(), Page()
    page.add("Placeholder", "x", dtype="float32", shape=None)
    other.add("Placeholder", "x", dtype="float32")
    assert page == other == Page.from_graphdef(page.to_graphdef())


def test_automatic_names_fill_gaps(page: Page) -> None:
    assert [page.add("Neg").id for _ in range(4)] == ["Neg", "Neg_1", "Neg_2", "Neg_3"]
    page.remove("Neg_1")
    assert [page.add("Neg").id for _ in range(2)] == ["Neg_1", "Neg_4"]
    page.rename("Neg", "other")
    page.drop(["Neg_3", "Neg_2"])
    assert [page.add("Neg").id for _ in range(3)] == ["Neg", "Neg_2", "Neg_3"]
    before = page.state()
    page.add("Neg")
    page.restore(before)
    assert page.add("Neg").id == "Neg_5"
    assert refused(page, lambda: page.drop(["grad"])).code == "in-use"
