"""Pages and results as the protocol has them. What has not changed is told by the identity of blocks and arrays, which
are immutable, and is neither made nor sent again."""

import weakref
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Block, BlockResult, Group, Page, Session, Signal
from rowgrad.blocks.groups import Recipe
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.page import Note
from rowgrad.blocks.pagefile import record
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, WAITING
from rowgrad_studio.catalogue import pins_of
from rowgrad_studio.problems import problem
from rowgrad_studio.values import value_view


class Shelf:
    """Large arrays of pages. The browser gets a name for each, which can be pasted and set, instead of the numbers."""

    MARK = "kept:"

    def __init__(self) -> None:
        self._arrays: weakref.WeakValueDictionary[str, Array] = weakref.WeakValueDictionary()
        self._names: dict[int, str] = {}
        self._numbers = count(1)

    def keep(self, array: Array) -> str:
        """The name of `array`, for as long as it lives."""
        name = self._names.get(id(array))
        if name is None or self._arrays.get(name) is not array:
            name = self._names[id(array)] = f"{self.MARK}{next(self._numbers)}"
            self._arrays[name] = array
        return name

    def fetch(self, source: Any) -> Any:
        """`source` of a pin or an attribute, with the array instead of its name."""
        if isinstance(source, list) and any(isinstance(item, dict) for item in source):
            return [self.fetch(item) for item in source]
        name = source.get("file") if isinstance(source, dict) else None
        if isinstance(name, str) and name in self._arrays:
            array = self._arrays[name]
            return Literal(array, dtypes.name_of(array.dtype))
        return source


SHELF = Shelf()


def signal_view(signal: Signal) -> dict[str, Any]:
    """The `Signal` at a pin."""
    shape = None if signal.shape is None else ["?" if size is None else size for size in signal.shape]
    return {"dtype": signal.dtype, "shape": shape, "text": str(signal)}


def block_view(page: Page, block: Block) -> dict[str, Any]:
    """The `Block` as it stands on the page; pins that no operator of the catalogue has are told with it."""
    inferred = page.inferred(block.id)
    written = record(page, block, SHELF.keep)
    return {
        "id": block.id,
        "op": block.op,
        "at": written["at"],
        "inputs": written.get("inputs", {}),
        "attrs": written.get("attrs", {}),
        "in": {
            pin: [signal_view(one) for one in (found if isinstance(found, list) else [found])]
            for pin, found in inferred.inputs.items()
        },
        "out": {pin: signal_view(signal) for pin, signal in inferred.outputs.items()},
        "missing": block.missing(),
        "group": block.group,
        "pins": None if BLOCKS.get(block.op) is block.operator else pins_of(block.operator),
    }


def group_view(page: Page, group: Group) -> dict[str, Any]:
    """The `Group`: whether it is collapsed, and what it is derived from."""
    recipe = group.recipe
    return {
        "name": group.name,
        "collapsed": group.collapsed,
        "at": list(group.at),
        "kind": recipe.kind if recipe is not None else "",
        "about": "" if recipe is None else _recipe_text(recipe),
        "settings": {} if recipe is None else {name: _setting(value) for name, value in recipe.settings.items()},
        "problem": None if group.problem is None else problem(group.problem)["message"],
        "members": len(page.members(group.name)),
    }


def _recipe_text(recipe: Recipe) -> str:
    by = ", ".join(wire.block for wire in recipe.xs)
    return f"{recipe.optimizer} of {by} by {recipe.y}" if recipe.kind == "training" else f"{recipe.y} by {by}"


def _setting(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str) else str(value)


def note_view(note: Note) -> dict[str, Any]:
    """The `Note` on the page."""
    return {"id": note.id, "text": note.text, "at": list(note.at)}


def result_view(result: BlockResult) -> dict[str, Any]:
    """The `Result` of a block."""
    return {
        "status": result.status,
        "stale": result.stale,
        "seconds": float(f"{result.seconds:.3g}"),
        "error": None if result.error is None else problem(result.error),
        "needs": result.needs,
        "reason": result.reason,
        "outputs": {pin: value_view(array) for pin, array in result.outputs.items()},
    }


def group_result(page: Page, name: str, found: Mapping[str, BlockResult]) -> BlockResult:
    """What is known of a collapsed group: the worst of its blocks, and what comes out of it."""
    members = [found[id] for id in page.members(name) if id in found]
    status = next((one for one in (FAILED, SKIPPED, WAITING) if any(m.status == one for m in members)), DONE)
    first = next((member for member in members if member.status == status), None)
    outputs = {} if status != DONE else {
        pin.name: found[pin.wire.block].outputs[pin.wire.pin] for pin in page.pins(name).outputs
    }  # fmt: skip
    return BlockResult(
        name,
        "Group",
        status if members else WAITING,
        outputs=outputs,
        stale=any(member.stale for member in members),
        seconds=sum(member.seconds for member in members),
        error=None if first is None else first.error,
        needs=None if first is None else first.needs,
    )


class Ran(NamedTuple):
    """A result, and what the block was when it came about."""

    result: Mapping[str, Array]
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any]


def results_of(page: Page, session: Session, ran: dict[str, Ran]) -> dict[str, BlockResult]:
    """What the session knows of its page.

    A session also calls results stale after an evaluation, which has run the page on other batches. Here a result is
    stale when the page, a feed or a file has changed since; errors are too. `ran` keeps what is needed to tell.
    """
    found = dict(session.results())
    for id in page.order():
        result, block = found[id], page[id]
        if result.status not in (DONE, FAILED, SKIPPED):
            continue
        then = ran.get(id)
        if then is None or then.result is not result.outputs:
            then = ran[id] = Ran(result.outputs, block.inputs, block.attributes)
        is_changed = then.inputs is not block.inputs or then.attributes is not block.attributes
        feeding = [wire.block for _, wire in block.wires()]
        is_source = not feeding and block.operator.role not in (
            "variable",
            "batches",
        )  # a file may have changed, or what is fed
        is_stale = is_changed or any(found[other].stale for other in feeding)
        if result.status == DONE:
            is_stale = result.stale and (is_stale or is_source)
        if is_stale != result.stale:
            found[id] = replace(result, stale=is_stale)
    return found


def same_result(before: BlockResult, after: BlockResult) -> bool:
    """Whether both would look the same."""
    if before.status == DONE == after.status:
        return before.stale == after.stale and _same_arrays(before.outputs, after.outputs)
    return (before.status, before.stale, before.needs, before.error) == (
        after.status,
        after.stale,
        after.needs,
        after.error,
    )


def _same_arrays(before: Mapping[str, Array], after: Mapping[str, Array]) -> bool:
    return before.keys() == after.keys() and all(before[pin] is after[pin] for pin in before)
