"""Exported graphs run in TensorFlow and give what sessions give; graphs that TensorFlow makes become pages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import example_pages
from rowgrad._ops import Operator
from rowgrad._runtime.dtypes import NUMBERS
from rowgrad.blocks import Page, Session
from rowgrad.blocks._graphdef.export import tensor_names
from rowgrad.blocks._graphdef.names import ATTRIBUTE_NAMES, GRAPH_OPS, KNOWN, PARTS
from rowgrad.blocks._graphdef.recipes import RECIPES
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")
from tensorflow.python.framework import op_def_registry

v1 = tf.compat.v1
# Sums and products of floats round in another order there.
MATH = ("elementwise", "reductions", "losses", "sparse_dense", "updates", "products", "choosing", "random")
EXPORTED = [name for name in example_pages.EXAMPLES if name in GRAPH_OPS or name in RECIPES or name in PARTS]
# TensorFlow has these only in functions that XLA compiles (deviation D15).
COMPILED = ("SegmentSumV2", "SegmentProdV2", "SegmentMaxV2", "SegmentMinV2")


class Running:
    """An exported page in TensorFlow."""

    def __init__(self, page: Page, feeds: dict[str, Any] | None = None, text: bool = False) -> None:
        self.names = tensor_names(page)
        graph_def = v1.GraphDef()
        if text:
            from google.protobuf import text_format

            text_format.Parse(page.to_graphdef(text=True), graph_def)
        else:
            graph_def.ParseFromString(page.to_graphdef())
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(graph_def, name="")
        self.session = v1.Session(graph=self.graph)
        self.feeds = {f"{id}:0": value for id, value in (feeds or {}).items()}
        if "init" in [node.name for node in graph_def.node]:
            self.session.run("init", self.feeds)

    def step(self, wanted: list[str] | None = None) -> dict[str, np.ndarray]:
        wanted = list(self.names) if wanted is None else wanted
        found = self.session.run([self.names[name] for name in wanted], self.feeds)
        return dict(zip(wanted, map(np.asarray, found), strict=True))


def assert_like(found: np.ndarray, expected: np.ndarray, exact: bool, where: str) -> None:
    if expected.dtype.kind in "OUST":
        texts = [x if isinstance(x, bytes) else x.encode() for x in expected.ravel().tolist()]
        assert found.ravel().tolist() == texts, where
        return
    if expected.dtype.names:
        (field,) = expected.dtype.names
        expected = expected[field]
        found = found[found.dtype.names[0]] if found.dtype.names else found
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
    if exact or expected.dtype.kind not in "fcV":
        assert found.tobytes() == expected.tobytes(), f"{where}: {found} is not {expected}"
    else:
        wide = complex if expected.dtype.kind == "c" else float
        tolerance = 1e-6 if expected.dtype.itemsize > 2 else 1e-2
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=tolerance, atol=1e-7, err_msg=where)


def rounded(page: Page) -> set[str]:
    """The blocks whose results depend on sums and products of floats, and so may differ in the last bit."""
    found: set[str] = set()
    for id in page.order():
        fed = any(wire.block in found for _, wire in page[id].wires())
        if fed or page[id].operator.family in MATH:
            found.add(id)
    return found


def check(page: Page, steps: int = 3, feeds: dict[str, Any] | None = None, *, text: bool = False) -> None:
    running, session, inexact = Running(page, feeds, text), Session(page), rounded(page)
    for step in range(steps):
        expected = session.run(feeds=feeds)
        assert not expected.errors
        found = running.step()
        for name, array in found.items():
            exact = name.rpartition(":")[0] not in inexact and step == 0
            assert_like(array, expected[name], exact, f"step {step}, {name}")


def test_a_model_with_groups_batches_and_training_runs(tmp_path: Path) -> None:
    """Batches are fed; one run of the graph is one step of a loop."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(20, 3)).astype(np.float32), y=rng.integers(0, 2, 20))
    page = Page("model", folder=tmp_path)
    page.add("Batches", "data", path="data.npz", columns=["x", "y"], batch_size=8)
    page.add("StatelessRandomUniform", "noise", shape=[3, 2], seed=[1, 2])
    page.add("Variable", "w", initial_value="noise")
    page.add("MatMul", "scores", a="data:x", b="w")
    page.add("SparseSoftmaxCrossEntropyWithLogits", "entropy", features="scores", labels="data:y")
    page.add("ReduceMean", "loss", input="entropy:loss", axis=[0])
    page.group(["scores", "entropy"], "model")
    page.add_training("loss", None, "Momentum", lr=0.1)
    running, session = Running(page), Session(page)
    for _ in range(6):
        results = session.loop(1).results.raise_first()
        columns = {running.names[f"data:{pin}"]: array for pin, array in results["data"].outputs.items()}
        running.feeds = columns
        found = running.step(["loss:output", "training/train_w:out"])
        np.testing.assert_allclose(found["loss:output"], results["loss:output"], rtol=1e-5)
        np.testing.assert_allclose(found["training/train_w:out"], results["training/train_w:out"], rtol=1e-5)


