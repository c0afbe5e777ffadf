"""Pages go to GraphDefs and come back as they were; without rowgrad's own attributes they still compute the same."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import graph_pb2

import example_pages
from rowgrad._ops import Operator
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks import Page, Session
from rowgrad.blocks._graphdef.names import GRAPH_OPS, PARTS
from rowgrad.blocks._graphdef.recipes import RECIPES
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import FileError, PageError

EXPORTED = [name for name in example_pages.EXAMPLES
            if {name} & {*GRAPH_OPS, *RECIPES, *PARTS, "Const", "Variable"}]  # fmt: skip
OWN = [name for name in example_pages.EXAMPLES if name not in EXPORTED]


def graph_of(page: Page) -> Any:
    return graph_pb2.GraphDef.FromString(page.to_graphdef())


def stripped(page: Page) -> bytes:
    """The graph of `page` without the attributes that TensorFlow does not know."""
    graph = graph_of(page)
    for node in graph.node:
        for name in [name for name in node.attr if name.startswith("_rowgrad")]:
            del node.attr[name]
    return bytes(graph.SerializeToString())


def assert_equal(left: Page, right: Page) -> None:
    assert left.to_json() == right.to_json()  # says more than `==` where it fails
    assert left == right


def assert_computes_the_same(page: Page, other: Page, feeds: dict[str, Any] | None = None) -> None:
    expected, found = Session(page).loop(2, feeds).results, Session(other).loop(2, feeds).results
    assert not found.errors, found.errors
    for id, result in expected.items():
        for pin, array in result.outputs.items():
            other_array = found[id].outputs[pin]
            if array.dtype.kind in "OUST":
                assert other_array.tolist() == array.tolist()
            else:
                assert (other_array.dtype, other_array.shape) == (array.dtype, array.shape)
                assert other_array.tobytes() == array.tobytes(), f"{id}:{pin}"


@pytest.mark.parametrize("wired", [False, True], ids=["literals", "wired"])
@pytest.mark.parametrize("operator", [BLOCKS[name] for name in EXPORTED], ids=EXPORTED)
def test_every_operator_comes_back(operator: Operator, wired: bool) -> None:
    page = example_pages.of_example(operator, wired=wired)
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)
    assert_equal(Page.from_graphdef(page.to_graphdef(text=True)), page)
    assert_computes_the_same(page, Page.from_graphdef(stripped(page)))


@pytest.mark.parametrize("name", OWN)
def test_operators_of_rowgrad_are_refused(name: str) -> None:
    assert not BLOCKS[name].in_tensorflow
    with pytest.raises(PageError, match=f"{name} cannot go into a GraphDef: TensorFlow has no such operator") as caught:
        example_pages.of_example(BLOCKS[name]).to_graphdef()
    assert caught.value.block == name
    assert caught.value.code == "not-in-tensorflow"


def test_lists_must_be_as_long_as_attributes_say() -> None:
    page = example_pages.of_example(BLOCKS["RaggedCross"])
    for name, change in (("Nsparse", 2), ("Nsparse", -1), ("dense_types", None), ("ragged_splits_types", [])):
        graph = graph_of(page)
        (node,) = [node for node in graph.node if node.op == "RaggedCross"]
        if isinstance(change, int):
            node.attr[name].i = change
        elif change is None:
            del node.attr[name]
        else:
            del node.attr[name].list.type[:]
        with pytest.raises(PageError) as caught:
            Page.from_graphdef(graph.SerializeToString())
        assert caught.value.block == "RaggedCross"


def test_the_catalogue_is_covered() -> None:
    """What has a counterpart is exported, by the table or by a recipe, and the table has nothing else."""
    for name in OWN:
        assert not BLOCKS[name].in_tensorflow
    assert {*GRAPH_OPS, *RECIPES} <= set(BLOCKS)
    assert not set(GRAPH_OPS) & set(RECIPES)


def test_values_of_every_type() -> None:
    page = example_pages.of_values()
    again = Page.from_graphdef(page.to_graphdef())
    assert_equal(again, page)
    assert_equal(Page.from_graphdef(page.to_graphdef(text=True)), page)
    assert_computes_the_same(page, again)
    assert_computes_the_same(page, Page.from_graphdef(stripped(page)))


@pytest.mark.parametrize("dtype", [name for name in NUMPY if not name.startswith("q")])
def test_literals_of_every_type(dtype: str) -> None:
    page = Page()
    array = example_pages.values(dtype)
    page.add("Identity", id="whole", input=array)
    page.add("Identity", id="one", input=array[0, 0])
    page.add("Identity", id="none", input=array[:0])
    again = Page.from_graphdef(page.to_graphdef())
    assert_equal(again, page)
    assert_computes_the_same(page, again)


def test_literals_come_back_as_they_were_written() -> None:
    page = Page()
    page.add("Const", id="half", value=[1, 2], dtype="float16")
    page.add("Const", id="plain", value=[1.0, 2.5])
    page.add("Const", id="double", value=[[0.1]], dtype="float64")
    page.add("Mul", id="a", x="half", y=0.1)
    page.add("Mul", id="b", x="half", y=1)
    page.add("Mul", id="c", x="half", y=1.0)
    page.add("Mul", id="d", y={"value": [0.25, "NaN"], "dtype": "float16"}, x="half")
    page.add("AddN", id="e", inputs=[[1.0, 2.0], "plain", [3, 4]])
    page.add("Mul", id="f", x="double", y=np.array([0.5], np.float32))
    page.add("Identity", id="text", input={"value": "a text"})
    page.add("Identity", id="texts", input=["a", "b"])
    page.add("Gather", id="g", params="plain", indices=np.array(1, np.int64))
    again = Page.from_graphdef(page.to_graphdef())
    assert_equal(again, page)
    assert_computes_the_same(page, again)
    assert_computes_the_same(page, Page.from_graphdef(stripped(page)))


def test_attributes_places_and_order_come_back() -> None:
    page = Page("näme 𝄞")
    page.add("ReduceSum", id="z", input=[[1.0, 2.0]], axis=[1], keep_dims=False, at=(0.1, -7))
    page.add("ReduceSum", id="y", axis=[1], keep_dims=True, input=[[1.0, 2.0]], at=(3, 1e6))
    page.add("Shape", id="x", input="z", out_type="int64")
    page.add("Shape", id="w", input="z", out_type="int32")
    page.reorder(["w", "y"])
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)
    assert Page.from_graphdef(page.to_graphdef(), "other").name == "other"


def test_notes_come_back() -> None:
    page = Page()
    page.note("Nothing here yet – “soon”.", (0.5, 7))
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)
    page.add("Const", value=[1.0])
    page.note("two\nlines", (1, 2))
    assert_equal(Page.from_graphdef(page.to_graphdef(text=True)), page)
    graph = graph_of(page)
    for text in ("", "7", '[["a", 1], [], 5, [1, 2, 3], ["", 1, 2], ["a", 1, NaN], ["a", 1e99, 1]]', "[" * 100_000):
        graph.node[0].attr["_rowgrad_notes"].s = text.encode()
        assert Page.from_graphdef(graph.SerializeToString()).notes == []


def test_names_of_helpers_give_way() -> None:
    page = Page()
    page.add("Const", id="init", value=[1.0])
    page.add("Const", id="w/read", value=[2.0])
    page.add("Const", id="w/Assign", value=[3.0])
    page.add("Const", id="w/initial_value", value=[4.0])
    page.add("Variable", id="w", initial_value=[5.0])
    page.add("Add", id="a", x="w:ref", y="w/initial_value")
    page.add("Assign", id="set", ref="w:ref", value="a")
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)
    assert_computes_the_same(page, Page.from_graphdef(stripped(page)))


def test_training() -> None:
    page = example_pages.training()
    feeds = {"x": np.ones((2, 3), np.float32)}
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)
    assert_computes_the_same(page, Page.from_graphdef(stripped(page)), feeds)


def test_an_empty_page() -> None:
    page = Page("empty")
    assert_equal(Page.from_graphdef(page.to_graphdef()), page)


def test_the_graph_itself() -> None:
    """Names, inputs and attributes that TensorFlow's own graphs would have."""
    page = Page()
    page.add("Placeholder", id="x", dtype="float32", shape=["batch", 3])
    page.add("Variable", id="w", initial_value=[[1.0], [2.0], [3.0]])
    page.add("MatMul", id="product", a="x", b="w:ref", transpose_b=False)
    page.add("ReduceMean", id="mean", input="product", axis=[0])
    page.add("Gather", id="row", params="w:ref", indices=[1])
    page.add("ApplyGradientDescent", id="train", var="w:ref", alpha=0.5, delta=[[1.0], [1.0], [1.0]])
    nodes = {node.name: node for node in graph_of(page).node}
    assert [(dim.size, dim.name) for dim in nodes["x"].attr["shape"].shape.dim] == [(-1, "batch"), (3, "")]
    assert list(nodes["product"].input) == ["x", "w/read"]
    assert nodes["mean"].op == "Mean"
    assert list(nodes["mean"].input) == ["product", "mean/axis"]
    assert nodes["row"].op == "GatherV2"
    assert list(nodes["row"].input) == ["w/read", "row/indices", "row/axis"]
    assert list(nodes["train"].input) == ["w", "train/alpha", "train/delta", "^w/read"]
    assert list(nodes["init"].input) == ["^w/Assign"]
    assert nodes["w"].op == "VariableV2"


