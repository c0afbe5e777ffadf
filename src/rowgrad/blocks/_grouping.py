"""Making, naming, moving and reusing groups; see `groups` for what they are. The methods of `Page` call these."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rowgrad.blocks._core import Core
from rowgrad.blocks._instances import instances
from rowgrad.blocks._sources import renamed
from rowgrad.blocks.groups import Group, GroupInput, is_in, local, pins
from rowgrad.blocks.model import Wire, output_pin
from rowgrad.errors import PageError

PART = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")
DEEPEST, LONGEST = 16, 100


def free_name(page: Core, parent: str, wished: str) -> str:
    """`wished` within the group `parent`, numbered if it is taken, also by the first part of a block's id."""
    number, name = 0, path(parent, wished)
    named = [block.id for block in page]
    named += [wire.block for group in page.groups.values() if group.recipe for wire in group.recipe.wires()]
    while name in page.groups or name in page or any(id.startswith(f"{name}/") for id in named):
        number += 1
        name = path(parent, f"{wished}_{number}")
    return name


def path(parent: str, name: str) -> str:
    """The whole name of a group."""
    return f"{parent}/{name}" if parent else name


def check_name(page: Core, name: Any) -> str:
    """`name`, the path of a group, if a new group can be called so."""
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or not all(map(PART.fullmatch, parts)):
        raise PageError(f"{name!r} is not a valid name for a group; allowed: letters, digits and _ . -, beginning with "
                        "a letter, a digit or a dot.", code="bad-id", value=name)  # fmt: skip
    if name in page.groups or name in page:
        raise PageError(f"there is a {'group' if name in page.groups else 'block'} {name!r} already.",
                        code="duplicate-id", block=name)  # fmt: skip
    check_length(name)
    return str(name)


def check_length(name: str) -> None:
    """Names of blocks begin with those of their groups, and have an end too."""
    if len(name) > LONGEST or name.count("/") >= DEEPEST:
        raise PageError(f"the names of groups have at most {LONGEST} characters and {DEEPEST} parts, with those of the "
                        "groups that they are in.", code="bad-id", value=name)  # fmt: skip


def group(page: Core, items: Iterable[str], name: str | None) -> Group:
    """Put blocks and groups that stand side by side into a new group."""
    names = list(dict.fromkeys(items))
    if not names:
        raise PageError("there are no blocks to group.", code="empty-group")
    for item in names:
        if not page._is_group(item):
            page._refuse_derived(page[item].group, item)
    parents = {page.groups[item].parent if item in page.groups else page[item].group for item in names}
    if len(parents) > 1:
        listed = ", ".join(sorted(parent or "the page" for parent in parents))
        raise PageError(f"blocks of one group can be grouped; these are of several: {listed}.", code="not-side-by-side")
    (parent,) = parents
    new = check_name(page, free_name(page, parent, "group") if name is None else path(parent, name))
    with page.changing():
        page._declare(Group(new))
        for item in names:
            if item in page.groups:
                _relocate(page, item, path(new, item.rpartition("/")[2]))
            else:
                page._blocks[item] = replace(page[item], group=new)
        ids = page.members(new)
        if ids:
            corner = (min(page[id].at[0] for id in ids), min(page[id].at[1] for id in ids))
            page._groups[new] = replace(page._groups[new], at=corner)
        page._forget_empty_groups()
        page._recheck(())
    return page.groups[new]


def keep_instances(page: Core, of: str) -> None:
    """Turn the instances of a group that goes away into ordinary blocks; those in it go with it."""
    for name in instances(page, of):
        if not is_in(name, of):
            detach(page, name)


def ungroup(page: Core, name: str) -> None:
    """Take a group away, but not its blocks; its instances become ordinary blocks."""
    found = page._group(name)
    page._refuse_derived(name)
    with page.changing():
        for instance in instances(page, name):
            if page.groups[instance].recipe.y.block == name:  # type: ignore[union-attr]
                detach(page, instance)
        for block in page:
            if block.group == name:
                page._blocks[block.id] = replace(block, group=found.parent)
        for other in page.groups:
            if other in page.groups and page.groups[other].parent == name:
                _relocate(page, other, free_name(page, found.parent, other.rpartition("/")[2]))
        page._groups.pop(name, None)
        page._recheck(())