@pytest.mark.parametrize("name", GRAPH_OPS)
def test_the_table_is_that_of_tensorflow(name: str) -> None:
    entry, registered = GRAPH_OPS[name], op_def_registry.get(GRAPH_OPS[name].op)
    extra = name == "Gather"  # the axis
    assert len(registered.input_arg) == len(entry.inputs) + extra
    operator = BLOCKS[name]
    for pin_name, argument in zip(entry.inputs, registered.input_arg, strict=False):
        pin = next(pin for pin in operator.inputs if pin.name == pin_name)
        if argument.type_list_attr:
            assert entry.lists[pin.name] == argument.type_list_attr == pin.dtype
        elif argument.type_attr:
            assert entry.types[argument.type_attr] == pin.dtype
        else:
            assert tf.as_dtype(argument.type).name == pin.dtype
        assert argument.is_ref == (pin.name in operator.updates)
        counted = entry.counted if pin.many else ""
        assert argument.number_attr or argument.type_list_attr == entry.lists.get(pin.name, counted)
    attributes = {attribute.name for attribute in registered.attr}
    called = {attribute: ATTRIBUTE_NAMES.get((name, attribute), attribute) for attribute in entry.attributes}
    assert {*entry.types, *called.values()} <= attributes
    for attribute in (each for each in operator.attributes if each.name in entry.attributes):
        stated = next(a for a in registered.attr if a.name == called[attribute.name])
        if stated.HasField("default_value") and attribute.kind == "bool":
            assert stated.default_value.b == attribute.default


@pytest.mark.parametrize("op", KNOWN)
def test_what_is_read_exists_in_tensorflow(op: str) -> None:
    assert op_def_registry.get(op) is not None


@pytest.mark.parametrize("wired", [False, True], ids=["literals", "wired"])
@pytest.mark.parametrize("operator", [BLOCKS[name] for name in EXPORTED], ids=EXPORTED)
def test_every_operator(operator: Operator, wired: bool) -> None:
    page = example_pages.of_example(operator, wired=wired)
    if operator.name == "RaggedCross":  # TensorFlow's process ends where these types differ
        page.change(operator.name, out_row_splits_type="int32")
    if operator.name in COMPILED:
        with pytest.raises(tf.errors.InvalidArgumentError, match="No OpKernel was registered"):
            Running(page).step()
    else:
        check(page)


def test_values_of_every_type() -> None:
    check(example_pages.of_values(), 1)


@pytest.mark.parametrize("text", [False, True])
def test_training(text: bool) -> None:
    check(example_pages.training(), 3, {"x": np.ones((2, 3), np.float32)}, text=text)


# Batches are fed to a graph, which a test above does.
@pytest.mark.parametrize("name", [path.name for path in example_pages.FILES if "batches" not in path.name])
def test_example_pages(name: str) -> None:
    check(Page.load(example_pages.FOLDER / name))


@pytest.mark.parametrize("wanted", [
    ["descend:out", "w:ref"], ["w:ref", "descend:out", "after:y", "w_squared:y"], ["train:accum_out", "pooled:output"],
    ["train:out"], ["train:accum_out"], ["accum:ref", "table:ref", "train:out"],
])  # fmt: skip
def test_any_set_of_outputs_is_one_step(wanted: list[str]) -> None:
    """What is fetched with an update is from before it, and what the update gives from after it."""
    page = example_pages.training()
    feeds = {"x": np.ones((2, 3), np.float32)}
    running, session = Running(page, feeds), Session(page)
    for step in range(20):
        expected = session.run(wanted)
        for name, array in running.step(wanted).items():
            assert_like(array, expected[name], False, f"step {step}, {name}")


@pytest.mark.parametrize("dtype", (*NUMBERS, "bool"))
def test_variables_of_every_type(dtype: str) -> None:
    array = example_pages.values(dtype)
    page = Page()
    page.add("Variable", id="v", initial_value=array)
    page.add("Identity", id="same", input="v:ref")
    page.add("Assign", id="set", ref="v:ref", value=array[::-1])
    check(page)


def test_variables_of_text() -> None:
    page = Page()
    page.add("Variable", id="v", initial_value={"value": ["a", "b"], "dtype": "string"})
    page.add("Assign", id="set", ref="v:ref", value={"value": ["c", "d"], "dtype": "string"})
    running = Running(page)
    assert running.step()["v:ref"].tolist() == [b"a", b"b"]
    assert running.step()["v:ref"].tolist() == [b"c", b"d"]


def test_whole_numbers_are_divided_alike() -> None:
    page = Page()
    page.add("Div", id="d", x=[7, -7, 7, -7], y=[2, 2, -2, -2])
    check(page, 1)


