"""Derived groups: gradients and training, derived anew whenever what they are derived from changes.

A derivation works on a page of its own, which holds the forward half and nothing else, so that it depends on that
alone. What comes out takes the place of the group's blocks: ids, places and wires to the outside are kept, and blocks
that have not changed stay the very same, so that sessions keep their results and variables.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes
from rowgrad.blocks import _layout as layout
from rowgrad.blocks._core import Core
from rowgrad.blocks._gradients import LONGEST, Backward
from rowgrad.blocks._instances import copies, instance_recipe, needs
from rowgrad.blocks._looking import MOST_BLOCKS, fed_first
from rowgrad.blocks._sources import renamed
from rowgrad.blocks._training import add_updates, check_recipe
from rowgrad.blocks.groups import GRADIENTS, INSTANCE, TRAINING, Group, Recipe, local
from rowgrad.blocks.inference import Inferred, infer_block
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.model import Block, Source, Wire
from rowgrad.errors import PageError, RowgradError

DATA = ("const", "variable", "file")  # of these blocks, only what is known of their outputs matters
INDICES = " indices"  # the role of the rows of a compact gradient, after the wire that it is of


@dataclass
class _Derived:
    """The blocks of a derivation, and which outputs are the gradients."""

    blocks: dict[str, Block] = field(default_factory=dict)
    inferred: dict[str, Inferred] = field(default_factory=dict)
    outputs: dict[str, Wire] = field(default_factory=dict)
    problem: PageError | None = None


def add_derived(page: Core, recipe: Recipe, name: str) -> Group:
    """Add a derived group; one that cannot be derived now is refused."""
    page._declare(Group(name, collapsed=True, recipe=recipe))
    page._recheck(())
    problem = page._groups[name].problem
    if problem is not None:
        raise problem.__cause__ or problem
    ids = page.members(name)
    page.tidy(ids)
    if ids:
        corner = (min(page[id].at[0] for id in ids), min(page[id].at[1] for id in ids))
        page._groups[name] = replace(page._groups[name], at=corner)
    return page._groups[name]


def gradients(group: Group) -> dict[Wire, Any]:
    """The gradients of a derived group: for each of its xs an output, or a `RowGradient` of two."""
    assert group.recipe is not None
    found: dict[Wire, Any] = {}
    for x in group.recipe.xs:
        rows = group.outputs.get(f"{x}{INDICES}")
        found[x] = group.outputs.get(str(x)) if rows is None else RowGradient(group.outputs[str(x)], rows)
    return found


def change_recipe(page: Core, group: Group, given: Mapping[str, Any]) -> None:
    """Set what a derived group is derived from."""
    recipe = group.recipe
    if recipe is None:
        raise PageError("it is not a derived group; it has no settings.", block=group.name, code="not-derived")
    if recipe.kind == INSTANCE:
        inputs = {**recipe.settings, **given}
        new = instance_recipe(page, recipe.y.block, {name: wire for name, wire in inputs.items() if wire is not None})
        refuse_loop(page, group.name, new)
        page._groups[group.name] = replace(group, recipe=new)
        page._recheck(())
        return
    y_name, xs_name = ("y", "xs") if recipe.kind == GRADIENTS else ("loss", "variables")
    y = page.wire(given[y_name]) if y_name in given else recipe.y
    xs = tuple(dict.fromkeys(map(page.wire, given[xs_name]))) if xs_name in given else recipe.xs
    settings = {name: value for name, value in given.items() if name not in (y_name, xs_name, "optimizer")}
    optimizer = given.get("optimizer", recipe.optimizer)
    kept = recipe.settings if optimizer == recipe.optimizer else {}
    merged = {name: value for name, value in {**kept, **settings}.items() if value is not None}
    new = Recipe(recipe.kind, y, xs, optimizer, merged)
    if recipe.kind == TRAINING:
        new = check_recipe(page, new)
    elif settings or optimizer:
        listed = ", ".join([*settings, *(["optimizer"] if optimizer else [])])
        raise PageError(f"gradients have no {listed}; they have: y, xs.", block=group.name, code="unknown-pin")
    refuse_loop(page, group.name, new)
    page._groups[group.name] = replace(group, recipe=new)
    page._recheck(())


def refuse_loop(page: Core, name: str, recipe: Recipe) -> None:
    """A group must not be derived from what it derives."""
    seen: set[str] = set()
    stack = needs(page, recipe)
    while stack:
        id = stack.pop()
        if id.startswith(f"{name}/"):
            raise PageError(f"it would be derived from {id}, which is its own.", block=name, code="cycle")
        if id in seen or id not in page:
            continue
        seen.add(id)
        stack += [wire.block for _, wire in page[id].wires()]
        other = page.groups.get(page[id].group)
        if other is not None and other.recipe is not None:
            stack += needs(page, other.recipe)


# Deriving anew


def refresh(page: Core, group: Group) -> set[str]:
    """Bring a derived group up to date; gives the blocks that have changed, or that follow from them."""
    forward = _forward(page, group)
    made_of = _made_of(page, group, forward)
    old = {block.id: block for block in page if block.group == group.name}
    known = len(made_of) == len(group.made_of) and all(
        a is b or (type(a) is tuple and a == b) for a, b in zip(made_of, group.made_of, strict=True)
    )
    if known and all(id in page._inferred for id in old):
        return set()
    found = derive(page, group, forward)
    before = {local(id, group.name): block.at for id, block in old.items()}
    places = {**group.places, **before}
    blocks, changed = {}, set()
    for id, block in found.blocks.items():
        kept, inferred = old.get(id), found.inferred[id]
        if kept is not None and same_block(kept, block):
            blocks[id] = kept
            known_before = page._inferred.get(id)
            if known_before is not None and _same_inferred(known_before, inferred):
                inferred = known_before
            else:
                changed.add(id)
        else:
            blocks[id] = replace(block, group=group.name, at=places.get(local(id, group.name), block.at))
            changed.add(id)
        found.inferred[id] = inferred
    new = [id for id in blocks if id not in old and local(id, group.name) not in places]
    for id in old:
        del page._blocks[id]
        page._inferred.pop(id, None)
    page._blocks.update(blocks)
    page._inferred.update(found.inferred)
    page._groups[group.name] = replace(
        group, outputs=found.outputs, problem=found.problem, made_of=made_of,
        places=places if found.problem is not None else {},
    )  # fmt: skip
    if new and len(new) < len(blocks):  # the first time, the whole group is laid out by whoever adds it
        for id in new:
            columns = [layout.column_of(page[wire.block].at[0]) + 1 for _, wire in page[id].wires()]
            page._blocks[id] = replace(page[id], at=page._columns.place(max(columns, default=0), page[id]))
    return changed | _rewire(page, group, old, found)


def _forward(page: Core, group: Group) -> list[str]:
    """All that a group is derived from, in order."""
    assert group.recipe is not None
    starts = dict.fromkeys(id for id in needs(page, group.recipe) if id in page and page[id].group != group.name)
    # From the wires alone: the order in which blocks were added must not matter.
    return fed_first(starts, lambda id: [wire.block for _, wire in page[id].wires()])


def _made_of(page: Core, group: Group, forward: Iterable[str]) -> tuple[Any, ...]:
    """What a derivation depends on; the same objects, and equal tuples, give the same blocks."""
    parts: list[Any] = [group.recipe]
    for id in forward:
        block, inferred = page[id], page._inferred.get(id)
        if group.recipe is not None and group.recipe.kind == INSTANCE:
            parts += [id, block.inputs, block.attributes, inferred, (block.group,)]
        elif inferred is not None and block.operator.role in DATA and _has_shape(inferred):
            parts.append((id, block.op, *(known_of(signal) for signal in inferred.outputs.values())))
        else:
            parts += [id, block.inputs, block.attributes, inferred]
    if group.recipe is not None and group.recipe.kind == TRAINING:
        parts += [block.inputs for block in page if block.operator.updates and block.group != group.name]
    return tuple(parts)


def _has_shape(inferred: Inferred) -> bool:
    return all(signal.shape is not None and all(type(size) is int for size in signal.shape)
               for signal in inferred.outputs.values())  # fmt: skip


def derive(page: Core, group: Group, forward: list[str] | None = None) -> _Derived:
    """The blocks of a derived group, as they follow from the page as it is now."""
    recipe = group.recipe
    assert recipe is not None
    scratch = Core(page.name, folder=page.folder)
    ids = _forward(page, group) if forward is None else forward
    scratch._blocks = {id: replace(page[id], group="") for id in ids}
    scratch._inferred = {id: page._inferred[id] for id in ids}
    try:
        for wire in recipe.wires():
            if wire.block not in page:
                raise PageError(f"the block {wire.block} no longer exists.", block=wire.block, code="unknown-block")
            page.wire(wire)
        if recipe.kind == INSTANCE:
            return _Derived(*copies(page, scratch, group))
        for id in ids:
            for pin in page[id].missing():
                raise PageError("it is unconnected, but the gradient depends on it.", block=id,
                                pin=pin, code="missing-input")  # fmt: skip
        for wire in (recipe.y, *recipe.xs):
            dtype = page.signal(wire).dtype
            if dtype is not None and dtype not in dtypes.FLOATS:
                raise PageError(f"it is {dtype}; only floating-point values have gradients.", block=wire.block,
                                pin=wire.pin, code="no-gradient")  # fmt: skip
        if recipe.kind == TRAINING:
            _refuse_other_updates(page, group.name, recipe)
        return _walk(scratch, group.name, recipe, room=MOST_BLOCKS - len(page))
    except RowgradError as error:
        message = f"it cannot be derived: {error}"
        problem = PageError(message, block=group.name, code="underivable")
        problem.__cause__ = error
        return _stubs(group.name, recipe, problem)


def _walk(scratch: Core, name: str, recipe: Recipe, room: int) -> _Derived:
    forward = {block.id for block in scratch}
    walk = Backward(scratch, name, recipe.y, set(recipe.xs), rows=recipe.kind == TRAINING)
    walk.go()
    totals = {x: walk.gradient(x) for x in dict.fromkeys(recipe.xs)}
    names: dict[str, str] = {}
    taken: set[str] = set()
    for x, total in totals.items():
        label = _label(scratch, name, x, taken)
        if _head(total) in forward or _head(total) in names:
            total = totals[x] = scratch.add("Identity", f"{name}/d_of{len(names)}", input=total)["output"]
        names[_head(total)] = label
    for wire, total in walk.sums.items():
        if _head(total) not in forward and _head(total) not in names:
            names[_head(total)] = _label(scratch, name, wire, taken)
    used = {wire.block for total in totals.values() for wire in _wires(total)}
    if recipe.kind == TRAINING:
        used |= add_updates(scratch, walk.builder, recipe, totals)
    for id in reversed(scratch.order()):
        if id in used or id in forward:
            used.update(wire.block for _, wire in scratch[id].wires())
    derived = _renamed(scratch, [id for id in scratch.order() if id in used and id not in forward], names)
    if len(derived.blocks) > room:
        raise PageError(f"a page holds at most {MOST_BLOCKS} blocks.", code="too-large", block=name)
    for x, total in totals.items():
        head, *rows = [Wire(names.get(wire.block, wire.block), wire.pin) for wire in _wires(total)]
        derived.outputs[str(x)] = head
        if rows:
            derived.outputs[f"{x}{INDICES}"] = rows[0]
    return derived


def _renamed(scratch: Core, ids: list[str], names: Mapping[str, str]) -> _Derived:
    """The blocks `ids` under their names; sizes that only running can tell are called after them too."""

    def moved(wire: Wire) -> Wire:
        return Wire(names.get(wire.block, wire.block), wire.pin)

    derived = _Derived()
    for id in ids:
        block = scratch[id]
        inputs = {pin: renamed(source, moved) for pin, source in block.inputs.items()}
        block = replace(block, id=names.get(id, id), inputs=inputs)
        scratch._blocks[block.id] = derived.blocks[block.id] = block
        scratch._inferred[block.id] = derived.inferred[block.id] = scratch._infer(block)
    return derived


def _label(scratch: Core, name: str, wire: Wire, taken: set[str]) -> str:
    """What the gradient of `wire` is called: ``d_table``."""
    several = len(scratch[wire.block].operator.outputs) > 1
    label = wire.block.replace("/", "_") + (f"_{wire.pin}" if several else "")
    wanted = f"{name}/d_{label[:LONGEST]}"
    found, number = wanted, 0
    while found in taken or found in scratch:
        number += 1
        found = f"{wanted}_{number}"
    taken.add(found)
    return found


def _wires(total: Any) -> list[Wire]:
    return [*total] if isinstance(total, RowGradient) else [total]


def _head(total: Any) -> str:
    return _wires(total)[0].block


def _refuse_other_updates(page: Core, name: str, recipe: Recipe) -> None:
    for block in page:
        if block.group != name:
            for pin in block.operator.updates:
                if block.inputs.get(pin) in recipe.xs:
                    raise PageError(f"it is updated by {block.id} already; a step has one update for each.",
                                    block=str(block.inputs[pin]).partition(":")[0], code="updated-twice")  # fmt: skip


def _stubs(name: str, recipe: Recipe, problem: PageError) -> _Derived:
    """What is left of a group that cannot be derived: the gradients, unconnected, so that wires from them stay."""
    derived = _Derived(problem=problem)
    for x in recipe.xs if recipe.kind == GRADIENTS else ():
        id = f"{name}/d_{x.block.replace('/', '_')[:LONGEST]}"
        while id in derived.blocks:
            id += "_"
        block = Block(id, "Identity", {}, {}, (0, 0), name)
        derived.blocks[id] = block
        derived.inferred[id] = infer_block(block, lambda wire: derived.inferred[wire.block].outputs[wire.pin])
        derived.outputs[str(x)] = Wire(id, "output")
    return derived


def _rewire(page: Core, group: Group, old: Mapping[str, Block], found: _Derived) -> set[str]:
    """Let wires from the old gradients come from the new ones; those from blocks that are gone go with them."""
    new = {wire: found.outputs.get(role) for role, wire in group.outputs.items()}
    exits = {Wire(id, pin.name) for id, block in found.blocks.items() for pin in block.operator.outputs}

    def follow(wire: Wire) -> Wire | None:
        if wire.block not in old or new.get(wire) == wire:
            return wire
        if new.get(wire) is not None:
            return new[wire]
        return wire if wire in exits else None

    changed = set()
    for block in page:
        if block.group == group.name or all(follow(wire) == wire for _, wire in block.wires()):
            continue
        inputs: dict[str, Source] = {}
        for pin, source in block.inputs.items():
            items = [follow(item) if isinstance(item, Wire) else item for item in block.sources(pin)]
            left = tuple(item for item in items if item is not None)
            if left:
                inputs[pin] = left if isinstance(source, tuple) else left[0]
        page._blocks[block.id] = replace(block, inputs=inputs)
        changed.add(block.id)
    for other in page.groups.values():
        if other.recipe is not None and any(follow(wire) != wire for wire in other.recipe.wires()):
            page._groups[other.name] = replace(other, recipe=other.recipe.rewired(lambda wire: follow(wire) or wire))
    return changed


# What is the same


def same_block(left: Block, right: Block) -> bool:
    """Whether two blocks are the same, wherever they stand."""
    return (
        left.op == right.op
        and left.attributes.keys() == right.attributes.keys()
        and left.inputs.keys() == right.inputs.keys()
        and all(same_source(left.attributes[name], right.attributes[name]) for name in left.attributes)
        and all(same_source(left.inputs[pin], right.inputs[pin]) for pin in left.inputs)
    )


def same_source(left: Any, right: Any) -> bool:
    """Whether two sources of a pin, or two attributes, are the same."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same_source, left, right))
    if isinstance(left, Literal) and isinstance(right, Literal):
        return left.dtype == right.dtype and _same_value(left.value, right.value)
    return bool(type(left) is type(right) and left == right)


def _same_value(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        return left.tolist() == right.tolist() if left.dtype.kind == "O" else left.tobytes() == right.tobytes()
    return type(left) is type(right) and repr(left) == repr(right)


def known_of(signal: Any) -> Any:
    """What is known of a signal, to be compared."""
    if isinstance(signal, list):
        return [known_of(one) for one in signal]
    return (signal.dtype, signal.shape, None if signal.value is None else signal.value.tolist())


def _same_inferred(left: Inferred, right: Inferred) -> bool:
    return all(
        {name: known_of(signal) for name, signal in first.items()} == {name: known_of(s) for name, s in then.items()}
        for first, then in ((left.inputs, right.inputs), (left.outputs, right.outputs))
    )