def put(page: Core, ids: Iterable[str], name: str) -> None:
    """Move blocks into a group, or out of all."""
    if name:
        page._refuse_derived(page._group(name).name)
    with page.changing():
        for id in ids:
            page._refuse_derived(page[id].group, id)
            page._blocks[id] = replace(page[id], group=name)
        page._forget_empty_groups()
        page._recheck(())


def rename_group(page: Core, name: str, new: str) -> None:
    """Give a group another name: its last part, or its whole path within the same group."""
    found = page._group(name)
    whole = new if isinstance(new, str) and "/" in new else path(found.parent, new)
    if whole == name:
        return
    if whole.rpartition("/")[0] != found.parent:
        raise PageError(
            f"{new!r} is in another group than {name!r}; group and ungroup move it.", code="bad-id", value=new
        )
    if found.recipe is not None and free_name(page, found.parent, whole.rpartition("/")[2]) != whole:
        raise PageError(f"the name {whole!r} is taken, or begins the names of other blocks.", code="duplicate-id",
                        block=whole)  # fmt: skip
    with page.changing():
        _relocate(page, name, check_name(page, whole))


def _relocate(page: Core, name: str, new: str) -> None:
    """Give a group another path; the blocks of derived ones, which are called after them, get other ids."""
    paths = {other: new + other.removeprefix(name) for other in page.groups if is_in(other, name)}
    for path_ in paths.values():
        check_length(path_)
    derived = [other for other in paths if page._is_derived(other)]
    ids = {block.id: f"{paths[block.group]}/{local(block.id, block.group)}" for block in page if block.group in derived}
    for block in page:
        if block.group in paths:
            page._blocks[block.id] = replace(block, group=paths[block.group])
    page._groups = {paths.get(other, other): replace(found, name=paths.get(other, other))
                    for other, found in page.groups.items()}  # fmt: skip
    page._groups = dict(sorted(page._groups.items(), key=lambda item: item[0].count("/")))
    for instance in instances(page, name):
        recipe = page.groups[instance].recipe
        assert recipe is not None
        moved = replace(recipe, y=Wire(paths.get(recipe.y.block, recipe.y.block), ""))
        page._groups[instance] = replace(page.groups[instance], recipe=moved)
    if derived:
        page._rename(ids)


def move_group(page: Core, found: Group, at: tuple[float, float]) -> None:
    """Put a group elsewhere, with all that is in it."""
    x, y = at[0] - found.at[0], at[1] - found.at[1]
    for block in page:
        if is_in(block.group, found.name):
            page._blocks[block.id] = replace(block, at=(block.at[0] + x, block.at[1] + y))
            page._columns.occupy(page._blocks[block.id])
    for other in page.groups.values():
        if is_in(other.name, found.name):
            page._groups[other.name] = replace(other, at=(other.at[0] + x, other.at[1] + y))


def flag(page: Core, name: str, collapsed: bool) -> None:
    """Open or collapse a group."""
    page._groups[name] = replace(page._group(name), collapsed=collapsed)


def detach(page: Core, name: str) -> None:
    """Turn a derived group into ordinary blocks."""
    found = page._group(name)
    if found.recipe is None:
        raise PageError("it is not a derived group; its blocks are ordinary ones.", block=name, code="not-derived")
    page._groups[name] = Group(name, found.at, found.collapsed)
    page._forget_empty_groups()


# Groups used again: a group is saved as a page, and a page is inserted as a group


