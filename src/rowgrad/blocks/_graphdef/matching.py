"""Finding recipes in a graph: by what is computed, not by what nodes are called."""

from collections.abc import Mapping
from typing import NamedTuple

from rowgrad.blocks._graphdef.reading import Edge, Node
from rowgrad.blocks._graphdef.recipes import RECIPES, Part
from rowgrad.blocks._graphdef.tensors import Reader


class Match(NamedTuple):
    """A recipe that was found: the nodes that are part of it, and what is at its pins."""

    op: str
    parts: frozenset[str]
    pins: Mapping[str, Edge]
    variables: Mapping[str, str]


def find(nodes: Mapping[str, Node], root: Node, variables: set[str]) -> Match | None:
    """The recipe whose last node is `root`, if there is one."""
    for op, recipe in RECIPES.items():
        if recipe[""].op == root.op:
            match = _Matching(nodes, recipe, variables).run(op, root)
            if match is not None:
                return match
    return None


class _Matching:
    def __init__(self, nodes: Mapping[str, Node], recipe: Mapping[str, Part], variables: set[str]) -> None:
        self.nodes = nodes
        self.recipe = recipe
        self.variables = variables
        self.parts: dict[str, str] = {}
        self.pins: dict[str, Edge] = {}
        self.updated: dict[str, str] = {}
        self.constants: set[str] = set()

    def run(self, op: str, root: Node) -> Match | None:
        if not self._bind("", root.name):
            return None
        for part in [name for spec in self.recipe.values() for name in spec.controls]:
            if not any(self._bind(part, name) for name in root.controls if name not in self.parts.values()):
                return None
        inside = {*self.parts.values(), *self.constants}
        for name in inside - {root.name}:
            if any(user not in inside for user, _, _ in self.nodes[name].uses):
                return None
        if op == "SparseApplyGradientDescent" and not self._has_a_rate(root):
            return None
        return Match(op, frozenset(inside), self.pins, self.updated)

    def _bind(self, part: str, name: str) -> bool:
        """Let `part` be the node `name`, and what feeds it the parts that should; if that fits."""
        before = (dict(self.parts), dict(self.pins), dict(self.updated), set(self.constants))
        stack = [(part, name)]
        while stack:
            part, name = stack.pop()
            if self.parts.setdefault(part, name) != name:
                break
            spec, node = self.recipe[part], self.nodes[name]
            if node.op != spec.op or len(node.inputs) != len(spec.inputs):
                break
            if not all(self._fits(item, edge, stack) for item, edge in zip(spec.inputs, node.inputs, strict=True)):
                break
        else:
            return True
        self.parts, self.pins, self.updated, self.constants = before
        return False

    def _fits(self, item: str | int, edge: Edge, stack: list[tuple[str, str]]) -> bool:
        if isinstance(item, int):
            self.constants.add(edge.node)
            return is_constant(self.nodes[edge.node], item)
        if item.startswith("$"):
            return self.pins.setdefault(item[1:], edge) == edge
        if item.startswith("@"):
            self.updated[item[1:]] = edge.node
            return edge.node in self.variables
        if self.parts.get(item) != edge.node:
            stack.append((item, edge.node))
        return edge.output == 0

    def _has_a_rate(self, root: Node) -> bool:
        """Whether alpha · grad is that, and not the product of any two arrays."""
        rate = self.nodes[self.pins["alpha"].node]
        tensor = rate.attribute("value", "tensor") if rate.op == "Const" else None
        return root.mark("at") is not None or (tensor is not None and not tensor.tensor_shape.dim)


def is_constant(node: Node, value: int) -> bool:
    """Whether `node` is the constant `value`, a scalar."""
    tensor = node.attribute("value", "tensor") if node.op == "Const" else None
    if tensor is None or tensor.tensor_shape.dim or tensor.tensor_shape.unknown_rank:
        return False
    return bool(Reader().read(tensor, node.name) == value)
