"""Page files: JSON, versioned, one block a line, so that changes of a page can be read as changes of lines.

A string on an input is a wire; anything else is a literal. Everything is checked on the way in, and what is wrong is
named with its place in the file. Arrays of more than a few lines lie in files of their own beside the page; they are
called by their contents, so that a page on disk never changes its meaning while another is being saved.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace as dataclass_replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from rowgrad._runtime import dtypes, texts
from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad._runtime.files import replace, write
from rowgrad.blocks._filechecks import check_fields, check_known, check_types, checked_place, place_of, wrong
from rowgrad.blocks._groupfile import RECIPES, add_groups, group_record, read_groups, read_recipe
from rowgrad.blocks._looking import MOST_BLOCKS, Looking
from rowgrad.blocks._sources import constant
from rowgrad.blocks.groups import INSTANCE, is_in
from rowgrad.blocks.literals import Literal, odd_type, plain
from rowgrad.blocks.model import Block, Wire, as_wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.page import Page
from rowgrad.errors import FileError, PageError, RowgradError

VERSION = 2  # a page without groups is written as version 1, which had none
ENDING = ".page.json"
MOST_BYTES = 256 * 2**20
MOST_NOTES = 1000
MOST_DIGITS = 400
MOST_INLINE = 1024  # elements of arrays that are written into the page itself
FIELDS = ("id", "op", "inputs", "attrs", "at")

Keep = Callable[[Array], str]


def to_json(page: Looking, inline: bool = True, folder: Path | None = None, stem: str = "page") -> str:
    """The text of a page file; unless `inline`, large arrays are written to files in `folder` first."""
    keep = None if inline else _Store(folder or Path(), stem).keep
    groups = page.groups
    derived = {group.name for group in groups.values() if group.recipe is not None}
    lines = [_dumped(record(page, block, keep)) for block in page if block.group not in derived]
    head = f'{{"rowgrad_page": {VERSION if groups else 1}, "name": {_dumped(page.name)}, '
    if groups:
        head += (
            '"groups": [' + ",".join(f"\n  {_dumped(group_record(page, group))}" for group in groups.values()) + "],\n "
        )
    text = (
        head + '"blocks": [' + "".join(f"\n  {line}{',' * (i + 1 < len(lines))}" for i, line in enumerate(lines)) + "]"
    )
    notes = [_dumped({"text": note.text, "at": place_of(note.at)}) for note in page.notes]
    if notes:
        text += ', "notes": [' + ",".join(f"\n  {note}" for note in notes) + "]"
    return text + "}\n"


def _dumped(value: Any) -> str:
    """JSON for people to read."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def save(page: Page, path: Path) -> None:
    """Write `page` to `path`, as a whole or not at all."""
    if not path.name.endswith(".json"):
        raise FileError(f"{path.name}: page files end in {ENDING}.")
    if not path.parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}.")
    stem = path.name.removesuffix(".json").removesuffix(".page")
    text = to_json(page, inline=False, folder=path.parent, stem=stem)
    replace(path, partial(_write, text))
    page.folder = path.parent


def _write(text: str, file: IO[bytes]) -> None:
    file.write(text.encode())