def extract(page: Core, name: str, new: Core) -> None:
    """Copy the blocks of a group to the empty page `new`; wires from outside become placeholders."""
    held = {group.name: group for group in page.groups.values() if is_in(group.name, name) and group.name != name}
    if any(group.recipe is not None for group in held.values()) or page._is_derived(name):
        raise PageError("it is derived, or has derived groups in it; page.detach makes ordinary blocks of them.",
                        block=name, code="derived")  # fmt: skip
    ids = {id: local(id, name) for id in page.members(name)}
    if len(set(ids.values())) < len(ids):
        ids = {id: id for id in ids}
    sources: dict[Wire, Wire] = {Wire(old, pin.name): Wire(ids[old], pin.name) for old in ids
                                 for pin in page[old].operator.outputs}  # fmt: skip
    for entry in pins(page, name).inputs:
        if entry.source is not None:
            id = entry.name
            while id in ids.values():
                id += "_"
            placeholder = new.add("Placeholder", id, dtype=entry.signal.dtype or "float32", shape=_open_shape(entry))
            sources[entry.source] = placeholder["output"]
    for other in held.values():
        inner = replace(other, name=local(other.name, name))
        new._groups[inner.name] = inner
    for id in page.order():
        if id in ids:
            block = page[id]
            inputs = {pin: renamed(source, sources.__getitem__) for pin, source in block.inputs.items()}
            within = "" if block.group == name else local(block.group, name)
            new._blocks[ids[id]] = replace(block, id=ids[id], inputs=inputs, group=within)
            new._inferred[ids[id]] = new._infer(new._blocks[ids[id]])


def _open_shape(entry: GroupInput) -> list[Any] | None:
    """The shape of a pin; a size that another block has named gets a name that a placeholder may have."""
    if entry.signal.shape is None:
        return None
    return [size if isinstance(size, int) or (size or "").isidentifier() else f"{entry.name}_{axis}"
            for axis, size in enumerate(entry.signal.shape)]  # fmt: skip


def insert(page: Core, other: Core, name: str, at: tuple[float, float] | None, given: Mapping[str, Any]) -> Group:
    """Add the blocks of `other` as the group `name`; its placeholders are the inputs of the group."""
    entries = [block for block in other if block.operator.role == "placeholder"]
    for pin in given:
        if all(block.id != pin for block in entries):
            listed = ", ".join(block.id for block in entries) or "none"
            raise PageError(f"the group has no input {pin}; it has: {listed}.", code="unknown-pin", value=pin)
    wires: dict[Wire, Any] = {Wire(block.id, "output"): page.wire(given[block.id]) if block.id in given else None
                              for block in entries}  # fmt: skip
    with page.changing():
        page._declare(Group(name, collapsed=True))
        for inner in other.groups.values():
            if inner.recipe is not None:
                raise PageError(
                    f"its group {inner.name} is derived; detach it first.", block=inner.name, code="derived"
                )
            page._declare(replace(inner, name=path(name, inner.name)))
        inside = [id for id in other.order() if other[id] not in entries]
        shift = (0.0, 0.0)
        if at is not None and inside:
            shift = (at[0] - min(other[id].at[0] for id in inside), at[1] - min(other[id].at[1] for id in inside))
        for id in inside:
            block = other[id]
            sources: dict[str, Any] = {}
            for pin, source in block.inputs.items():
                items = [wires.get(item, item) if isinstance(item, Wire) else item for item in block.sources(pin)]
                found = [item for item in items if item is not None]
                if found:
                    sources[pin] = found if isinstance(source, tuple) else found[0]
            new = page.add(block.op, f"{name}/{id}", at=(block.at[0] + shift[0], block.at[1] + shift[1]),
                           group=path(name, block.group) if block.group else name,
                           **sources, **block.attributes)  # fmt: skip
            wires |= {Wire(id, pin.name): Wire(new.id, output_pin(new, pin.name)) for pin in block.operator.outputs}
        if not page.members(name):
            raise PageError("the page has no blocks to insert.", code="empty-group")
        if at is None:
            page.tidy(page.members(name))
        ids = page.members(name)
        corner = (min(page[id].at[0] for id in ids), min(page[id].at[1] for id in ids))
        page._groups[name] = replace(page._groups[name], at=corner)
    return page.groups[name]
