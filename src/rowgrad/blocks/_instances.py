"""Instances: groups that are the same as another group on the page, and follow every edit of it.

The definition is an ordinary group. An instance is a derived group: its blocks are copies of the definition's, with
inputs of its own, made anew whenever the definition changes. Variables are copied too, so that each instance trains its
own; what is wired from outside, and not given to the instance, is shared.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rowgrad.blocks._core import Core
from rowgrad.blocks._sources import renamed
from rowgrad.blocks.groups import INSTANCE, Group, Recipe, is_in, local, pins
from rowgrad.blocks.inference import Inferred
from rowgrad.blocks.model import Block, Source, Wire
from rowgrad.errors import PageError


def instance_recipe(page: Core, of: str, inputs: Mapping[str, Any]) -> Recipe:
    """What an instance of the group `of` is made of; an input that is None is the definition's."""
    definition = page._group(of)
    if definition.recipe is not None:
        raise PageError("it is derived itself; make instances of an ordinary group.", block=of, code="derived")
    known = [entry.name for entry in pins(page, of).inputs]
    for pin in inputs:
        if pin not in known:
            listed = ", ".join(known) or "none"
            raise PageError(f"the group {of} has no input {pin}; it has: {listed}.", block=of, pin=pin,
                            code="unknown-pin")  # fmt: skip
    wires = {pin: page.wire(source) for pin, source in inputs.items() if source is not None}
    return Recipe(INSTANCE, Wire(of, ""), (), "", wires)


def copies(page: Core, scratch: Core, group: Group) -> tuple[dict[str, Block], dict[str, Inferred], dict[str, Wire]]:
    """The blocks of an instance, what is known of them, and its outputs by name.

    `scratch` holds the definition and all that it depends on.
    """
    recipe, name = group.recipe, group.name
    assert recipe is not None
    of = recipe.y.block
    if of not in page.groups or page._is_derived(of):
        raise PageError(f"the group {of} of ordinary blocks no longer exists.", block=of, code="unknown-group")
    if is_in(name, of):
        raise PageError(f"it is in {of}, of which it is an instance.", block=name, code="cycle")
    new = _names(page, of, name)
    entries = pins(page, of).inputs
    given: dict[tuple[str, str, Wire | None], Wire] = {}  # pins of the definition whose source is another here
    for entry in entries:
        if entry.name in recipe.settings:
            given |= {(id, pin, entry.source): recipe.settings[entry.name] for id, pin in entry.targets}
    blocks: dict[str, Block] = {}
    inferred: dict[str, Inferred] = {}
    for id in [id for id in scratch.order() if id in new]:
        block = page[id]
        inputs = {pin: _moved(block, pin, source, new, given) for pin, source in block.inputs.items()}
        for pin in block.missing():
            if (id, pin, None) in given:
                inputs[pin] = given[id, pin, None]
        ordered = {pin.name: inputs[pin.name] for pin in block.operator.inputs if pin.name in inputs}
        copy = replace(block, id=new[id], inputs=ordered, group=name)
        for pin in block.operator.updates:
            source = copy.inputs.get(pin)
            if isinstance(source, Wire) and source.block not in new.values():
                raise PageError(f"{block.id} updates {source.block}, which is outside of {of}; a step has one update "
                                "for each. Put the variable into the group.", block=source.block,
                                code="updated-twice")  # fmt: skip
        scratch._blocks[copy.id] = blocks[copy.id] = copy
        scratch._inferred[copy.id] = inferred[copy.id] = scratch._infer(copy)
    outputs = {output.name: Wire(new[output.wire.block], output.wire.pin) for output in pins(page, of).outputs}
    return blocks, inferred, outputs


def _names(page: Core, of: str, name: str) -> dict[str, str]:
    """The ids of the copies by those of the definition."""
    found: dict[str, str] = {}
    for id in page.members(of):
        short = local(id, of)
        wanted = f"{name}/{short}"
        while wanted in found.values():
            wanted += "_"
        found[id] = wanted
    return found


def _moved(block: Block, pin: str, source: Source, new: Mapping[str, str], given: Mapping[Any, Wire]) -> Source:
    def moved(wire: Wire) -> Wire:
        if wire.block in new:
            return Wire(new[wire.block], wire.pin)
        return given.get((block.id, pin, wire), wire)

    return renamed(source, moved)


def needs(page: Any, recipe: Recipe) -> list[str]:
    """The blocks that a derived group depends on directly: those of its wires, and all of its definition."""
    found = [wire.block for wire in recipe.wires()]
    if recipe.kind == INSTANCE:
        found += [block.id for block in page if is_in(block.group, recipe.y.block)]
    return found


def instances(page: Core, of: str) -> list[str]:
    """The groups that are instances of `of`, or of groups in it."""
    found = {group.name: group.recipe for group in page.groups.values() if group.recipe is not None}
    return [name for name, recipe in found.items() if recipe.kind == INSTANCE and is_in(recipe.y.block, of)]


def follow_names(page: Core, new: Mapping[str, str]) -> dict[str, str]:
    """New ids of blocks, and those that copies of them get."""
    found = dict(new)
    for group in page.groups.values():
        if group.recipe is not None and group.recipe.kind == INSTANCE:
            of = group.recipe.y.block
            before = _names(page, of, group.name) if of in page.groups else {}
            taken = set(before.values())
            for id, after in new.items():
                wanted = f"{group.name}/{local(after, of)}"
                if id in before and wanted not in taken:
                    found[before[id]] = wanted
                    taken.add(wanted)
    return found
