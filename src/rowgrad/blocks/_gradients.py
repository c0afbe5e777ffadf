"""The blocks of gradients: from an output back to what it depends on, by the rules of the catalogue.

Each rule becomes blocks. What is known already stays out of the picture: sizes that are certain are typed in as
literals, sums over no axis and reshapes to the same shape are left out, and the same block is not added twice.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rowgrad._ops import Operator
from rowgrad._ops.gradients import Namespace, evaluate, rules
from rowgrad._ops.results import RowGradient
from rowgrad._ops.shapes import Shape
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._core import Core
from rowgrad.blocks.inference import Signal
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.operators import BLOCKS

LONGEST = 80  # characters of a name within its group


class Backward:
    """The way from `source` back to `targets`, as blocks on `page` whose names begin with `prefix`.

    With `rows`, gradients of tables are compact wherever that is possible, not only where a look-up asks for it.
    """

    def __init__(self, page: Core, prefix: str, source: Wire, targets: set[Wire], *, rows: bool = False) -> None:
        self.page = page
        self.source = source
        self.targets = targets
        self.order = page.order()
        self.on_path = self._blocks_on_path()
        self.contributions: dict[Wire, list[Any]] = {}
        self.sums: dict[Wire, Any] = {}
        self.rows = rows
        self.builder = Builder(page, prefix)
        self.op = self.builder.op
        self.compact = {wire for wire in targets if self._is_compact(wire)}

    def _blocks_on_path(self) -> set[str]:
        """The blocks that lie between the targets and the source."""
        reached: set[str] = {wire.block for wire in self.targets}
        for id in self.order:
            if any(wire.block in reached for _, wire in self.page[id].wires()):
                reached.add(id)
        needed = {self.source.block}
        for id in reversed(self.order):
            if id in needed:
                needed.update(wire.block for _, wire in self.page[id].wires())
        return reached & needed

    def _carries(self, block: Block, pin: str, wire: Wire) -> bool:
        """Whether a gradient flows from `block` through its input `pin` to `wire`."""
        if block.id not in self.on_path or wire.block not in self.on_path or pin not in block.operator.gradient:
            return False
        dtype = self.page.signal(wire).dtype
        return dtype is None or dtype in dtypes.FLOATS

    def _is_compact(self, target: Wire) -> bool:
        """Whether every way to `target` is a look-up that is to have a compact gradient, and none leads on from it."""
        origin = self.page[target.block]
        if any(self._carries(origin, pin, wire) for pin, wire in origin.wires()):
            return False  # the rules of what computes it need all rows
        ways = [(block, pin) for block in self.page for pin, wire in block.wires()
                if wire == target and self._carries(block, pin, wire)]  # fmt: skip
        return (
            target != self.source
            and bool(ways)
            and all(
                pin in block.operator.compact_gradient and (self.rows or block.attributes.get("sparse_gradient"))
                for block, pin in ways
            )
        )

    def go(self) -> None:
        """Walk from the source back to the targets."""
        self.builder.context = self.source.block
        self.contributions[self.source] = [self.op.OnesLike(self.source)]
        for id in reversed(self.order):
            if id in self.on_path:
                self._through(self.page[id])

    def _through(self, block: Block) -> None:
        """Bring the gradients of the outputs of `block` to its inputs."""
        flowing = {pin.name for pin in block.operator.outputs if Wire(block.id, pin.name) in self.contributions}
        if not flowing:
            return
        self.builder.context = block.id
        names: dict[str, Any] | None = None
        for pin in block.operator.inputs:
            for position, wire in enumerate(block.sources(pin.name)):
                if not isinstance(wire, Wire) or not self._carries(block, pin.name, wire):
                    continue
                if names is None:
                    names = self._names(block, flowing)
                part = {"part": wire, "position": position} if pin.many else {}
                self._contribute(block, pin.name, wire, {**names, **part}, frozenset(flowing))

    def _names(self, block: Block, flowing: set[str]) -> dict[str, Any]:
        """What rules may speak of."""
        inferred = self.page.inferred(block.id)
        names: dict[str, Any] = dict(inferred.attributes)
        for pin in block.operator.inputs:
            signals = inferred.inputs.get(pin.name)
            signal = signals[0] if isinstance(signals, list) else signals
            if pin.dtype in block.operator.types and signal is not None:
                names[pin.dtype] = signal.dtype
        for name, source in block.inputs.items():
            values = [item if isinstance(item, Wire) else inferred.literals[name, i]
                      for i, item in enumerate(block.sources(name))]  # fmt: skip
            names[name] = values if isinstance(source, tuple) else values[0]
        for output in block.operator.outputs:
            wire = Wire(block.id, output.name)
            names[output.name] = wire
            names[f"d_{output.name}"] = self.gradient(wire) if output.name in flowing else _Zeros(wire)
        return names

    def _contribute(
        self, block: Block, pin: str, wire: Wire, names: Mapping[str, Any], flowing: frozenset[str]
    ) -> None:
        for rule in rules(block.operator, pin, flowing, compact=wire in self.compact):
            self.contributions.setdefault(wire, []).append(evaluate(rule, self.op, names))

    def gradient(self, wire: Wire) -> Any:
        """The whole gradient of an output: where ways meet, the sum."""
        if wire in self.sums:
            return self.sums[wire]
        found = self.contributions.get(wire)
        self.builder.context = wire.block
        if not found:
            total: Any = self.op.ZerosLike(wire)
        elif len(found) == 1:
            total = self.builder.as_wire(found[0]) if not isinstance(found[0], RowGradient) else found[0]
        elif wire in self.compact:
            total = self._sum_rows(wire, found)
        else:
            total = self.op.AddN(found)
        self.sums[wire] = total
        return total

    def _sum_rows(self, wire: Wire, found: list[RowGradient]) -> RowGradient:
        """Compact gradients of one table: all rows one after the other, and those of the same row added up."""
        op = self.op
        types = {self.page.signal(part.sorted_unique_indices).dtype for part in found}
        ids = [part.sorted_unique_indices for part in found]
        if len(types) > 1:
            ids = [op.Cast(id, DstT="int64") for id in ids]
        rows = op.Concat([part.output for part in found], 0)
        indices = op.Concat(ids, 0)
        entries = op.Range(0, op.rows(indices), 1)
        summed: RowGradient = op.SparseSegmentSumGradV2(rows, indices, entries, op.rows(wire))
        return summed


class _Zeros:
    """The gradient of an output into which none flows; a block only if a rule needs it."""

    def __init__(self, like: Wire) -> None:
        self.like = like


class _Rows:
    """A number of rows that only running can tell; its type is that of the pin it is wired to."""

    def __init__(self, of: Wire) -> None:
        self.of = of


class Builder:
    """Applies operators by adding blocks, and leaves out those that would change nothing."""

    def __init__(self, page: Core, prefix: str) -> None:
        self.page = page
        self.prefix = prefix
        self.context = ""  # the forward block that is being differentiated
        self.added: dict[Any, dict[str, Any]] = {}
        for block in page:
            self._know(block)
        self.op = Namespace(BLOCKS, lambda operator: partial(self.apply, operator), self.rows)

    def apply(self, operator: Operator, *arguments: Any, **attributes: Any) -> Any:
        """What `operator` gives, as wires, or as arrays where they are certain."""
        outputs = self._outputs(operator, arguments, attributes)
        return next(iter(outputs.values())) if operator.result is None else operator.result(**outputs)

    def _outputs(self, operator: Operator, arguments: tuple[Any, ...], attributes: Mapping[str, Any]) -> dict[str, Any]:
        values = [self._settled(argument, operator.dtypes_of(pin))
                  for pin, argument in zip(operator.inputs, arguments, strict=True)]  # fmt: skip
        simple = self._without_block(operator, values, attributes)
        if simple is not None:
            return simple
        key = _call(operator, values, attributes)
        if key not in self.added:
            pins = [pin.name for pin in operator.inputs]
            block = self.add(operator.name, **dict(zip(pins, values, strict=True)), **attributes)
            self.added[key] = {pin.name: Wire(block.id, pin.name) for pin in operator.outputs}
        return self.added[key]

    def add(self, op: str, **given: Any) -> Block:
        """Add a block that is called after its operator and the forward block that it is for."""
        return self.page.add(op, self.free(f"{op}_{self.context.replace('/', '_')}"), **given)

    def free(self, name: str) -> str:
        """`name` within the group, cut if it is long, and numbered if it is taken."""
        name = name[:LONGEST]
        number, id = 0, f"{self.prefix}/{name}"
        while id in self.page:
            number += 1
            id = f"{self.prefix}/{name}_{number}"
        return id

    def _know(self, block: Block) -> None:
        """What the forward half computes already is not computed again."""
        operator = block.operator
        if operator.role != "operator" or operator.updates or block.missing():
            return
        literals = self.page.inferred(block.id).literals
        values = [[item if isinstance(item, Wire) else literals[pin.name, i]
                   for i, item in enumerate(block.sources(pin.name))] for pin in operator.inputs]  # fmt: skip
        given = [found if pin.many else found[0] for pin, found in zip(operator.inputs, values, strict=True)]
        outputs = {pin.name: Wire(block.id, pin.name) for pin in operator.outputs}
        self.added.setdefault(_call(operator, given, block.attributes), outputs)

    def _settled(self, value: Any, allowed: tuple[str, ...]) -> Any:
        """`value` for a pin that takes the types `allowed`."""
        if isinstance(value, _Zeros):
            return self.op.ZerosLike(value.like)
        if isinstance(value, _Rows):
            dtype = "int64" if "int64" in allowed else "int32"
            return self.op.Gather(self.op.Shape(value.of, out_type=dtype), 0)
        return [self._settled(item, allowed) for item in value] if isinstance(value, list) else value

    def as_wire(self, value: Any) -> Wire:
        """A gradient as the output of a block, also where it is certain."""
        if isinstance(value, Wire):
            return value
        return self.add("Const", value=np.asarray(value))["output"]

    def rows(self, value: Any) -> Any:
        """The number of rows of `value`."""
        if not isinstance(value, Wire):
            return len(value)
        shape = self.page.signal(value).shape
        if shape and isinstance(shape[0], int):
            return shape[0]
        return _Rows(value)

    def _without_block(
        self, operator: Operator, values: list[Any], attributes: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        name = operator.name
        if name in ("Shape", "Size"):
            shape = self._signal(values[0]).shape
            if shape is not None and all(isinstance(size, int) for size in shape):
                found = shape if name == "Shape" else np.prod([int(str(size)) for size in shape], dtype=np.int64)
                return {"output": np.array(found, attributes.get("out_type", "int32"))}
        if name == "BroadcastGradientArgs":
            axes = _summed_axes(self._shape_in(values[0]), self._shape_in(values[1]))
            if axes is not None:
                return dict(zip(("r0", "r1"), axes, strict=True))
        if name in ("Reshape", "BroadcastTo") and self._has_shape(values[0], values[1]):
            return {"output": values[0]}
        if name == "ReduceSum" and not isinstance(values[1], Wire) and np.size(values[1]) == 0:
            return {"output": values[0]}
        if all(_is_certain(item) for value in values for item in (value if isinstance(value, list) else [value])):
            results = operator(*values, **{**_defaults(operator), **attributes})
            results = results if operator.result else (results,)
            return {pin.name: result for pin, result in zip(operator.outputs, results, strict=True)}
        return None

    def _signal(self, value: Any) -> Signal:
        if isinstance(value, Wire):
            return self.page.signal(value)
        array = np.asarray(value)
        return Signal(dtypes.name_of(array.dtype), array.shape, array)

    def _shape_in(self, value: Any) -> Shape | None:
        """The shape that `value` holds, named sizes included, if it is that of something on the page."""
        if not isinstance(value, Wire):
            return tuple(int(size) for size in np.atleast_1d(value))
        block = self.page[value.block]
        source = block.inputs.get("input")
        return self.page.signal(source).shape if block.op == "Shape" and isinstance(source, Wire) else None

    def _has_shape(self, value: Any, shape: Any) -> bool:
        wanted, found = self._shape_in(shape), self._signal(value).shape
        return wanted is not None and None not in wanted and wanted == found


def _summed_axes(left: Shape | None, right: Shape | None) -> tuple[Array, Array] | None:
    """The axes over which the gradients of two broadcast arrays are summed, if that is certain."""
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    axes: tuple[list[int], list[int]] = ([], [])
    for axis in range(rank):
        sizes = [shape[axis - rank] if axis >= rank - len(shape) else 1 for shape in (left, right)]
        if sizes[0] == sizes[1] and sizes[0] is not None:
            continue
        if 1 not in sizes:
            return None
        axes[sizes.index(1)].append(axis)
    return np.array(axes[0], np.int32), np.array(axes[1], np.int32)


def _defaults(operator: Operator) -> dict[str, Any]:
    return {attribute.name: attribute.default for attribute in operator.attributes}


def _is_certain(value: Any) -> bool:
    """Whether `value` is known already and made of whole numbers (sizes, axes, places), or a single number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True
    return isinstance(value, np.ndarray | np.generic) and (value.ndim == 0 or value.dtype.name in dtypes.IDS)


def _call(operator: Operator, values: list[Any], attributes: Mapping[str, Any]) -> Any:
    """What tells one use of an operator from another."""
    settings = {**_defaults(operator), **attributes}
    return (operator.name, tuple(map(_key, values)), tuple((name, repr(value)) for name, value in settings.items()))


def _key(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_key, value))
    if isinstance(value, Wire):
        return value
    array: Array = np.asarray(value)
    return (array.dtype.str, array.shape, array.tobytes())
