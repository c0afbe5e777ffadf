"""GraphDefs as plain nodes, checked: what is not a graph is refused here, before anything is made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rowgrad._runtime import texts
from rowgrad.blocks._graphdef import protos
from rowgrad.blocks._graphdef.tensors import NAME_OF, REF, bad
from rowgrad.errors import PageError

MOST_NODES = 50_000
FIELDS = {"b": "a boolean", "i": "a whole number", "s": "a text", "type": "a type", "shape": "a shape",
          "tensor": "a tensor", "list": "a list"}  # fmt: skip


class Edge(NamedTuple):
    """An output of a node."""

    node: str
    output: int


@dataclass
class Node:
    """One node: where its inputs come from, which nodes run before it, and its attributes as they are."""

    name: str
    op: str
    inputs: list[Edge]
    controls: list[str]
    attributes: Mapping[str, Any]
    uses: list[tuple[str, int, int]] = field(default_factory=list)  # who takes it: node, input, and which output

    def attribute(self, name: str, kind: str) -> Any:
        """The attribute `name`, which must be of this kind; None if it is not there."""
        if name not in self.attributes:
            return None
        value = self.attributes[name]
        if value.WhichOneof("value") != kind:
            raise bad(f"an attribute {name} that is not {FIELDS[kind]}", self.name)
        return getattr(value, kind)

    def dtype(self, name: str) -> str | None:
        """The name of the type in an attribute; references count as what they refer to."""
        number = self.attribute(name, "type")
        if number is None:
            return None
        found = NAME_OF.get(number - REF if number > REF else number)
        if found is None:
            raise bad(f"values of type {number}, which pages do not support", self.name, "wrong-dtype")
        return found

    def mark(self, name: str) -> str | None:
        """One of rowgrad's own attributes, if it is there and is a text."""
        value = self.attributes.get(f"_rowgrad_{name}")
        if value is None or value.WhichOneof("value") != "s":
            return None
        try:
            return str(value.s.decode())
        except UnicodeDecodeError:
            return None


def parse(data: Any) -> dict[str, Node]:
    """The nodes of a GraphDef, binary (bytes) or as text (str), by name, in order."""
    graph = _decoded(data)
    if not graph.node:
        raise PageError("it is not a GraphDef, or has no nodes.", code="bad-graphdef")
    if len(graph.node) > MOST_NODES:
        raise PageError(f"the graph has {len(graph.node)} nodes; at most {MOST_NODES} are read.", code="too-large")
    nodes: dict[str, Node] = {}
    for proto in graph.node:
        if not proto.name or not proto.op:
            raise PageError("the graph has a node without a name or an operator.", code="bad-graphdef")
        if proto.name in nodes:
            raise PageError("the graph has two nodes of this name.", block=proto.name, code="duplicate-id")
        nodes[proto.name] = _node(proto)
    for node in nodes.values():
        for position, edge in enumerate(node.inputs):
            _known(nodes, node, edge.node).uses.append((node.name, position, edge.output))
        for name in node.controls:
            _known(nodes, node, name)
    return nodes


def _decoded(data: Any) -> Any:
    graph = protos.load().GraphDef()
    if isinstance(data, str):
        texts.check(data, "the GraphDef", PageError)
    from google.protobuf import text_format

    try:
        if isinstance(data, str):
            text_format.Parse(data, graph)
        else:
            graph.ParseFromString(bytes(memoryview(data)))
    except text_format.ParseError as error:
        raise PageError(f"it is not a GraphDef as text ({_first_line(error)}).", code="bad-graphdef") from error
    except RecursionError:
        raise PageError("it is nested too deep for a GraphDef.", code="bad-graphdef") from None
    except TypeError:
        raise PageError("a GraphDef is given as bytes, or as the text of one.", code="bad-graphdef",
                        value=type(data).__name__) from None  # fmt: skip
    except Exception as error:  # DecodeError, and whatever else protobuf meets in damaged strings
        raise PageError(f"it is not a complete GraphDef ({_first_line(error)}).", code="bad-graphdef") from error
    return graph


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200].rstrip(".")


def _node(proto: Any) -> Node:
    inputs, controls = [], []
    for text in proto.input:
        if text.startswith("^"):
            controls.append(text[1:])
            continue
        if controls:
            raise bad("an input after its control inputs", proto.name)
        name, colon, index = text.partition(":")
        if colon and not (index.isascii() and index.isdigit() and len(index) < 10):
            raise bad(f"an input {text!r}, which is not an output of a node", proto.name)
        inputs.append(Edge(name, int(index or 0)))
    return Node(proto.name, proto.op, inputs, controls, dict(proto.attr))


def _known(nodes: dict[str, Node], node: Node, name: str) -> Node:
    if name not in nodes:
        raise PageError(f"an input comes from {name!r}, which is not in the graph.", block=node.name,
                        code="bad-graphdef")  # fmt: skip
    return nodes[name]


def sorted_nodes(nodes: Mapping[str, Node], more: Mapping[str, list[str]]) -> list[Node]:
    """The nodes, each after those it needs; `more` are needs that the graph does not show. A cycle is refused."""
    order: dict[str, None] = {}
    for start in nodes:
        path: dict[str, None] = {}
        stack = [(start, False)]
        while stack:
            name, done = stack.pop()
            if done:
                del path[name]
                order[name] = None
            elif name in path:
                cycle = [*list(path)[list(path).index(name) :], name]
                shown = " ← ".join(cycle[:8]) + (" …" if len(cycle) > 8 else "")
                raise PageError(f"the graph has a cycle: {shown}.", block=name, code="cycle")
            elif name not in order:
                node = nodes[name]
                path[name] = None
                stack.append((name, True))
                needs = [*(edge.node for edge in node.inputs), *node.controls, *more.get(name, ())]
                stack.extend((other, False) for other in reversed(needs) if other not in order)
    return [nodes[name] for name in order]
