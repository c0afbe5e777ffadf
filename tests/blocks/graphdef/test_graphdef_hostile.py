"""GraphDefs from anywhere: tensors in all their spellings, and what is damaged or made to do harm."""

import contextlib
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.compat.proto import graph_pb2, tensor_pb2

import example_pages
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks import Page, Session
from rowgrad.blocks._graphdef.tensors import NUMBER_OF, Reader, write_tensor
from rowgrad.errors import PageError, RowgradError


def tensor(text: str) -> np.ndarray:
    return Reader().read(text_format.Parse(text, tensor_pb2.TensorProto()), "c")


def page(text: str) -> Page:
    return Page.from_graphdef(text)


def refusal(data: Any) -> PageError:
    with pytest.raises(PageError) as caught:
        Page.from_graphdef(data)
    return caught.value


CONST = 'node {{ name: "{0}" op: "Const" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{ }} float_val: 2 }} }} }} }}'  # noqa: E501


# Tensors


@pytest.mark.parametrize("dtype", [*NUMPY, "string"])
def test_tensors_are_the_same_bits_again(dtype: str) -> None:
    array = example_pages.values(dtype)
    for each in (array, array[0, :1], array[0, 0:1].reshape(()), array[:0]):
        proto = tensor_pb2.TensorProto()
        write_tensor(proto, each)
        again = Reader().read(tensor_pb2.TensorProto.FromString(proto.SerializeToString()), "c")
        assert (again.dtype, again.shape) == (each.dtype, each.shape)
        assert again.tolist() == each.tolist() if dtype == "string" else again.tobytes() == each.tobytes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 1 float_val: 2", np.array([1, 2, 2], np.float32)),
        ("dtype: DT_FLOAT tensor_shape { dim { size: 2 } }", np.zeros(2, np.float32)),
        ("dtype: DT_DOUBLE tensor_shape { dim { size: 0 } }", np.zeros(0)),
        ("dtype: DT_INT8 tensor_shape { } int_val: -128", np.array(-128, np.int8)),
        ("dtype: DT_UINT32 tensor_shape { } uint32_val: 4294967295", np.array(2**32 - 1, np.uint32)),
        ("dtype: DT_UINT64 tensor_shape { } uint64_val: 18446744073709551615", np.array(2**64 - 1, np.uint64)),
        ("dtype: DT_INT64 tensor_shape { } int64_val: -5", np.array(-5, np.int64)),
        ("dtype: DT_BOOL tensor_shape { dim { size: 2 } } bool_val: true", np.array([True, True])),
        ("dtype: DT_HALF tensor_shape { } half_val: 15360", np.array(1, np.float16)),
        ("dtype: DT_BFLOAT16 tensor_shape { } half_val: 16256", np.array(1, ml_dtypes.bfloat16)),
        ("dtype: DT_COMPLEX64 tensor_shape { } scomplex_val: 1 scomplex_val: 2", np.array(1 + 2j, np.complex64)),
        ("dtype: DT_COMPLEX128 tensor_shape { } dcomplex_val: 1 dcomplex_val: 2", np.array(1 + 2j)),
        ("dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: 'a'", np.array(["a", "a"], object)),
        ("dtype: DT_QUINT8 tensor_shape { } int_val: 255", np.array(255, np.uint8).view(NUMPY["quint8"])),
    ],
)  # fmt: skip
def test_single_values_and_shorthands(text: str, expected: np.ndarray) -> None:
    found = tensor(text)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 1 float_val: 2", "2 values for the shape"),
        ("dtype: DT_FLOAT tensor_shape { dim { size: 2 } } tensor_content: 'abc'", "3 bytes for"),
        ("dtype: DT_FLOAT tensor_shape { dim { size: -1 } }", "shape is not known"),
        ("dtype: DT_FLOAT tensor_shape { unknown_rank: true }", "shape is not known"),
        ("dtype: DT_INT8 tensor_shape { } int_val: 300", "int8 cannot hold"),
        ("dtype: DT_HALF tensor_shape { } half_val: -1", "16-bit words"),
        ("dtype: DT_COMPLEX64 tensor_shape { } scomplex_val: 1", "half a complex number"),
        ("dtype: DT_RESOURCE tensor_shape { }", "of type 20"),
        ("tensor_shape { }", "of type 0"),
        (f"dtype: DT_FLOAT tensor_shape {{ dim {{ size: {2**40} }} }} float_val: 1", "256 MB"),
        (f"dtype: DT_STRING tensor_shape {{ dim {{ size: {2**40} }} }} string_val: 'a'", "256 MB"),
        (f"dtype: DT_FLOAT tensor_shape {{ dim {{ size: {2**40} }} dim {{ size: {2**40} }} }}", "larger than any"),
        (f"dtype: DT_FLOAT tensor_shape {{ dim {{ size: {2**62} }} dim {{ size: 0 }} }}", "larger than any"),
        ("dtype: DT_FLOAT tensor_shape { " + "dim { size: 1 } " * 40 + "}", "more dimensions"),
    ],
)  # fmt: skip
def test_wrong_tensors_are_refused_and_cost_nothing(text: str, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PageError, match=words):
            tensor(text)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_shorthands_are_limited_together() -> None:
    reader = Reader()
    proto = text_format.Parse(f"dtype: DT_FLOAT tensor_shape {{ dim {{ size: {2**20} }} }}", tensor_pb2.TensorProto())
    with pytest.raises(PageError, match="256 MB in all"):
        for _ in range(100):
            reader.read(proto, "c")