def test_rows_that_occur_twice_are_refused_by_lazy_adam() -> None:
    page = example_pages.of_example(BLOCKS["SparseApplyAdam"])
    page.change("SparseApplyAdam", grad=[[2.0], [3.0]], indices=[1, 1])
    with pytest.raises(tf.errors.InvalidArgumentError):
        Running(page).step()


# Graphs that TensorFlow made


def page_of(build: Callable[[], dict[str, Any]], feeds: dict[str, Any] | None = None) -> Page:
    """Build a graph, import it, and compare what `build` says is worth comparing."""
    with tf.Graph().as_default() as graph:
        fetched = build()
        init = v1.global_variables_initializer() if v1.global_variables() else None
    page = Page.from_graphdef(graph.as_graph_def().SerializeToString())
    with v1.Session(graph=graph) as session:
        if init is not None:
            session.run(init)
        expected = session.run(fetched, {f"{id}:0": value for id, value in (feeds or {}).items()})
    results = Session(page).run(feeds=feeds)
    assert not results.errors
    for wire, array in expected.items():
        found = results[wire]
        np.testing.assert_allclose(found, array, rtol=1e-6, atol=1e-7)
    return page


def test_a_model() -> None:
    def build() -> dict[str, Any]:
        x = v1.placeholder(tf.float32, [None, 3], "x")
        y = v1.placeholder(tf.float32, [None, 2], "y")
        w = v1.get_variable("w", initializer=np.full((3, 2), 0.5, np.float32), use_resource=False)
        b = v1.get_variable("b", initializer=np.zeros(2, np.float32), use_resource=True)
        logits = tf.nn.bias_add(tf.matmul(x, w), b)
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits, name="losses")
        total = tf.reduce_mean(loss, axis=[0, 1], name="total")
        both = tf.concat([logits, tf.gather(logits, [1, 0])], axis=0, name="both")
        kept = tf.reduce_sum(both, axis=1, keepdims=True, name="kept")
        return {"losses:loss": loss, "total:output": total, "kept:output": kept}

    rng = np.random.default_rng(0)
    page = page_of(build, {"x": rng.standard_normal((2, 3)).astype("f"), "y": rng.uniform(size=(2, 2)).astype("f")})
    ops = [block.op for block in page]
    assert ops.count("SigmoidCrossEntropyWithLogits") == 1
    assert ops.count("Variable") == 2
    assert len({block.at for block in page}) == len(page)


def test_training_of_tensorflow() -> None:
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", initializer=np.array([1.0, 2.0], np.float32), use_resource=False)
        v1.train.GradientDescentOptimizer(0.25).apply_gradients([(tf.square(w, name="gradient"), w)], name="train")
        init = v1.global_variables_initializer()
    page = Page.from_graphdef(graph.as_graph_def().SerializeToString())
    session = Session(page)
    session.loop(3)
    with v1.Session(graph=graph) as other:
        other.run(init)
        for _ in range(3):
            other.run("train")
        np.testing.assert_allclose(session.variables["w"], other.run(w), rtol=1e-6)


def test_sparse_gradients_of_tensorflow() -> None:
    def build() -> dict[str, Any]:
        data = tf.constant(np.arange(12, dtype="f").reshape(4, 3), name="data")
        pooled = tf.sparse.segment_mean(data, [0, 3, 3], [0, 0, 1], name="pooled")
        (gradient,) = tf.gradients(tf.square(pooled), data)
        tf.identity(gradient, "gradient")
        return {"gradient:output": gradient}

    page = page_of(build)
    assert "SparseSegmentMeanGrad" in [block.op for block in page]


def test_a_function() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def function(x: Any) -> Any:
        return tf.nn.softmax(tf.transpose(x) * 2.0 + 1.0, name="out")

    data = function.get_concrete_function().graph.as_graph_def()
    page = Page.from_graphdef(data.SerializeToString())
    x = np.array([[1, 2], [3, 5]], "f")
    np.testing.assert_allclose(Session(page).run(feeds={"x": x})["out:softmax"], function(x), rtol=1e-6)


def test_concat_offsets() -> None:
    def build() -> dict[str, Any]:
        shapes = [v1.placeholder(tf.int32, [2], name) for name in "ab"]
        offsets = tf.raw_ops.ConcatOffset(concat_dim=0, shape=shapes, name="offsets")
        return {"second:y": tf.square(offsets[1], "second"), "first:y": tf.square(offsets[0], "first")}

    page = page_of(build, {"a": np.array([3, 2], np.int32), "b": np.array([5, 2], np.int32)})
    assert sorted(block.attributes["position"] for block in page if block.op == "ConcatOffset") == [0, 1]


def test_what_pages_have_not_is_named() -> None:
    with tf.Graph().as_default() as graph:
        tf.linalg.cholesky(tf.eye(2), name="root")
    with pytest.raises(
        PageError, match=r"is not an operator that pages support; of TensorFlow's they have Abs, Add, AddManySparse"
    ):
        Page.from_graphdef(graph.as_graph_def().SerializeToString())
