"""Groups in page files, and in graphs that pages are exported as: one record each.

Of a derived group, the record has what it is derived from and where its blocks stand; the blocks follow from it.
"""

from collections.abc import Mapping
from typing import Any

from rowgrad.blocks._core import Core
from rowgrad.blocks._filechecks import check_fields, check_types, checked_place, place_of, wrong
from rowgrad.blocks._grouping import check_name
from rowgrad.blocks._looking import Looking
from rowgrad.blocks._training import check_recipe
from rowgrad.blocks.groups import GRADIENTS, INSTANCE, TRAINING, Group, Recipe, local
from rowgrad.blocks.model import Wire, as_wire
from rowgrad.errors import PageError

# How derived groups are written: what they are derived from, and to.
RECIPES = {GRADIENTS: ("y", "xs"), TRAINING: ("loss", "variables"), INSTANCE: ("of", "inputs")}
MOST_GROUPS = 2000
GROUP_FIELDS = ("name", "collapsed", "at", *RECIPES, "places")


def group_record(page: Looking, group: Group) -> dict[str, Any]:
    """A group as the file has it: of a derived one, what it is derived from, and where its blocks stand."""
    found: dict[str, Any] = {"name": group.name}
    recipe = group.recipe
    if recipe is not None:
        made: dict[str, Any]
        if recipe.kind == INSTANCE:
            made = {"of": recipe.y.block, "inputs": {pin: str(wire) for pin, wire in recipe.settings.items()}}
        else:
            y, xs = RECIPES[recipe.kind]
            made = {y: str(recipe.y), xs: list(map(str, recipe.xs))}
        if recipe.kind == TRAINING:
            settings = {name: str(v) if isinstance(v, Wire) else v for name, v in recipe.settings.items()}
            made |= {"optimizer": recipe.optimizer, "settings": settings}
        found[recipe.kind] = made
    found |= {"collapsed": group.collapsed, "at": place_of(group.at)}
    if recipe is not None:
        stand = {local(block.id, group.name): block.at for block in page if block.group == group.name}
        found["places"] = {name: place_of(at) for name, at in sorted({**group.places, **stand}.items())}
    return found


def read_groups(records: list[Any]) -> dict[str, Mapping[str, Any]]:
    """The groups of a file by name, outer ones first."""
    if len(records) > MOST_GROUPS:
        raise wrong("groups", f"there are {len(records)}; a page holds at most {MOST_GROUPS}", "too-large")
    found: dict[str, Mapping[str, Any]] = {}
    for position, record in enumerate(records):
        place = f"groups[{position}]"
        check_fields(place, record, GROUP_FIELDS, {"name": str})
        check_types(place, record, {"at": list, "places": dict, **dict.fromkeys(RECIPES, dict)})
        if not isinstance(record.get("collapsed", False), bool):
            raise wrong(f"{place}.collapsed", "it must be true or false")
        if record["name"] in found:
            raise wrong(f"{place}.name", f"{record['name']!r} already exists", "duplicate-id")
        found[record["name"]] = {**record, "place": place}
    for name, record in found.items():
        parent = name.rpartition("/")[0]
        if parent and (parent not in found or any(kind in found[parent] for kind in RECIPES)):
            raise wrong(f"{record['place']}.name", f"there is no group {parent!r} that it could be in", "unknown-group")
    return dict(sorted(found.items(), key=lambda item: item[0].count("/")))


def add_groups(page: Core, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the groups on the page, without anything in them yet."""
    for name, record in records.items():
        try:
            check_name(page, name)
        except PageError as error:
            raise wrong(f"{record['place']}.name", error.message.removesuffix("."), str(error.code)) from error
        at = checked_place(f"{record['place']}.at", record.get("at", [0, 0]))
        places = {id: checked_place(f"{record['place']}.places.{id}", place)
                  for id, place in record.get("places", {}).items()}  # fmt: skip
        page._groups[name] = Group(name, at, record.get("collapsed", False), None, places)


def _wire(page: Core, text: str) -> Wire:
    block, pin = as_wire(text)
    return page.wire(text) if block in page else Wire(block, pin or "output")


def read_recipe(page: Core, record: Mapping[str, Any]) -> Recipe:
    """What a group of the file is derived from."""
    kind, *others = [kind for kind in RECIPES if kind in record]
    place, made, (y, xs) = f"{record['place']}.{kind}", record[kind], RECIPES[kind]
    if others:
        raise wrong(place, "a group is derived in one way")
    if kind == INSTANCE:
        check_fields(place, made, ("of", "inputs"), {"of": str, "inputs": dict})
        if not all(isinstance(wire, str) for wire in made["inputs"].values()):
            raise wrong(f"{place}.inputs", "they must be wires, as block:pin")
        return Recipe(INSTANCE, Wire(made["of"], ""), (), "", {pin: _wire(page, text)
                                                               for pin, text in made["inputs"].items()})  # fmt: skip
    more = {"optimizer": str, "settings": dict} if kind == TRAINING else {}
    check_fields(place, made, (y, xs, *more), {y: str, xs: list})
    check_types(place, made, more)
    if not all(isinstance(wire, str) for wire in [made[y], *made[xs]]):
        raise wrong(f"{place}.{xs}", "it must be a list of wires, as block:pin")

    def wire(text: str) -> Wire:
        return _wire(page, text)

    settings = {name: wire(value) if isinstance(value, str) else value
                for name, value in made.get("settings", {}).items()}  # fmt: skip
    recipe = Recipe(kind, wire(made[y]), tuple(dict.fromkeys(map(wire, made[xs]))), made.get("optimizer", ""), settings)
    try:
        if kind == TRAINING and all(x.block in page for x in recipe.xs):
            recipe = check_recipe(page, recipe)
    except PageError as error:
        error.message += f" ({place})"
        error.block = error.block or record["name"]
        raise
    return recipe
