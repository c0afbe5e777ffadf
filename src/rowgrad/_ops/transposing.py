"""Derivatives forward, out of the rules for gradients: a rule is linear in what flows in, so it can be transposed.

`push_forward` calls the rules with `Flow`s in place of what flows back. What they call is noted, and gone through
backwards: the transpose of each operator is its own gradient rule. A `Flow` has no value; where a rule asks how many
rows it has, or for something else that does not depend on its numbers, stand-ins of its shape are put through.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import OPERATORS, Operator
from rowgrad._ops.gradients import DENSE, Namespace, evaluate, mentioned, rules


class Flow:
    """A value that depends on what flows; `stand_in` gives one of its shape and type."""

    def __init__(self, stand_in: Callable[[], Any]) -> None:
        self._make, self._made = stand_in, None

    def stand_in(self) -> Any:
        """Any value of the shape and type that this one would have."""
        if self._made is None:
            self._made = self._make()
        return self._made


class Tools:
    """What a framework has: `op` runs operators, the others give the name of a value's type, zeros, and its shape."""

    def __init__(self, op: Namespace, type_of: Callable[[Any], str], zeros_like: Callable[[Any], Any]) -> None:
        self.op, self.type_of, self.zeros_like = op, type_of, zeros_like


def push_forward(
    tools: Tools, operator: Operator, names: Mapping[str, Any], flowing: Sequence[str], tangents: Mapping[str, Any]
) -> dict[str, Any]:
    """How the outputs `flowing` change when inputs change by `tangents`; those that do not change are left out.

    `names` has inputs, outputs, attributes and type variables, as rules know them. Of an input that takes many arrays
    the tangent is a list, None for one that does not change.
    """
    roots = {name: Flow(lambda value=names[name]: value) for name in flowing}  # type: ignore[misc]
    known = {**names, **{f"d_{name}": root for name, root in roots.items()}}
    tape = _Tape(tools)
    for name, found in tangents.items():
        for position, tangent in enumerate(found if isinstance(found, list) else [found]):
            for rule in rules(operator, name, frozenset(flowing)) if tangent is not None else ():
                value = evaluate(rule, tape, {**known, "position": position})  # type: ignore[arg-type]
                tape.add(value, tangent)
    tape.pull_back()
    return {name: tape.found[root] for name, root in roots.items() if root in tape.found}


class _Tape:
    """The `op` that notes what is called with flows, and runs everything else."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.found: dict[Flow, Any] = {}
        self._calls: list[Callable[[], None]] = []

    def rows(self, value: Any) -> Any:
        return self.tools.op.rows(value.stand_in() if isinstance(value, Flow) else value)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return getattr(self, name)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        run = self.tools.op[name]

        def call(*values: Any, **attributes: Any) -> Any:
            if name == "Shape" or not any(isinstance(value, Flow) for value in values):
                return run(*map(_solid, values), **attributes)
            return self._note_dense(name, values) if name in DENSE else self._note(name, values, attributes)

        return call

    def add(self, flow: Flow, cotangent: Any) -> None:
        """Note what has come back to a flow."""
        self.found[flow] = self.found[flow] + cotangent if flow in self.found else cotangent

    def pull_back(self) -> None:
        """Go through the calls, the last one first."""
        for call in reversed(self._calls):
            call()

    def _note_dense(self, name: str, values: tuple[Any, ...]) -> Flow:
        op = self.tools.op
        result = Flow(lambda: op[name](*map(_solid, values)))

        def back() -> None:
            if result not in self.found:
                return
            cotangent, (first, second) = self.found[result], values
            if name == "Sub":
                for value, factor in ((first, 1.0), (second, -1.0)):
                    if isinstance(value, Flow):
                        self.add(value, cotangent if factor == 1 else op.Mul(cotangent, factor))
            elif name == "Reshape":
                self.add(first, op.Reshape(cotangent, op.Shape(first.stand_in())))
            elif name == "Transpose":
                self.add(first, op.Transpose(cotangent, [second.index(axis) for axis in range(len(second))]))
            elif name == "ReduceSum":
                self.add(first, _spread(op, cotangent, first.stand_in(), second))
            elif name == "Gather":
                self.add(first, op.UnsortedSegmentSum(cotangent, second, op.rows(first.stand_in())))
            elif name == "GatherNd":
                self.add(first, _scattered(op, cotangent, first.stand_in(), second))
            elif isinstance(first, Flow):  # a product or a quotient, which is linear in one of the two
                self.add(first, op[name](cotangent, second))
            else:
                self.add(second, op.Mul(cotangent, first))

        self._calls.append(back)
        return result

    def _note(self, name: str, values: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        operator, run = OPERATORS[name], self.tools.op[name]
        ran: list[Any] = []

        def results() -> Any:
            if not ran:
                found = run(*map(_solid, values), **attributes)
                ran.extend([found] if operator.result is None else found)
            return ran

        flows = [Flow(lambda i=i: results()[i]) for i in range(len(operator.outputs))]  # type: ignore[misc]
        self._calls.append(lambda: self._transpose(operator, values, attributes, flows))
        return flows[0] if operator.result is None else operator.result(*flows)

    def _transpose(
        self, operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any], flows: list[Flow]
    ) -> None:
        reached = {pin.name: self.found[flow] for pin, flow in zip(operator.outputs, flows, strict=True)
                   if flow in self.found}  # fmt: skip
        if not reached:
            return
        for pin, value in zip(operator.inputs, values, strict=True):
            if isinstance(value, Flow):
                for rule in rules(operator, pin.name, frozenset(reached)):
                    known = self._known(operator, values, attributes, flows, reached, mentioned(rule))
                    self.add(value, evaluate(rule, self.tools.op, known))

    def _known(self, operator: Operator, values: tuple[Any, ...], attributes: dict[str, Any], flows: list[Flow],
               reached: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:  # fmt: skip
        """The names that a rule wants; stand-ins are made only for these."""
        settings = check_attributes(operator, attributes) if operator.attributes else {}
        known: dict[str, Any] = {name: settings[name] for name in wanted if name in settings}
        for pin, value in zip(operator.inputs, values, strict=True):
            if pin.name in wanted:
                known[pin.name] = _solid(value)
            if pin.dtype in wanted:
                known[pin.dtype] = self.tools.type_of(_solid(value))
        for pin, flow in zip(operator.outputs, flows, strict=True):
            if pin.name in wanted:
                known[pin.name] = flow.stand_in()
            if f"d_{pin.name}" in wanted:
                arrived = reached.get(pin.name)
                known[f"d_{pin.name}"] = self.tools.zeros_like(flow.stand_in()) if arrived is None else arrived
        return known


def _spread(op: Namespace, sums: Any, like: Any, axes: Sequence[int]) -> Any:
    """What a sum along `axes` spreads back to all that it is the sum of."""
    kept = [1 if axis in axes else size for axis, size in enumerate(like.shape)]
    return op.Mul(op.OnesLike(like), op.Reshape(sums, kept))


def _scattered(op: Namespace, values: Any, like: Any, indices: Any) -> Any:
    """What was gathered from places of `like`, put back there."""
    shape = op.Shape(like)
    places = op.SparseReduceSegments(indices, shape, [], dense=True)
    return op.Reshape(op.UnsortedSegmentSum(values, places, prod(shape)), shape)


def _solid(value: Any) -> Any:
    return value.stand_in() if isinstance(value, Flow) else value
