"""The verbs of the protocol: a table of small functions. Each edit is one gesture, and one step of `undo`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rowgrad._ops import Operator
from rowgrad._ops.catalogue import REQUIRED
from rowgrad.blocks import Page, Session
from rowgrad.blocks._layout import arranged
from rowgrad.blocks.model import as_wire
from rowgrad.blocks.operators import BLOCKS
from rowgrad_studio.arguments import (
    ANYTHING,
    BOOL,
    LITERALS,
    NUMBER,
    NUMBERS,
    OBJECT,
    PAGE,
    PLACE,
    PLACES,
    RECORDS,
    STEPS,
    TEXT,
    TEXTS,
    Field,
)
from rowgrad_studio.documents import Document
from rowgrad_studio.fits import fits_source, fits_target
from rowgrad_studio.group_commands import (
    copied,
    copy_group,
    group,
    insert,
    on_group,
    paste_page,
    save_group,
    set_group,
    train,
)
from rowgrad_studio.history import listed
from rowgrad_studio.pasting import free_name, paste
from rowgrad_studio.problems import Refusal
from rowgrad_studio.views import SHELF

LONGEST_NAME = 200
IDENTITY = BLOCKS["Identity"]
Given = dict[str, Any]


class Verb(NamedTuple):
    """A verb: what it does with the document, and the fields that it takes. One without `act` is a run."""

    act: Callable[[Document, Given], Given | None] | None
    fields: Mapping[str, Field]


# Edits


def _add(document: Document, given: Given) -> Given:
    op, wiring = given["op"], given["connect"] or {}
    sources = {name: SHELF.fetch(value) for name, value in (given["inputs"] or {}).items()}
    attrs = {name: SHELF.fetch(value) for name, value in (given["attrs"] or {}).items()}
    if not (set(wiring) in ({"source", "pin"}, {"pin", "target"}, set()) and all(map(_is_text, wiring.values()))):
        raise Refusal('connect must be {"source": wire, "pin": name} or {"pin": name, "target": "block:pin"}.',
                      argument="connect")  # fmt: skip
    if "source" in wiring:
        sources[wiring["pin"]] = _appended(op, wiring["pin"], wiring["source"])

    def change(page: Page) -> str:
        if op in BLOCKS:
            _complete(BLOCKS[op], attrs)
            _seed(BLOCKS[op], sources)
            _give_variables(page, BLOCKS[op], sources, given["at"])
        block = page.add(op, at=_at(given["at"]), **_only(op, "inputs", sources), **_only(op, "attrs", attrs))
        if "target" in wiring:
            page.connect(f"{block.id}:{wiring['pin']}", wiring["target"])
        return block.id

    return {"block": document.edit(f"add {op}", change)}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _at(place: Any) -> tuple[float, float]:
    return (place[0], place[1])


def _appended(op: str, pin: str, source: str) -> Any:
    many = op in BLOCKS and any(found.name == pin and found.many for found in BLOCKS[op].inputs)
    return [source] if many else source


def _only(op: str, what: str, given: Given) -> Given:
    """Pins are given as inputs and attributes as attrs, as in a page file."""
    if op in BLOCKS:
        known = [one.name for one in (BLOCKS[op].inputs if what == "inputs" else BLOCKS[op].attributes)]
        for name in given:
            if name not in known:
                raise Refusal(f"{op} has no {name} among its {what}; it has: {', '.join(known) or 'none'}.",
                              "unknown-pin", argument=name)  # fmt: skip
    return given


def _complete(operator: Operator, attrs: Given) -> None:
    """A new block takes attributes that it must have from the worked example, until they are set."""
    example = operator.example.attributes
    if any(attribute.default is REQUIRED and attribute.name not in attrs for attribute in operator.attributes):
        for name, value in example.items():
            attrs.setdefault(name, value)


def _seed(operator: Operator, sources: Given) -> None:
    """A new random block has the seed of the worked example, until it is set."""
    if any(pin.name == "seed" for pin in operator.inputs) and "seed" in operator.example.inputs:
        sources.setdefault("seed", operator.example.inputs["seed"])


def _give_variables(page: Page, operator: Operator, sources: Given, at: Any) -> None:
    """A literal at a pin that updates a variable becomes a variable of that value, left of the new block."""
    for number, pin in enumerate(pin for pin in operator.updates if pin in sources):
        if not isinstance(sources[pin], str):
            place = (at[0] - 340, at[1] + 150 * number)
            sources[pin] = f"{page.add('Variable', at=place, initial_value=sources[pin]).id}:ref"


def _change(document: Document, given: Given) -> None:
    ids = dict.fromkeys([given["block"], *(given["also"] or ())])

    def change(page: Page) -> None:
        for id in ids:
            _set(page, id, given["set"])

    whom = given["block"] if len(ids) == 1 else f"{len(ids)} blocks"
    document.edit(f"change {', '.join(given['set'])} of {whom}"[:LONGEST_NAME], change, given["slide"])


def _set(page: Page, id: str, given: Given) -> None:
    pins = [pin.name for pin in page[id].operator.inputs]
    for name, value in given.items():
        if value is None and name in pins:
            page.disconnect(f"{id}:{name}")
    kept = {name: SHELF.fetch(value) for name, value in given.items() if value is not None or name not in pins}
    if kept:
        page.change(id, **kept)


def _connect(document: Document, given: Given) -> None:
    document.edit(f"connect {given['target']}", lambda page: page.connect(given["source"], given["target"]))


def _rewire(document: Document, given: Given) -> None:
    """Take the end of a wire from one input to another."""
    source, target, to = given["source"], given["target"], given["to"]

    def change(page: Page) -> None:
        _unwire(page, source, target)
        page.connect(source, to)

    document.edit(f"move a wire to {to}", change)


def _unwire(page: Page, source: str, target: str) -> None:
    """Take one wire away; of several at a pin, the others stay."""
    id, pin = as_wire(target)
    if id in page.groups:
        page.disconnect(target)
        return
    there = list(page[id].sources(pin or ""))
    wire = page.wire(source)
    if wire not in there:
        raise Refusal(f"no wire leads from {source} to {target}.", "unknown-wire", argument="source", value=source)
    there.remove(wire)
    page.disconnect(target)
    if there:
        page.change(id, **{pin or "": there})


def _reroute(document: Document, given: Given) -> Given:
    """Lead a wire over a point: an Identity that is drawn as a dot."""
    source, target = given["source"], given["target"]

    def change(page: Page) -> str:
        block = page.add(
            "Identity", free_name(page, "reroute"), at=_at(given["at"]), **{IDENTITY.inputs[0].name: source}
        )
        _unwire(page, source, target)
        page.connect(f"{block.id}:{IDENTITY.outputs[0].name}", target)
        return block.id

    return {"block": document.edit(f"reroute the wire to {target}", change)}


def _disconnect(document: Document, given: Given) -> None:
    document.edit(f"disconnect {given['target']}", lambda page: page.disconnect(given["target"]))


def _remove(document: Document, given: Given) -> None:
    ids, notes = dict.fromkeys(given["blocks"]), dict.fromkeys(given["notes"] or ())

    def change(page: Page) -> None:
        for id in ids:
            if id in page.groups:
                page.remove(id)
            else:
                page[id]  # all are there, or none goes
        # Those that are fed go first, so that few others have to be looked at again.
        for id in reversed([id for id in page.order() if id in ids]):
            page.remove(id)
        for note in page.notes:
            if note.id in notes:
                page.note("", note.at, note.id)

    document.edit(f"remove {listed(ids, notes)}", change)


def _rename(document: Document, given: Given) -> None:
    document.edit(f"rename {given['block']}", lambda page: page.rename(given["block"], given["name"]))


def _move(document: Document, given: Given) -> None:
    places, notes = given["places"], given["notes"] or {}

    def change(page: Page) -> None:
        for id, (x, y) in places.items():
            if (page.groups[id] if id in page.groups else page[id]).at != (x, y):
                page.move(id, x, y)
        for note in page.notes:
            if note.id in notes:
                page.note(note.text, _at(notes[note.id]), note.id)

    document.edit(f"move {listed(places, notes)}", change)


def _tidy(document: Document, given: Given) -> None:
    ids = given["blocks"]

    def change(page: Page) -> None:
        shown = page.view() if page.groups else page
        for id in ids or ():
            shown[id]
        if shown is page:
            page.tidy(ids)
            return
        for id, (x, y) in arranged(shown, ids).items():  # what is seen: a collapsed group is one card
            page.move(id, x, y)

    document.edit("tidy up", change)


def _paste(document: Document, given: Given) -> Given:
    found = document.edit("paste", lambda page: paste(page, given["blocks"], given["at"]))
    return {"blocks": found}


def _add_gradients(document: Document, given: Given) -> Given:
    label = f"add gradients of {given['y']}"
    return {"group": document.edit(label, lambda page: page.add_gradients(given["y"], given["xs"]).group)}


def _title(document: Document, given: Given) -> None:
    name = given["name"].strip()
    if not name or len(name) > LONGEST_NAME:
        raise Refusal(f"the name of a page has 1 to {LONGEST_NAME} characters.", argument="name")

    def change(page: Page) -> None:
        page.name = name

    document.edit("rename the page", change)


def _note(document: Document, given: Given) -> Given:
    id = given["id"]
    label = "add a note" if id is None else "change a note" if given["text"] else "remove a note"

    def change(page: Page) -> str | None:
        if id is not None and all(note.id != id for note in page.notes):
            raise Refusal(f"there is no note {id!r}.", "unknown-note", argument="id")
        note = page.note(given["text"], _at(given["at"]), id)
        return note.id if note is not None else id

    return {"note": document.edit(label, change)}


# Looking, going back, keeping


def _undo(document: Document, given: Given) -> Given:
    return {"label": document.history.undo(document.page)}


def _redo(document: Document, given: Given) -> Given:
    return {"label": document.history.redo(document.page)}


def _fits(document: Document, given: Given) -> Given:
    source, target = given["source"], given["target"]
    if (source is None) == (target is None):
        raise Refusal("fits takes either source, an output, or target, an input.")
    return fits_source(document.page, source) if source is not None else fits_target(document.page, target)


def _feed(document: Document, given: Given) -> None:
    id, value = given["block"], given["value"]
    if document.page[id].operator.role != "placeholder":
        raise Refusal(f"{id} is not a Placeholder; it cannot be fed.", "unknown-feed", argument="block", value=id)
    Session(document.page).run([id], {id: value}).raise_first()  # is refused here if it does not fit
    document.feeds[id] = value


def _rename_run(document: Document, given: Given) -> None:
    document.recordings.rename(given["run"], given["name"])


def _remove_runs(document: Document, given: Given) -> None:
    if document.run is not None and document.run.recording is not None and document.run.recording.id in given["runs"]:
        raise busy()
    document.recordings.remove(given["runs"])


def _reset(document: Document, given: Given) -> None:
    if document.run is not None:
        raise busy()
    document.session.reset()


def busy() -> Refusal:
    """The page is running, and what was asked for has to wait."""
    return Refusal("the page is running; stop it first, or wait for its end.", "busy")


def _save(document: Document, given: Given) -> Given:
    name = given["path"] if given["path"] is not None else document.path
    if name is None:
        raise Refusal("the page has no file yet; say where to save it.", "no-path", argument="path")
    is_own = document.path is not None and document.folder.inside(name) == document.folder.inside(document.path)
    own = document.stamp if is_own else None
    path, stamp = document.folder.save(document.page, name, own=own, overwrite=bool(given["overwrite"]))
    document.path, document.stamp, document.noticed = path, stamp, None
    document.saved = document.page.state()
    if not document.is_shared:
        document.drafts.remember(document.id, {"open": path})
    return {"path": path}


def _reload(document: Document, given: Given) -> None:
    if document.path is None:
        raise Refusal("the page has no file to reload.", "no-path")
    opened = document.folder.open(document.path)
    document.edit("reload from disk", lambda page: page.restore(opened.page.state()))
    document.stamp, document.noticed, document.saved = opened.stamp, None, document.page.state()


VERBS: dict[str, Verb] = {
    "add": Verb(_add, {"op": TEXT, "at": PLACE, "inputs": OBJECT.or_none(), "attrs": OBJECT.or_none(),
                       "connect": OBJECT.or_none()}),
    "change": Verb(_change, {"block": TEXT, "set": OBJECT, "also": TEXTS.or_none(), "slide": STEPS.or_none()}),
    "connect": Verb(_connect, {"source": TEXT, "target": TEXT}),
    "rewire": Verb(_rewire, {"source": TEXT, "target": TEXT, "to": TEXT}),
    "reroute": Verb(_reroute, {"source": TEXT, "target": TEXT, "at": PLACE}),
    "disconnect": Verb(_disconnect, {"target": TEXT}),
    "remove": Verb(_remove, {"blocks": TEXTS, "notes": TEXTS.or_none()}),
    "rename": Verb(_rename, {"block": TEXT, "name": TEXT}),
    "move": Verb(_move, {"places": PLACES, "notes": PLACES.or_none()}),
    "tidy": Verb(_tidy, {"blocks": TEXTS.or_none()}),
    "paste": Verb(_paste, {"blocks": RECORDS, "at": PLACE.or_none()}),
    "add_gradients": Verb(_add_gradients, {"y": TEXT, "xs": TEXTS}),
    "train": Verb(train, {"loss": TEXT, "variables": TEXTS.or_none(), "optimizer": TEXT,
                           "settings": OBJECT.or_none()}),
    "group": Verb(group, {"blocks": TEXTS, "name": TEXT.or_none()}),
    "ungroup": Verb(on_group("ungroup", "ungroup"), {"group": TEXT}),
    "collapse": Verb(on_group("collapse", "collapse"), {"group": TEXT}),
    "open": Verb(on_group("open", "open"), {"group": TEXT}),
    "detach": Verb(on_group("detach", "detach"), {"group": TEXT}),
    "set_group": Verb(set_group, {"group": TEXT, "set": OBJECT, "slide": STEPS.or_none()}),
    "save_group": Verb(save_group, {"group": TEXT, "overwrite": BOOL.or_none()}),
    "insert": Verb(insert, {"path": TEXT, "at": PLACE}),
    "copy": Verb(copied, {"blocks": TEXTS}),
    "paste_page": Verb(paste_page, {"page": PAGE, "at": PLACE}),
    "copy_group": Verb(copy_group, {"group": TEXT, "at": PLACE}),
    "title": Verb(_title, {"name": TEXT}),
    "note": Verb(_note, {"id": TEXT.or_none(), "text": TEXT, "at": PLACE}),
    "undo": Verb(_undo, {}),
    "redo": Verb(_redo, {}),
    "fits": Verb(_fits, {"source": TEXT.or_none(), "target": TEXT.or_none()}),
    "feed": Verb(_feed, {"block": TEXT, "value": ANYTHING}),
    "reset": Verb(_reset, {}),
    "save": Verb(_save, {"path": TEXT.or_none(), "overwrite": BOOL.or_none()}),
    "reload": Verb(_reload, {}),
    "run": Verb(None, {}),
    "run_to": Verb(None, {"block": TEXT}),
    "step": Verb(None, {}),
    "loop": Verb(None, {"steps": STEPS, "record": TEXTS.or_none(), "name": TEXT.or_none()}),
    "pause": Verb(None, {}),
    "resume": Verb(None, {"run": NUMBER}),
    "sweep": Verb(None, {"target": TEXT, "values": LITERALS, "steps": STEPS, "record": TEXTS.or_none()}),
    "rename_run": Verb(_rename_run, {"run": NUMBER, "name": TEXT}),
    "remove_runs": Verb(_remove_runs, {"runs": NUMBERS}),
    "evaluate": Verb(None, {"outputs": TEXTS, "split": TEXT.or_none()}),
    "check_gradients": Verb(None, {"y": TEXT, "xs": TEXTS}),
    "stop": Verb(None, {}),
}  # fmt: skip
