"""Blocks that are pasted: records as in a page file, under new names where the old ones are taken."""

from collections.abc import Mapping
from typing import Any

from rowgrad.blocks import Page
from rowgrad.blocks.model import as_wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError
from rowgrad_studio.arguments import OBJECT, PLACE, TEXT, checked
from rowgrad_studio.problems import Refusal
from rowgrad_studio.views import SHELF

ASIDE = 40  # how far from the original a copy stands, unless it is told where
FIELDS = {"id": TEXT, "op": TEXT, "at": PLACE.or_none(), "inputs": OBJECT.or_none(), "attrs": OBJECT.or_none()}


def paste(page: Page, records: list[dict[str, Any]], at: list[float] | None) -> list[str]:
    """Add the blocks that `records` describe, their upper left corner at `at`; gives their names.

    Wires among them lead to the copies. Wires from others are kept where the page has such an output, and it fits.
    """
    found = [checked(f"blocks[{number}]", record, FIELDS) for number, record in enumerate(records)]
    by_id = {record["id"]: record for record in found}
    if len(by_id) < len(found):
        raise Refusal("two of the blocks have one name.", "duplicate-id", argument="blocks")
    corner = [min((record["at"][axis] for record in found if record["at"]), default=0) for axis in (0, 1)]
    shift = [at[axis] - corner[axis] for axis in (0, 1)] if at is not None else [ASIDE, ASIDE]
    names: dict[str, str] = {}
    for id in _fed_first(by_id):
        record = by_id[id]
        x, y = record["at"] or corner
        place = (x + shift[0], y + shift[1])
        names[id] = _add(page, record, place, names)
    return [names[record["id"]] for record in found]


def _add(page: Page, record: Mapping[str, Any], at: tuple[float, float], names: Mapping[str, str]) -> str:
    attrs = {name: SHELF.fetch(value) for name, value in (record["attrs"] or {}).items()}
    many = _many(record["op"])
    inputs: dict[str, Any] = {}
    alone: dict[str, Any] = {}  # without the wires that come from blocks that are not pasted
    for pin, value in (record["inputs"] or {}).items():
        items = value if pin in many and isinstance(value, list) else [value]
        led = [(SHELF.fetch(_led(item, names)), _is_outer(item, names)) for item in items]
        kept = [item for item, is_outer in led if not is_outer or _is_there(page, item)]
        inner = [item for item, is_outer in led if not is_outer]
        if kept:
            inputs[pin] = kept if pin in many else kept[0]
        if inner:
            alone[pin] = inner if pin in many else inner[0]
    name = free_name(page, record["id"])
    try:
        return page.add(record["op"], name, at=at, **inputs, **attrs).id
    except PageError:
        if not any(_is_outer(item, names) for item in _wires(record)):
            raise
        return page.add(record["op"], name, at=at, **alone, **attrs).id


def _is_outer(item: Any, names: Mapping[str, str]) -> bool:
    """Whether it is a wire from a block that is not among those that are pasted."""
    return isinstance(item, str) and as_wire(item)[0] not in names


def _led(item: Any, names: Mapping[str, str]) -> Any:
    """A wire from a block that is pasted, led from its copy; all else as it is."""
    if not isinstance(item, str) or _is_outer(item, names):
        return item
    id, pin = as_wire(item)
    return names[id] if pin is None else f"{names[id]}:{pin}"


def _is_there(page: Page, wire: str) -> bool:
    try:
        page.wire(wire)
    except PageError:
        return False
    return True


def free_name(page: Page, id: str) -> str:
    """`id`, or, where it is taken, the next number of it."""
    if id not in page:
        return id
    base, _, number = id.rpartition("_")
    base = base if number.isdecimal() and base else id
    counted = 1
    while f"{base}_{counted}" in page:
        counted += 1
    return f"{base}_{counted}"


def _many(op: str) -> set[str]:
    return {pin.name for pin in BLOCKS[op].inputs if pin.many} if op in BLOCKS else set()


def _fed_first(by_id: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The ids, each after those of them that feed it."""
    order: dict[str, None] = {}
    path: set[str] = set()
    stack = [(id, False) for id in reversed(list(by_id))]
    while stack:
        id, fed = stack.pop()
        if fed:
            path.discard(id)
            order[id] = None
        elif id in path:
            raise Refusal("the wires of the blocks run in a cycle.", "cycle", argument="blocks")
        elif id not in order:
            path.add(id)
            stack.append((id, True))
            stack += [
                (other, False) for other in map(_block, _wires(by_id[id])) if other in by_id and other not in order
            ]
    return list(order)


def _wires(record: Mapping[str, Any]) -> list[str]:
    many, found = _many(record["op"]), []
    for pin, value in (record["inputs"] or {}).items():
        items = value if pin in many and isinstance(value, list) else [value]
        found += [item for item in items if isinstance(item, str)]
    return found


def _block(wire: str) -> str:
    return as_wire(wire)[0]
