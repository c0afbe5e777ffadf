"""The folder that the studio was started in, and nothing outside of it: pages are listed, opened and saved here."""

import base64
import binascii
import hashlib
import os
import re
import shutil
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rowgrad._runtime.files import folder
from rowgrad._runtime.texts import check, is_text
from rowgrad.blocks import Page, png, svg
from rowgrad.blocks.pagefile import ENDING
from rowgrad.errors import FileError, RowgradError
from rowgrad_studio.problems import Refusal

MOST_BYTES = 64 * 2**20  # of a file that is opened
MOST_LISTED = 1000
MOST_WALKED = 5000  # folders that are looked into for pages
OWN = ".rowgrad"  # what the studio keeps for itself in the folder
READ = (".json", ".svg", ".png", ".pb", ".pbtxt")
BLOCKS_PLACE = "blocks"  # where groups are kept as blocks of one's own
HERE = Path(__file__).parent


class Stamp(NamedTuple):
    """A file as it was when it was read or written: if nothing of this differs, nobody has changed it."""

    modified: int
    size: int
    digest: str


def stamp_of(path: Path, known: Stamp | None = None) -> Stamp | None:
    """The file as it is now, or None if there is none; it is read only if `known` looks older."""
    try:
        found = path.stat()
        if known is not None and (found.st_mtime_ns, found.st_size) == known[:2]:
            return known
        return Stamp(found.st_mtime_ns, found.st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError:
        return None


class Opened(NamedTuple):
    """A page that was opened, with the file that it is saved to again; pictures and graphs are only read."""

    page: Page
    path: str | None
    stamp: Stamp | None


class Folder:
    """All that the studio reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        check(str(self.root), "the folder of the studio", Refusal)

    def inside(self, name: Any) -> Path:
        """The file called `name`; a way out of the folder, or into hidden ones, is refused."""
        try:
            path = folder.inside(self.root, name)
        except FileError as error:
            if error.code == "bad-text":
                raise Refusal(error.message, error.code, argument="path") from error
            raise Refusal(
                f"{name} is not inside the folder that the studio was started in, and is not touched.", "outside",
                argument="path", value=name,
            ) from error  # fmt: skip
        if any(part.startswith(".") for part in path.relative_to(self.root).parts):
            raise Refusal(f"{name} is hidden; the studio opens and saves no such files.", "outside", argument="path")
        return path

    def name_of(self, path: Path) -> str:
        """What a file is called in the protocol: its path in the folder."""
        return path.relative_to(self.root).as_posix()

    def pages(self) -> list[dict[str, Any]]:
        """All page files, the newest first; hidden folders are not looked into."""
        found: list[dict[str, Any]] = []
        for walked, (place, folders, names) in enumerate(os.walk(self.root)):
            folders[:] = sorted(name for name in folders if _is_listed(name) and name != "node_modules")
            for name in filter(_is_listed, names):
                path = Path(place, name)
                if name.endswith(ENDING) and path.is_file():
                    entry = {"path": self.name_of(path), "name": name.removesuffix(ENDING)}
                    found.append({**entry, "modified": path.stat().st_mtime})
            if walked >= MOST_WALKED or len(found) >= MOST_LISTED:
                break
        return sorted(found, key=lambda entry: -entry["modified"])[:MOST_LISTED]

    def open(self, name: str) -> Opened:
        """The page in a file: a page file, a picture that carries its page, or a GraphDef."""
        path = self.inside(name)
        if not path.is_file():
            raise Refusal(f"{name}: there is no such file.", "no-such-file", argument="path", value=name)
        if path.stat().st_size > MOST_BYTES:
            raise _too_large(name)
        stamp = stamp_of(path)
        page = read(path.name, path.read_bytes(), path.parent)
        is_page = path.suffix.lower() == ".json"
        return Opened(page, self.name_of(path) if is_page else None, stamp if is_page else None)

    def open_dropped(self, name: str, data: str) -> Opened:
        """The page in a file whose bytes are given, as base64."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise Refusal("data is not valid base64.", "bad-request", argument="data") from None
        if len(content) > MOST_BYTES:
            raise _too_large(name)
        return Opened(read(PurePosixPath(name).name, content, self.root), None, None)

    def save(self, page: Page, name: str, *, own: Stamp | None, overwrite: bool) -> tuple[str, Stamp | None]:
        """Write `page`; what is there is kept, unless it is what was opened (`own`) or `overwrite` says so."""
        if not name.endswith(".json"):
            name += ENDING
        path = self.inside(name)
        if not path.parent.is_dir():
            raise Refusal(f"{name}: there is no such folder.", "no-such-file", argument="path", value=name)
        there = stamp_of(path, own)
        if there is not None and not overwrite:
            self._ask(page, path, own, there)
        before = page.folder
        bring_data(page, before, path.parent)
        page.save(path)
        return self.name_of(path), stamp_of(path)

    def save_own(self, page: Page, *, overwrite: bool) -> str:
        """Write a group as a block of one's own, into a folder for these."""
        place = self.inside(BLOCKS_PLACE)
        place.mkdir(exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", page.name) or "block"
        return self.save(page, f"{BLOCKS_PLACE}/{name}{ENDING}", own=None, overwrite=overwrite)[0]

    def _ask(self, page: Page, path: Path, own: Stamp | None, there: Stamp) -> None:
        name = self.name_of(path)
        if own is None:
            raise Refusal(f"{name} already exists; saving would overwrite it.", "exists", argument="path", value=name)
        if there.digest != own.digest:
            raise Refusal(f"{name} has changed on disk; saving would overwrite that.", "changed-on-disk",
                          argument="path", value=name)  # fmt: skip
        if not len(page) and not page.notes:
            raise Refusal(f"the page is empty; saving would overwrite what is in {name}.", "exists", argument="path",
                          value=name)  # fmt: skip

    def open_example(self, name: str) -> Opened:
        """A page of the gallery. Its data is put into a folder of the studio's own, where it can also write."""
        source = next((path for path in examples() if path.name == f"{name}{ENDING}"), None)
        if source is None:
            raise Refusal(f"there is no example {name!r}.", "no-such-file", argument="example", value=name)
        place = self.own("examples")
        for path in source.parent.iterdir():
            if path.suffix in folder.KINDS and not (place / path.name).exists():
                shutil.copyfile(path, place / path.name)
        return Opened(read(source.name, source.read_bytes(), place), None, None)

    def own(self, name: str) -> Path:
        """A folder that the studio keeps for itself; version control is told to leave it out."""
        place = self.root / OWN / name
        place.mkdir(parents=True, exist_ok=True)
        ignored = self.root / OWN / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
        return place


def _is_listed(name: str) -> bool:
    """Hidden files are not, nor those whose names are no text."""
    return not name.startswith(".") and is_text(name)


def read(name: str, content: bytes, place: Path) -> Page:
    """The page in a file of that name; `place` is where its data is."""
    kind = PurePosixPath(name).suffix.lower()
    if kind not in READ:
        raise Refusal(f"{name}: pages are read from {', '.join(READ)} files.", "bad-file", value=name)
    text = partial(_text, name, content)
    if kind == ".json":
        return Page.from_json(text(), folder=place)
    if kind in (".pb", ".pbtxt"):
        page = Page.from_graphdef(content if kind == ".pb" else text())
        page.folder = place
        return page
    found = png.page_in_png(content) if kind == ".png" else svg.page_in_svg(text())
    if found is None:
        raise Refusal(f"{name} carries no page; only pictures that rowgrad drew do.", "bad-file", value=name)
    return Page.from_json(found, folder=place)


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refusal(f"{name} is not UTF-8 text.", "bad-file", value=name) from None


def _too_large(name: str) -> Refusal:
    return Refusal(f"{name} is larger than {MOST_BYTES >> 20} MB, too large for a page.", "too-large", value=name)


def bring_data(page: Page, before: Path | None, after: Path) -> None:
    """Copy the files that blocks of `page` read to where it is going to be, unless files of these names are there."""
    if before is None or before.resolve() == after.resolve():
        return
    for block in page:
        if block.operator.role == "file":
            name = block.attributes.get("path")
            source, target = folder.inside(before, name), folder.inside(after, name)
            if source.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


def examples() -> list[Path]:
    """The pages of the gallery: those in the package, or, in a checkout, those beside it."""
    places = (HERE / "examples", HERE.parents[2] / "examples" / "pages")
    found = next((place for place in places if place.is_dir()), None)
    return sorted(found.glob(f"*{ENDING}")) if found else []


def gallery() -> list[dict[str, Any]]:
    """What the examples are about."""
    found = [_about(path, path.stat().st_mtime_ns) for path in examples()]
    return [about for about in found if about is not None]


@lru_cache(100)
def _about(path: Path, modified: int) -> dict[str, Any] | None:
    """What is told of an example; None for one that cannot be read, which is no reason not to list the others."""
    try:
        page = read(path.name, path.read_bytes(), path.parent)
    except RowgradError:
        return None
    summary = next((note.text for note in page.notes), ", ".join(dict.fromkeys(block.op for block in page)))
    name = path.name.removesuffix(ENDING)
    return {"name": name, "title": page.name, "summary": summary[:300], "blocks": len(page)}
