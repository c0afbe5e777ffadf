"""TensorFlow graphs as pages.

Nodes become blocks of their names. What is one thing on a page and several in a graph is put together again by what
the graph computes: a variable with its reads and its first assignment, a recipe, a constant that only one node uses
and that is called after it. The attributes that rowgrad writes only tell what a graph has no place for; a graph
without them gives a page that computes the same.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rowgrad._ops.catalogue import REQUIRED
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._graphdef.building import Builder, Given
from rowgrad.blocks._graphdef.matching import Match, find, is_constant
from rowgrad.blocks._graphdef.names import ATTRIBUTE_NAMES, KNOWN, PARTS, GraphOp
from rowgrad.blocks._graphdef.reading import Edge, Node, sorted_nodes
from rowgrad.blocks._graphdef.tensors import Reader, bad
from rowgrad.blocks.model import Wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.page import Page
from rowgrad.errors import PageError

VARIABLES = ("VariableV2", "Variable", "VarHandleOp")
READS = ("Identity", "Snapshot", "DeepCopy", "ReadVariableOp")
ASSIGNS = ("Assign", "AssignVariableOp")
IDLE = ("VarIsInitializedOp", "IsVariableInitialized")  # what TensorFlow adds, and nothing uses
OTHERS = (
    "Const",
    "Placeholder",
    "NoOp",
    *PARTS,
    "ScatterSub",
    "DeepCopy",
    "ReadVariableOp",
    *VARIABLES,
)
KINDS = {"bool": "b", "int": "i", "text": "s", "dtype": "type", "list": "list", "numbers": "list"}
LARGEST_LITERAL = 1024  # elements of a constant that becomes a literal because of its name


def to_page(nodes: Mapping[str, Node], name: str | None = None, folder: Path | None = None) -> Page:
    """The page that `nodes` make."""
    titles = [mark for node in nodes.values() if (mark := node.mark("page")) is not None]
    page = Page(name if name is not None else titles[0] if titles else "page", folder=folder)
    return _Import(nodes, page).run()


class _Import:
    def __init__(self, nodes: Mapping[str, Node], page: Page) -> None:
        self.nodes = nodes
        self.build = Builder(page, nodes)
        self.reader = Reader()
        self.arrays: dict[str, Array] = {}
        self.batches: dict[str, str] = {}  # the blocks of the nodes that stand for batches
        self.wires: dict[Edge, Wire] = {}
        self.variables = {name for name, node in nodes.items() if node.op in VARIABLES}
        grouped = {name for node in nodes.values() if node.op == "NoOp" for name in node.controls}
        self.first = {name: self._first_assignment(name, grouped) for name in self.variables}
        self.past_casts = self._past_casts()
        self.matches: dict[str, Match] = {}
        self.owner: dict[str, str] = {}  # of nodes that are part of a recipe: its last one
        self.skipped: set[str] = {node.name for node in self.first.values() if node is not None}
        for node in nodes.values():
            match = find(nodes, node, self.variables)
            if match is not None:
                self.matches[node.name] = match
                self.skipped |= match.parts - {node.name}
                self.owner |= dict.fromkeys(match.parts, node.name)
        self.skipped |= {edge.node for edge in self.past_casts}
        self.nodes_of: dict[str, str] = {}  # of the blocks that are variables
        self.new_values: dict[tuple[str, str], Wire] = {}  # (update, variable) → the output that is its new value

    def run(self) -> Page:
        """Make the blocks, each after those that feed it."""
        initial = {name: [node.inputs[1].node] for name, node in self.first.items() if node is not None}
        for node in sorted_nodes(self.nodes, initial):
            if node.name not in self.skipped:
                self._take(node)
        return self.build.finished()

    def _first_assignment(self, variable: str, grouped: set[str]) -> Node | None:
        """The assignment that gives a variable its initial value: one that a NoOp (``init``) runs."""
        found = [self.nodes[user] for user, position, _ in self.nodes[variable].uses
                 if position == 0 and self.nodes[user].op in ASSIGNS]  # fmt: skip
        found = [node for node in found if len(node.inputs) == 2]
        first = [node for node in found if node.name in grouped]
        by_name = [node for node in first or found if node.name.startswith(f"{variable}/Assign")]
        return next(iter(by_name or first), None)

    def _past_casts(self) -> dict[Edge, Edge]:
        """The axis of ConcatOffset is int32 in TensorFlow only; what is cast for that alone needs no cast here."""
        found = {}
        for node in self.nodes.values():
            if node.op == "ConcatOffset" and node.inputs:
                cast = self.nodes[node.inputs[0].node]
                single = cast.op == "Cast" and len(cast.uses) == len(cast.inputs) == 1
                if single and (cast.dtype("SrcT"), cast.dtype("DstT")) == ("int64", "int32"):
                    found[Edge(cast.name, 0)] = cast.inputs[0]
        return found

    # Nodes

    def _take(self, node: Node) -> None:
        if node.name in self.matches:
            self._take_match(node, self.matches[node.name])
        elif node.op == "Const":
            if self._is_literal(node):
                return
            file = self.build.file(node, self._array(node))
            held = {"value": Given(self._array(node), node.mark("literal"))}
            self._block(node, "File" if file else "Const", {}, file or held)
        elif node.op == "Placeholder":
            if not self._take_column(node):
                self._take_placeholder(node)
        elif node.name in self.variables:
            self._take_variable(node)
        elif node.op in READS and node.inputs and self._is_variable(node.inputs[0]):
            self._take_read(node)
        elif node.op in PARTS:
            self._take_parts(node)
        elif node.op == "Identity" and node.inputs and self.nodes[node.inputs[0].node].op in PARTS:
            self._take_part(node, self.nodes[node.inputs[0].node], node.inputs[0].output)
        elif node.op == "ScatterSub":
            var, indices, updates = self._inputs(node, ("var", "indices", "updates")).values()
            one = Given(np.array(1, self.build.numpy(updates)), None)
            self._block(node, "SparseApplyGradientDescent", {"var": var, "alpha": one, "grad": updates,
                                                             "indices": indices})  # fmt: skip
        elif node.op == "StridedSlice" and self._is_element(node):
            self._take_element(node)
        elif node.op == "DeepCopy":
            self._take_known(node, *KNOWN["Identity"])
        elif node.op in KNOWN:
            self._take_known(node, *KNOWN[node.op])
        elif node.op != "NoOp" and not (node.op in IDLE and not node.uses):
            listed = ", ".join(sorted({*KNOWN, *OTHERS}))
            raise PageError(f"{node.op} is not an operator that pages support; of TensorFlow's they have {listed}.",
                            block=node.name, code="unknown-operator", value=node.op)  # fmt: skip

    def _take_known(self, node: Node, op: str, entry: GraphOp) -> None:
        for name, allowed in entry.refused.items():
            kind = "b" if isinstance(allowed, bool) else "i" if isinstance(allowed, int) else "s"
            value = node.attribute(name, kind)
            if value is not None and value != allowed:
                raise PageError(f"pages do not support {node.op} with {name} = {value!r}.", block=node.name,
                                code="unknown-operator", value=node.op)  # fmt: skip
        pins = entry.inputs
        if node.op == "GatherV2":
            pins = (*pins, "axis")
        inputs = self._lists(node, op, entry) if entry.lists else self._inputs(node, pins, op)
        if node.op == "GatherV2":
            del inputs["axis"]
            if not is_constant(self.nodes[node.inputs[2].node], 0):
                raise PageError("it gathers along another axis than the first; pages have no such operator.",
                                block=node.name, code="unknown-operator", value=node.op)  # fmt: skip
        self._block(node, op, inputs, self._attributes(node, op))

    def _take_match(self, node: Node, match: Match) -> None:
        inputs = {}
        for pin in BLOCKS[match.op].inputs:
            if pin.name in match.variables:
                inputs[pin.name] = self._source(Edge(match.variables[pin.name], 0), node, pin.name)
            else:
                inputs[pin.name] = self._source(match.pins[pin.name], node, pin.name)
        self._block(node, match.op, inputs)

    def _take_column(self, node: Node) -> bool:
        """A placeholder that was a column of a Batches block; that block is added with the first of them."""
        try:
            main, pin = json.loads(node.mark("column") or "null")
            if main not in self.batches:
                given = json.loads(self.nodes[main].mark("batches") or "null")
                self.batches[main] = self.build.add(self.nodes[main], "Batches", {}, given)
            self.wires[Edge(node.name, 0)] = self.build.page.wire(Wire(self.batches[main], pin))
        except (PageError, ValueError, TypeError, LookupError, RecursionError):
            return False
        return True

    def _take_placeholder(self, node: Node) -> None:
        attributes: dict[str, Any] = {"dtype": node.dtype("dtype")}
        if attributes["dtype"] is None:
            raise bad("no attribute dtype, which Placeholder needs", node.name)
        shape = node.attribute("shape", "shape")
        if shape is not None and not shape.unknown_rank:
            attributes["shape"] = [
                dim.size if dim.size >= 0 else dim.name if dim.name.isidentifier() else self.build.size(node, axis)
                for axis, dim in enumerate(shape.dim)
            ]
        self._block(node, "Placeholder", {}, attributes)

    def _take_variable(self, node: Node) -> None:
        assign = self.first[node.name]
        if assign is None:
            raise PageError("this variable has no initial value: no NoOp, such as `init`, runs an Assign to it.",
                            block=node.name, code="bad-graphdef")  # fmt: skip
        id = self._block(node, "Variable", {"initial_value": self._source(assign.inputs[1], node, "initial_value")})
        self.nodes_of[id] = node.name

    def _take_read(self, node: Node) -> None:
        """The value of a variable: as it was or, after an update, as that makes it."""
        variable = node.inputs[0].node
        after = [self.new_values[name, variable] for name in node.controls if (name, variable) in self.new_values]
        self.wires[Edge(node.name, 0)] = after[0] if after else self.wires[Edge(variable, 0)]

    def _is_variable(self, edge: Edge) -> bool:
        return edge.node in self.variables and edge.output == 0

    def _take_parts(self, node: Node) -> None:
        """TensorFlow's operator gives all parts: a block for each that is used as it is."""
        self._inputs(node, PARTS[node.op][0], node.op)
        used = {index for user, _, index in node.uses if self.nodes[user].op != "Identity"}
        for index in sorted(used) if node.uses else range(self._parts(node)):
            self._take_part(node, node, index)

    def _parts(self, node: Node) -> int:
        """How many parts there are."""
        count = PARTS[node.op][3]
        return self._count(node, count, False) if count else len(node.inputs) - 1

    def _take_part(self, node: Node, parts: Node, index: int) -> None:
        pins, which, output, _ = PARTS[parts.op]
        sources = self._inputs(parts, pins, parts.op)
        if index >= self._parts(parts):
            raise bad(f"an input {parts.name}:{index}, an output that is not there", node.name)
        given = {**self._attributes(parts, parts.op, which), which: index}
        id = self._block(node, parts.op, sources, given, numbered=node is parts)
        self.wires[Edge(node.name, index if node is parts else 0)] = Wire(id, output)

    def _is_element(self, node: Node) -> bool:
        """Whether it takes one element of a vector, as TensorFlow takes a size out of a shape.

        What rowgrad has written is a block as it was.
        """
        if len(node.inputs) != 4 or node.mark("at") is not None:
            return False
        arrays = [self._array(self.nodes[edge.node]) for edge in node.inputs[1:] if self.nodes[edge.node].op == "Const"]
        given = [array.tolist() for array in arrays if array.shape == (1,) and array.dtype.kind in "iu"]
        masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
        is_one = node.attribute("shrink_axis_mask", "i") == 1 and not any(node.attribute(m, "i") for m in masks)
        return is_one and len(given) == 3 and given[0] != [-1] and given[1:] == [[given[0][0] + 1], [1]]

    def _take_element(self, node: Node) -> None:
        source, begin, *_ = self._inputs(node, ("params", "begin", "end", "strides")).values()
        place = begin.array if isinstance(begin, Given) else self._array(self.nodes[node.inputs[1].node])
        self._block(node, "Gather", {"params": source, "indices": Given(place.reshape(()), None)})

    # Parts of blocks

    def _block(self, node: Node, op: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any] | None = None,
               *, numbered: bool = False) -> str:  # fmt: skip
        id = self.build.add(node, op, inputs, attributes or {}, numbered=numbered)
        operator = BLOCKS[op]
        if not numbered and op not in PARTS:
            for index, pin in enumerate(operator.outputs):
                if not (operator.updates and index):
                    self.wires[Edge(node.name, index)] = Wire(id, pin.name)
        for pin_name, output in operator.updates.items():
            source = inputs[pin_name]
            if isinstance(source, Wire):
                self.new_values[node.name, self.nodes_of.get(source.block, "")] = Wire(id, output)
        return id

    def _inputs(self, node: Node, pins: tuple[str, ...], op: str = "") -> dict[str, Any]:
        """What is at each pin, in TensorFlow's order; some of them may take many, all equally many."""
        many = {pin.name for pin in BLOCKS[op].inputs if pin.many} & set(pins) if op else set()
        spare = len(node.inputs) - len(pins)
        if spare < 0 or (spare and not many):
            raise bad(
                f"{len(node.inputs)} inputs where {node.op} takes {'at least ' * bool(many)}{len(pins)}", node.name
            )
        each, left = divmod(spare + len(many), max(len(many), 1))
        if many and (left or node.attribute("N", "i") not in (None, each)):
            raise bad(f"{spare + len(many)} inputs where N says {node.attribute('N', 'i')}", node.name)
        edges = iter(node.inputs)
        return {
            pin: [self._source(next(edges), node, pin) for _ in range(each)]
            if pin in many
            else self._source(next(edges), node, pin)
            for pin in pins
        }

    def _lists(self, node: Node, op: str, entry: GraphOp) -> dict[str, Any]:
        """The same where each pin that takes many has an attribute that counts its arrays, or lists their types."""
        counts = {pin: self._count(node, name, name in BLOCKS[op].types) for pin, name in entry.lists.items()}
        wanted = sum(counts.get(pin, 1) for pin in entry.inputs)
        if min(counts.values()) < 0 or wanted != len(node.inputs):
            raise bad(f"{len(node.inputs)} inputs where its attributes say {wanted}", node.name)
        edges = iter(node.inputs)
        return {
            pin: [self._source(next(edges), node, pin) for _ in range(counts[pin])]
            if pin in counts
            else self._source(next(edges), node, pin)
            for pin in entry.inputs
        }

    def _count(self, node: Node, name: str, of_types: bool) -> int:
        found = node.attribute(name, "list" if of_types else "i")
        if found is None:
            raise bad(f"no attribute {name}, which {node.op} needs", node.name)
        return len(found.type) if of_types else int(found)

    def _source(self, edge: Edge, node: Node, pin: str) -> Any:
        """What an input comes from: a wire, or a literal."""
        edge = self.past_casts.get(edge, edge)
        source = self.nodes[edge.node]
        if source.op == "Const" and edge.output == 0 and self._is_literal(source):
            return Given(self._array(source), source.mark("literal") or "typed")
        if edge not in self.wires:
            raise bad(f"an input {edge.node}:{edge.output}, an output that is not there or not supported on pages",
                      node.name)  # fmt: skip
        return self.wires[edge]

    def _is_literal(self, node: Node) -> bool:
        """Whether a constant is part of the block that uses it."""
        users = {self.owner.get(user, user) for user, _, _ in node.uses}
        if node.uses and all(self._takes_element(user) and place for user, place, _ in node.uses):
            return True
        if node.mark("at") is not None or len(users) != 1:
            return self._is_absorbed(node)
        if node.mark("literal") is not None or self._is_absorbed(node):
            return True
        within = node.name.startswith(f"{users.pop().removesuffix('/Assign')}/")
        return within and self._array(node).size <= LARGEST_LITERAL

    def _takes_element(self, name: str) -> bool:
        return self.nodes[name].op == "StridedSlice" and self._is_element(self.nodes[name])

    def _is_absorbed(self, node: Node) -> bool:
        """Whether a constant is only the axis of gathers, which a page does not write."""
        users = [(self.nodes[user], position) for user, position, _ in node.uses]
        return bool(users) and all(user.op == "GatherV2" and position == 2 for user, position in users)

    def _array(self, node: Node) -> Array:
        if node.name not in self.arrays:
            tensor = node.attribute("value", "tensor")
            if tensor is None:
                raise bad("a constant without a value", node.name)
            if node.attribute("dtype", "type") not in (None, tensor.dtype):
                raise bad("a constant that is not of the type it says", node.name)
            self.arrays[node.name] = self.reader.read(tensor, node.name)
        return self.arrays[node.name]

    def _attributes(self, node: Node, op: str, without: str = "") -> dict[str, Any]:
        """The attributes that are not what they are by default, and those that were given all the same."""
        given = (node.mark("given") or "").split(",")
        attributes = {}
        for attribute in BLOCKS[op].attributes:
            if attribute.name == without:
                continue
            kind = KINDS[attribute.kind]
            name = ATTRIBUTE_NAMES.get((op, attribute.name), attribute.name)
            value: Any = node.dtype(name) if kind == "type" else node.attribute(name, kind)
            if kind == "list" and value is not None:
                value = [*map(int, value.i), *map(float, value.f), *(each.decode(errors="replace") for each in value.s)]
            value = value.decode() if isinstance(value, bytes) else value
            if value is None and attribute.default is REQUIRED:
                raise bad(f"no attribute {attribute.name}, which {node.op} needs", node.name)
            if value is not None and (value != attribute.default or attribute.name in given):
                attributes[attribute.name] = value
        return attributes