def test_files_go_along_as_constants(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(3))
    page = Page(folder=tmp_path)
    page.add("File", id="ids", path="ids.npy", dtype="int32")
    graph = page.to_graphdef()
    for folder in (None, tmp_path / "elsewhere"):
        again = Page.from_graphdef(graph, folder=folder)
        assert again["ids"].op == "Const"
        np.testing.assert_array_equal(again.constant("ids"), np.arange(3, dtype=np.int32))
    assert_equal(Page.from_graphdef(graph, folder=tmp_path), page)
    np.save(tmp_path / "ids.npy", np.arange(4))
    assert Page.from_graphdef(graph, folder=tmp_path)["ids"].op == "Const"


@pytest.mark.parametrize("name", [path.name for path in example_pages.FILES])
def test_example_pages_come_back(name: str) -> None:
    page = Page.load(example_pages.FOLDER / name)
    assert_equal(Page.from_graphdef(page.to_graphdef(), folder=example_pages.FOLDER), page)
    if not any(block.operator.role == "batches" for block in page):  # these are fed to the graph, batch by batch
        assert_computes_the_same(page, Page.from_graphdef(stripped(page)))


def test_what_cannot_go_is_named(tmp_path: Path) -> None:
    page = Page(folder=tmp_path)
    page.add("Save", id="s", filename={"value": "a.npz"}, tensor_names=["a"], data=[[1.0]])
    with pytest.raises(PageError, match=r"s: Save cannot go into a GraphDef: .* files of another format"):
        page.to_graphdef()
    page = Page()
    page.add("Variable", id="a", initial_value=[1.0])
    page.add("Neg", id="n", x="a:ref")
    page.add("Variable", id="b", initial_value="n")
    with pytest.raises(PageError, match="b:initial_value: its initial value depends on the variable a"):
        page.to_graphdef()
    page = Page()
    page.add("Neg", id="n")
    with pytest.raises(PageError, match="n:x: it is unconnected"):
        page.to_graphdef()


def test_marks_never_override_the_graph() -> None:
    page = Page()
    page.add("Mul", id="m", x=[1.5, 2.5], y=2)
    graph = graph_of(page)
    for node in graph.node:
        if node.op == "Const":
            node.attr["_rowgrad_literal"].s = b"[7.0, 8.0]"
        node.attr["_rowgrad_at"].s = b'["left", 1e99]'
    again = Page.from_graphdef(graph.SerializeToString())
    assert_computes_the_same(page, again)


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for use in (Page().to_graphdef, lambda: Page.from_graphdef(b"")):
        with pytest.raises(FileError, match="TensorBoard, which is not installed") as caught:
            use()
        assert caught.value.hint == "pip install 'rowgrad[graphdef]'"
