"""The verbs for groups: making, opening, deriving, saving and copying them."""

from collections.abc import Callable
from typing import Any

from rowgrad.blocks import Page
from rowgrad_studio.documents import Document
from rowgrad_studio.history import listed
from rowgrad_studio.pasting import free_name

Given = dict[str, Any]


def group(document: Document, given: Given) -> Given:
    """Make a group of blocks."""
    label = f"group {listed(given['blocks'], ())}"
    return {"group": document.edit(label, lambda page: page.group(given["blocks"], given["name"])).name}


def on_group(verb: str, words: str) -> Callable[[Document, Given], None]:
    """A verb that is a method of the page and takes the name of a group."""

    def act(document: Document, given: Given) -> None:
        document.edit(f"{words} {given['group']}", lambda page: getattr(page, verb)(given["group"]))

    return act


def set_group(document: Document, given: Given) -> None:
    """Change settings of a derived group."""
    document.edit(f"change {given['group']}", lambda page: page.change(given["group"], **given["set"]),
                  given["slide"])  # fmt: skip


def train(document: Document, given: Given) -> Given:
    """Add gradients, slots and updates as one group."""

    def change(page: Page) -> str:
        settings = given["settings"] or {}
        return page.add_training(given["loss"], given["variables"] or None, given["optimizer"], **settings).name

    return {"group": document.edit(f"train by {given['loss']}", change)}


def save_group(document: Document, given: Given) -> Given:
    """Keep a group as a page of its own in the folder `blocks`, from where it can be used again."""
    page = document.page.extract(given["group"])
    return {"path": document.folder.save_own(page, overwrite=bool(given["overwrite"]))}


def insert(document: Document, given: Given) -> Given:
    """Insert a page as a group."""
    other = document.folder.open(given["path"]).page
    return {"group": document.edit(f"insert {other.name}", lambda page: _inserted(page, other, given["at"]))}


def _inserted(page: Page, other: Page, at: Any) -> str:
    group = page.insert(other, at=(at[0], at[1]))
    page.collapse(group.name)
    return group.name


def copy_group(document: Document, given: Given) -> Given:
    """Add a copy of a group."""

    def change(page: Page) -> str:
        return _inserted(page, page.extract(given["group"]), given["at"])

    return {"group": document.edit(f"copy {given['group']}", change)}


def copied(document: Document, given: Given) -> Given:
    """Blocks and groups as a page file of their own, to be pasted; derived groups come as ordinary blocks."""
    page = document.page.copy()
    kept: set[str] = set()
    for name in given["blocks"]:
        kept |= set(page.members(name)) if name in page.groups else {page[name].id}
    for name in [name for name, found in page.groups.items() if found.recipe is not None]:
        if kept.isdisjoint(page.members(name)):
            page.remove(name)
        else:
            page.detach(name)
    for id in reversed(page.order()):
        if id not in kept:
            page.remove(id)
    return {"page": page.to_json()}


def paste_page(document: Document, given: Given) -> Given:
    """Add what was copied: its groups stay groups, and nothing is around them."""
    other = Page.from_json(given["page"], folder=document.page.folder)

    def change(page: Page) -> list[str]:
        before = {*page.groups, *(block.id for block in page)}
        around = page.insert(other).name
        page.ungroup(around)
        for id in [block.id for block in page if block.id.startswith(f"{around}/") and block.id not in before]:
            page.rename(id, free_name(page, id.removeprefix(f"{around}/")))
        shown = page.view() if page.groups else page  # a collapsed group is one card, which is moved as one
        new = [block for block in shown if block.id not in before]
        x, y = (given["at"][axis] - min((block.at[axis] for block in new), default=0.0) for axis in (0, 1))
        for block in new:
            page.move(block.id, block.at[0] + x, block.at[1] + y)
        return [block.id for block in new]

    return {"blocks": document.edit("paste", change)}