class _Store:
    """Writes large arrays beside a page."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder = folder
        self.stem = stem

    def keep(self, array: Array) -> str:
        """The name of a file that holds `array`."""
        digest = hashlib.sha256(f"{dtypes.name_of(array.dtype)}{array.shape}".encode())
        digest.update(
            repr(array.tolist()).encode() if array.dtype.kind in "OT" else np.ascontiguousarray(array).tobytes()
        )
        # NumPy's files know no bfloat16, but a member of an archive can have a note beside it.
        ending = ".npz" if array.dtype == BFLOAT16 else ".npy"
        name = f"{self.stem}-{digest.hexdigest()[:12]}{ending}"
        if not (self.folder / name).is_file():
            write(self.folder / name, {"array": array})
        return name


def record(page: Looking, block: Block, keep: Keep | None = None) -> dict[str, Any]:
    """A block as the file has it; `keep` puts large arrays elsewhere, and names the place."""
    inferred = page.inferred(block.id)
    found: dict[str, Any] = {"id": block.id, "op": block.op}
    # In the order of the catalogue, however they were given: equal pages are equal files.
    inputs = {pin.name: block.inputs[pin.name] for pin in block.operator.inputs if pin.name in block.inputs}
    if inputs:
        found["inputs"] = {
            pin: [_source(item, keep, inferred.literals.get((pin, i))) for i, item in enumerate(source)]
            if isinstance(source, tuple)
            else _source(source, keep, inferred.literals.get((pin, 0)))
            for pin, source in inputs.items()
        }
    attributes = [a.name for a in block.operator.attributes if a.name in block.attributes]
    if attributes:
        found["attrs"] = {name: _attribute(_as_typed(block, name), keep) for name in attributes}
    found["at"] = place_of(block.at)
    if block.group:
        found["group"] = block.group
    return found


def _source(source: Any, keep: Keep | None, fitted: Any) -> Any:
    if isinstance(source, Wire):
        return str(source)
    assert isinstance(source, Literal)
    if source.dtype is None:
        if odd_type(source.value) is None:
            return {"value": source.value} if isinstance(source.value, str) else source.value
        source = Literal(fitted, dtypes.name_of(fitted.dtype))
    if keep is not None and source.value.size > MOST_INLINE:
        return {"file": keep(source.value)}
    return {"value": plain(source.value), "dtype": source.dtype} | _lost_shape(source.value)


def _lost_shape(array: Array) -> dict[str, Any]:
    """The shape, where lists do not tell it: an empty list has nothing in it to say how wide it is."""
    return {"value": [], "shape": list(array.shape)} if 0 in array.shape[:-1] else {}


def _as_typed(block: Block, name: str) -> Any:
    """An attribute; the value of a constant in the type that it has now."""
    value = block.attributes[name]
    if isinstance(value, Literal) and value.dtype not in (None, block.attributes.get("dtype")):
        return Literal(constant(block), block.attributes.get("dtype"))
    return value


def _attribute(value: Any, keep: Keep | None) -> Any:
    if isinstance(value, Literal):
        if value.dtype is None:
            return value.value
        if keep is not None and value.value.size > MOST_INLINE:
            return {"file": keep(value.value)}
        lost = _lost_shape(value.value)
        return {"dtype": value.dtype} | lost if lost else plain(value.value)
    return list(value) if isinstance(value, tuple) else value


# Reading


def load(path: Path) -> Page:
    """Read a page from a file."""
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}.")
    if path.stat().st_size > MOST_BYTES:
        raise FileError(f"{path} is larger than {MOST_BYTES >> 20} MB, too large for a page.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not a page: it is not UTF-8 text (byte {error.start}).") from error
    try:
        return from_json(text, folder=path.parent)
    except RowgradError as error:
        if isinstance(error, PageError) and error.block is None:
            raise FileError(f"{path.name}: {error.message}", code=error.code, position=error.position) from error
        raise


def from_json(text: str, *, folder: Path | None = None) -> Page:
    """The page that `text` holds."""
    texts.check_json(text, PageError)
    try:
        record = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_no_field_twice,
            parse_constant=_no_constant,
            parse_float=_number,
            parse_int=_whole_number,
        )
    except json.JSONDecodeError as error:
        raise wrong(f"line {error.lineno}, column {error.colno}", f"{error.msg}; it is not valid JSON") from error
    except RecursionError:
        raise wrong("the file", "it is nested too deep for a page") from None
    known = ("rowgrad_page", "name", "groups", "blocks", "notes")
    check_fields("the file", record, known, {"rowgrad_page": int, "blocks": list})
    check_types("the file", record, {"notes": list, "groups": list})
    version = record["rowgrad_page"]
    if version > VERSION:
        raise wrong("rowgrad_page", f"this page is of version {version}, from a newer rowgrad; this one reads "
                     f"versions up to {VERSION}. Update rowgrad to open it", "newer-version")  # fmt: skip
    if version < 1:
        raise wrong("rowgrad_page", f"there is no version {version}")
    if not isinstance(record.get("name", ""), str):
        raise wrong("name", "it must be a text")
    if len(record["blocks"]) > MOST_BLOCKS:
        raise wrong("blocks", f"there are {len(record['blocks'])}; a page holds at most {MOST_BLOCKS}", "too-large")
    page = Page(record.get("name", "page"), folder=folder)
    groups = read_groups(record.get("groups", []))
    if groups and version < 2:
        raise wrong("groups", "pages of version 1 have no groups")
    _add_blocks(page, record["blocks"], groups)
    _add_notes(page, record.get("notes", []))
    return page


def _add_notes(page: Page, records: list[Any]) -> None:
    if len(records) > MOST_NOTES:
        raise wrong("notes", f"there are {len(records)}; a page holds at most {MOST_NOTES}", "too-large")
    for position, record in enumerate(records):
        place = f"notes[{position}]"
        check_fields(place, record, ("text", "at"), {"text": str, "at": list})
        if not record["text"]:
            raise wrong(f"{place}.text", "it is empty")
        page.note(record["text"], checked_place(f"{place}.at", record["at"]))


def _no_field_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise wrong(repr(name), "the field is there twice in one object")
        fields[name] = value
    return fields


def _no_constant(name: str) -> Any:
    raise wrong(name, f'JSON has no {name}; write it as text in a typed literal, {{"value": "{name}", "dtype": …}}')


def _number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise wrong(_cut(digits), "the number is too large")
    return number


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:  # no type holds it, and Python takes its time for thousands of digits
        raise wrong(_cut(digits), f"the number has more than {MOST_DIGITS} digits")
    return int(digits)


def _cut(digits: str) -> str:
    return digits if len(digits) <= 24 else f"{digits[:20]}…"


def _add_blocks(page: Page, records: list[Any], groups: Mapping[str, Mapping[str, Any]]) -> None:
    """Add blocks in an order in which wires lead to blocks that are there; the page keeps the order of the file."""
    by_id: dict[str, Mapping[str, Any]] = {}
    derived = {name: record for name, record in groups.items() if any(kind in record for kind in RECIPES)}
    for position, record in enumerate(records):
        place = f"blocks[{position}]"
        check_fields(place, record, (*FIELDS, "group"), {"id": str, "op": str})
        check_types(place, record, {"inputs": dict, "attrs": dict, "at": list, "group": str})
        if record["id"] in by_id:
            raise wrong(f"{place}.id", f"{record['id']!r} already exists; names are unique on a page", "duplicate-id")
        if record.get("group") and (record["group"] not in groups or record["group"] in derived):
            raise wrong(f"{place}.group", f"there is no group {record['group']!r} of ordinary blocks", "unknown-group")
        if owner := next((name for name in derived if record["id"].startswith(f"{name}/")), None):
            raise wrong(f"{place}.id", f"the names that begin with {owner}/ are those of a derived group", "derived")
        by_id[record["id"]] = {**record, "place": place}
    if both := next((name for name in groups if name in by_id), None):
        raise wrong(f"{by_id[both]['place']}.id", f"there is a group {both!r} too", "duplicate-id")
    add_groups(page, groups)
    for id in _fed_first({**by_id, **derived}):
        if id in derived:
            recipe = read_recipe(page, derived[id])  # its blocks follow from it
            page._groups[id] = dataclass_replace(page._groups[id], recipe=recipe)
            page._recheck(())
        else:
            _add_block(page, by_id[id], str(by_id[id]["place"]))
    page.reorder(by_id)
    page._forget_empty_groups()


def _fed_first(by_id: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The ids in an order in which each comes after those that feed it; a cycle is refused."""
    derived = [name for name, record in by_id.items() if "op" not in record]

    def known(block: str) -> str | None:
        """The block, or the derived group that it is in; unknown ones are refused when the wire is drawn."""
        return block if block in by_id else next((name for name in derived if block.startswith(f"{name}/")), None)

    feeds = {id: [node for block in [*_feeding(record), *_defining(record, by_id)] if (node := known(block))]
             for id, record in by_id.items()}  # fmt: skip
    order: dict[str, None] = {}
    for start in by_id:
        path: dict[str, None] = {}
        stack = [(start, False)]
        while stack:
            id, fed = stack.pop()
            if fed:
                del path[id]
                order[id] = None
            elif id in path:
                cycle = [*list(path)[list(path).index(id) :], id]
                shown = " ← ".join(cycle[:8]) + (" …" if len(cycle) > 8 else "")
                raise wrong(
                    f"{by_id[id]['place']}{'.inputs' * (id not in derived)}",
                    f"the wires run in a cycle: {shown}",
                    "cycle",
                )
            elif id not in order:
                path[id] = None
                stack.append((id, True))
                stack.extend((other, False) for other in reversed(feeds[id]) if other not in order)
    return list(order)