def test_every_type_has_a_number() -> None:
    assert set(NUMBER_OF) == {*NUMPY, "string"}


# Graphs


def test_inputs_by_name_and_number() -> None:
    made = page(CONST.format("a") + CONST.format("b") + """
        node { name: "s" op: "AddV2" input: "a:0" input: "b" input: "^n" }
        node { name: "n" op: "NoOp" input: "^a" }
        node { name: "_odd>name" op: "Neg" input: "s" }
    """)  # fmt: skip
    assert [block.id for block in made] == ["a", "b", "s", "odd_name"]
    assert Session(made).run()["odd_name"].y == -4
    assert len({block.at for block in made}) == 4


def test_unknown_sizes_of_placeholders_stay_apart() -> None:
    text = 'node {{ name: "{0}" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "shape" value {{ shape {{ dim {{ size: -1 }} dim {{ size: 2 }} }} }} }} }}'  # noqa: E501
    made = page(text.format("x/1") + text.format("y"))
    assert made.signal("x/1:output").shape == ("x_1_0", 2)
    assert made.signal("y:output").shape == ("y_0", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no nodes"),
        ("node {", "not a GraphDef as text"),
        ("nodes { }", "not a GraphDef as text"),
        ('node { op: "NoOp" }', "without a name"),
        (CONST.format("a") * 2, "a: the graph has two nodes of this name"),
        ('node { name: "a" op: "Neg" input: "b" }', "a: an input comes from 'b', which is not in the graph"),
        ('node { name: "a" op: "NoOp" input: "^b" }', "a: an input comes from 'b'"),
        ('node { name: "a" op: "Neg" input: "a" }', "a: the graph has a cycle: a ← a"),
        ('node { name: "a" op: "Neg" input: "b" } node { name: "b" op: "Neg" input: "a" }', "cycle: a ← b ← a"),
        ('node { name: "a" op: "Cholesky" }', "a: Cholesky is not an operator that pages support; of TensorFlow's"),
        ('node { name: "a" op: "Const" }', "a: the graph has a constant without a value"),
        ('node { name: "a" op: "Const" attr { key: "value" value { i: 1 } } }', "value that is not a tensor"),
        ('node { name: "a" op: "Placeholder" }', "no attribute dtype"),
        ('node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_RESOURCE } } }', "values of type 20"),
        ('node { name: "a" op: "VariableV2" }', "a: this variable has no initial value"),
        (CONST.format("a") + 'node { name: "b" op: "Neg" input: "a:1" }', "b: the graph has an input a:1"),
        (CONST.format("a") + 'node { name: "b" op: "Neg" input: "a:x" }', "b: the graph has an input 'a:x'"),
        (CONST.format("a") + 'node { name: "b" op: "Neg" input: "a:99999999999999999999" }', "b: the graph has an"),
        (CONST.format("a") + 'node { name: "b" op: "Neg" input: "^a" input: "a" }', "after its control inputs"),
        (CONST.format("a") + 'node { name: "b" op: "Neg" input: "a" input: "a" }', "2 inputs where Neg takes 1"),
        (CONST.format("a") + 'node { name: "b" op: "AddN" input: "a" attr { key: "N" value { i: 9 } } }', "N says 9"),
        (CONST.format("a") + 'node { name: "b" op: "Cast" input: "a" }', "no attribute DstT"),
        (CONST.format("a") + 'node { name: "b" op: "Sum" input: "a" input: "a" }', "b:axis"),
        (CONST.format("a") + 'node { name: "b" op: "GatherV2" input: "a" input: "a" input: "a" }', "another axis"),
        (CONST.format("a") + 'node { name: "b" op: "Assign" input: "a" input: "a" }', "b:ref: it must be wired from a"),
        (CONST.format("a") + 'node { name: "b" op: "ConcatOffset" input: "a" }', "takes at least 2"),
        ('node { name: "b" op: "NoOp" } node { name: "c" op: "Neg" input: "b" }', "c: the graph has an input b:0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    assert words in str(refusal(text))


def test_other_things_than_graphs() -> None:
    for data in (b"", b"\x00", b"not a graph", 5, None, [1], b"\xff" * 100):
        refusal(data)


def test_deep_text_is_refused() -> None:
    opening = 'node { name: "a" op: "b" attr { key: "f" value '
    refusal(opening + '{ func { attr { key: "f" value ' * 3000)


def test_a_hundred_thousand_nodes() -> None:
    graph = graph_pb2.GraphDef()
    for number in range(100_000):
        graph.node.add(name=f"n{number}", op="Neg", input=[f"n{number - 1}"] if number else [])
    assert "100000 nodes; at most" in str(refusal(graph.SerializeToString()))


def test_long_chains_and_wide_nodes() -> None:
    graph = graph_of_chain(3000)
    made = Page.from_graphdef(graph.SerializeToString())
    assert len(made) == 3001
    back = graph_of_chain(3000)
    back.node[1].input[0] = "n3000"
    assert "cycle" in str(refusal(back.SerializeToString()))


def graph_of_chain(length: int) -> Any:
    graph = text_format.Parse(CONST.format("n0"), graph_pb2.GraphDef())
    for number in range(1, length + 1):
        graph.node.add(name=f"n{number}", op="Neg", input=[f"n{number - 1}"])
    return graph


def allow_only_errors_of_rowgrad(use: Callable[[], Any]) -> None:
    with contextlib.suppress(RowgradError):
        use()


def test_every_truncation() -> None:
    whole = example_pages.training().to_graphdef()
    assert isinstance(whole, bytes)
    for length in range(0, len(whole), 7):
        allow_only_errors_of_rowgrad(lambda length=length: Page.from_graphdef(whole[:length]))
    text = example_pages.training().to_graphdef(text=True)
    for length in range(0, len(text), 97):
        allow_only_errors_of_rowgrad(lambda length=length: Page.from_graphdef(text[:length]))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_and_lines(seed: int) -> None:
    rng = random.Random(seed)
    whole = bytes(example_pages.training().to_graphdef())  # type: ignore[arg-type]
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        allow_only_errors_of_rowgrad(lambda damaged=damaged: Page.from_graphdef(bytes(damaged)))
    nodes = list(graph_pb2.GraphDef.FromString(whole).node)
    for _ in range(60):
        graph = graph_pb2.GraphDef()
        graph.node.extend(rng.sample(nodes, rng.randint(1, len(nodes))))
        node = rng.choice(graph.node)
        if node.input and rng.random() < 0.5:
            node.input[rng.randrange(len(node.input))] = rng.choice(nodes).name
        elif node.attr:
            del node.attr[rng.choice(list(node.attr))]
        node.op = rng.choice(nodes).op if rng.random() < 0.3 else node.op
        allow_only_errors_of_rowgrad(lambda graph=graph: Page.from_graphdef(graph.SerializeToString()))
