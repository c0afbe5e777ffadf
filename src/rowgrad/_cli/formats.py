"""Pages in all their formats: read and written by the ending of the file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from rowgrad._cli.problems import BAD_USAGE, Problem
from rowgrad._runtime import files
from rowgrad.blocks import Page, Session

READ = (".json", ".svg", ".png", ".pb", ".pbtxt")
WRITTEN = (".json", ".py", ".svg", ".png", ".pb", ".pbtxt")
PICTURES = (".svg", ".png")
MOST_BYTES = 256 * 2**20


def load(path: Path) -> Page:
    """The page in a file: a page file, a picture that carries its page, or a GraphDef."""
    kind = path.suffix.lower()
    if kind not in READ:
        raise Problem(f"{path}: pages are read from {', '.join(READ)} files.", code=BAD_USAGE)
    if kind == ".json":
        return Page.load(path)
    if not path.is_file():
        raise Problem(f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}.")
    if path.stat().st_size > MOST_BYTES:
        raise Problem(f"{path} is larger than {MOST_BYTES >> 20} MB, too large for a page.")
    data = path.read_bytes()
    if kind in PICTURES:
        return _from_picture(path, data)
    if kind == ".pb":
        return Page.from_graphdef(data, folder=path.parent)
    return Page.from_graphdef(_text(path, data), folder=path.parent)


def _from_picture(path: Path, data: bytes) -> Page:
    from rowgrad.blocks import png, svg

    found = png.page_in_png(data) if path.suffix.lower() == ".png" else svg.page_in_svg(_text(path, data))
    if found is None:
        raise Problem(f"{path} carries no page; only pictures that rowgrad drew do.")
    return Page.from_json(found, folder=path.parent)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Problem(f"{path} is not UTF-8 text.") from None


def check_picture(path: Path) -> None:
    """Refuse a picture in a format that is not drawn."""
    if path.suffix.lower() not in PICTURES:
        raise Problem(f"--svg {path}: pictures are drawn as {' or '.join(PICTURES)}.", code=BAD_USAGE)


def draw(page: Page, session: Session | None, path: Path) -> None:
    """Draw `page`, with the results of `session`, to `path`."""
    write(page, path, session)


def write(page: Page, path: Path, session: Session | None = None) -> None:
    """Write `page` to `path` in the format of its ending, all or nothing."""
    makers: dict[str, Callable[[], str | bytes]] = {
        ".py": page.to_python,
        ".svg": partial(page.to_svg, session),
        ".png": partial(page.to_png, session),
        ".pb": page.to_graphdef,
        ".pbtxt": partial(page.to_graphdef, text=True),
    }
    kind = path.suffix.lower()
    if kind == ".json":
        page.save(path)
        return
    if kind not in makers:
        raise Problem(f"{path}: pages are written as {', '.join(WRITTEN)}.", code=BAD_USAGE)
    made = makers[kind]()
    files.replace(path, partial(_put, made.encode() if isinstance(made, str) else made))


def _put(data: bytes, file: IO[bytes]) -> None:
    file.write(data)