def _defining(record: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The blocks, and derived groups, of the group that a record is an instance of."""
    made = record.get(INSTANCE) if "op" not in record else None
    if not isinstance(made, dict) or not isinstance(made.get("of"), str):
        return []
    return [
        id
        for id, other in by_id.items()
        if other is not record and is_in(str(other.get("group") or (id if "op" not in other else "")), made["of"])
    ]


def _feeding(record: Mapping[str, Any]) -> list[str]:
    if "op" not in record:
        made = next(record[kind] for kind in RECIPES if kind in record)
        if INSTANCE in record:
            inputs = made.get("inputs")
            return [as_wire(wire)[0] for wire in inputs.values() if isinstance(wire, str)] if (
                isinstance(inputs, dict)) else []  # fmt: skip
        named = (
            [*made.values(), *(made.get("settings") or {}).values()]
            if isinstance(made.get("settings", {}), dict)
            else []
        )
        flat = [item for value in named for item in (value if isinstance(value, list) else [value])]
        return [as_wire(item)[0] for item in flat if isinstance(item, str)]
    sources = record.get("inputs", {})
    wires = []
    pins = {pin.name: pin for pin in BLOCKS[record["op"]].inputs} if record["op"] in BLOCKS else {}
    for name, value in sources.items():
        items = value if isinstance(value, list) and name in pins and pins[name].many else [value]
        wires += [as_wire(item)[0] for item in items if isinstance(item, str)]
    return wires


def _add_block(page: Page, record: Mapping[str, Any], place: str) -> None:
    inputs, attributes = record.get("inputs", {}), record.get("attrs", {})
    if record["op"] in BLOCKS:
        operator = BLOCKS[record["op"]]
        check_known(f"{place}.inputs", inputs, [pin.name for pin in operator.inputs])
        check_known(f"{place}.attrs", attributes, [attribute.name for attribute in operator.attributes])
    else:
        inputs = attributes = {}  # the operator itself will be refused
    at = checked_place(f"{place}.at", record["at"]) if "at" in record else None
    try:
        page.add(record["op"], record["id"], at=at, group=record.get("group", ""), **inputs, **attributes)
    except PageError as error:
        error.message += f" ({place})"
        error.block = error.block or record["id"]
        raise
