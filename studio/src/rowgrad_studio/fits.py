"""Where a wire may go: the pins on the page that an output fits, the outputs that fit an input, and the operators that
have a pin for it. What is told here, `connect` takes, unless a block further on would no longer fit."""

from dataclasses import replace
from typing import Any

from rowgrad._ops import Operator, Pin
from rowgrad._ops.catalogue import REQUIRED
from rowgrad.blocks import Block, Page, Wire
from rowgrad.blocks.inference import Signal, infer_block
from rowgrad.blocks.model import as_wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import RowgradError
from rowgrad_studio.problems import Refusal


def fits_source(page: Page, source: str) -> dict[str, Any]:
    """What the output `source` can be wired to."""
    wire = page.wire(source)
    signal = page.signal(wire)
    before = _reach(page, wire.block, against=True)
    hidden = {id for name in _cards(page) for id in page.members(name)}
    pins = [
        f"{block.id}:{pin.name}"
        for block in page
        if block.id not in before and block.id not in hidden
        for pin in block.operator.inputs
        if _may_be(block.operator, pin, signal) and _is_taken(page, block, pin, wire)
    ]
    for name in _cards(page):
        for found in page.pins(name).inputs:
            ends = [(page[id], pin) for id, pin in found.targets]
            if not before.intersection(id for id, _ in found.targets) and all(
                _may_be(block.operator, _pin(block, pin), signal) and _is_taken(page, block, _pin(block, pin), wire)
                for block, pin in ends
            ):
                pins.append(f"{name}:{found.name}")
    operators = []
    for operator in BLOCKS.values():
        for pin in operator.inputs:
            if _may_be(operator, pin, signal) and _is_taken_anew(page, operator, pin, wire):
                operators.append({"op": operator.name, "pin": pin.name})
                break
    return {"pins": pins, "operators": operators}


def fits_target(page: Page, target: str) -> dict[str, Any]:
    """What the input `target` can be wired from."""
    id, name = as_wire(target)
    if id in page.groups:  # the first of the pins that it leads to stands for all
        id, name = next((found.targets[0] for found in page.pins(id).inputs if found.name == name), (id, name))
    block = page[id]
    pin = next((pin for pin in block.operator.inputs if pin.name == name), None)
    if pin is None:
        raise Refusal(f"{block.op} has no input {name}.", "unknown-pin", argument="target", value=target)
    after = _reach(page, id, against=False)
    hidden = {id for name in _cards(page) for id in page.members(name)}
    exits = {output.wire: f"{name}:{output.name}" for name in _cards(page) for output in page.pins(name).outputs}
    pins: list[str] = []
    for other in page:
        for output in other.operator.outputs if other.id not in after else ():
            wire = Wire(other.id, output.name)
            if _may_be(block.operator, pin, page.signal(wire)) and _is_taken(page, block, pin, wire):
                pins += [exits.get(wire, str(wire))] if wire in exits or other.id not in hidden else []
    allowed = set(block.operator.dtypes_of(pin))
    wants_variable = pin.name in block.operator.updates
    operators = []
    for operator in BLOCKS.values():
        if wants_variable and operator.role != "variable":
            continue
        for output in operator.outputs:
            if allowed.intersection(operator.dtypes_of(output)):
                operators.append({"op": operator.name, "pin": output.name})
                break
    return {"pins": pins, "operators": operators}


def _cards(page: Page) -> list[str]:
    """The groups that are shown as one block."""
    return [block.id for block in page.view() if block.op == "Group"] if page.groups else []


def _pin(block: Block, name: str) -> Pin:
    return next(pin for pin in block.operator.inputs if pin.name == name)


def _reach(page: Page, start: str, *, against: bool) -> set[str]:
    """The block `start`, and those whose values it is made of, or (not `against` the wires) those made of its own."""
    ways: dict[str, list[str]] = {}
    for block in page:
        for _, wire in block.wires():
            here, there = (block.id, wire.block) if against else (wire.block, block.id)
            ways.setdefault(here, []).append(there)
    found, stack = {start}, [start]
    while stack:
        for id in ways.get(stack.pop(), ()):
            if id not in found:
                found.add(id)
                stack.append(id)
    return found


def _may_be(operator: Operator, pin: Pin, signal: Signal) -> bool:
    return signal.dtype is None or signal.dtype in operator.dtypes_of(pin)


def _is_taken(page: Page, block: Block, pin: Pin, wire: Wire) -> bool:
    """Whether the block would take the wire at that pin, together with what is at its others."""
    if pin.name in block.operator.updates and page[wire.block].operator.role != "variable":
        return False
    source: Any = (*block.sources(pin.name), wire) if pin.many else wire
    try:
        infer_block(replace(block, inputs={**block.inputs, pin.name: source}), page.signal)
    except RowgradError:
        return False
    return True


def _is_taken_anew(page: Page, operator: Operator, pin: Pin, wire: Wire) -> bool:
    """Whether a new block of `operator` would take the wire at that pin."""
    if operator.role == "const":
        return False
    example = operator.example.attributes
    required = {a.name: example.get(a.name) for a in operator.attributes if a.default is REQUIRED}
    return _is_taken(page, Block("new", operator.name, {}, required, (0, 0)), pin, wire)
