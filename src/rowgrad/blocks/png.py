"""The picture of a page as PNG, made of the SVG by resvg, with the page inside as the SVG has it."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rowgrad.blocks import svg
from rowgrad.blocks._picture.drawing import SANS
from rowgrad.errors import FileError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session
    from rowgrad.blocks.page import Page

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = svg.PAGE_ID.encode()
MOST_PIXELS = 16_000_000  # more take many seconds, and few programs open them
HEADER = 33  # the signature and the first chunk
CHUNK = struct.Struct(">I4s")


def to_png(
    page: "Page", session: "Session | None" = None, scale: float = 2, *, font_folders: Sequence[str] = ()
) -> bytes:
    """The picture of `page`; very large ones are drawn at a smaller scale.

    Raises
    ------
    FileError
        resvg is not installed, or there are no fonts to draw text with.
    """
    if not 0 < scale <= 16:
        raise FileError(f"the scale is {scale}; it must be above 0, and at most 16.", code="bad-scale", value=scale)
    resvg = _resvg()
    folders = tuple(font_folders)
    if not _has_fonts(folders):
        raise FileError(
            "there are no fonts on this machine to draw text with.",
            "Install one, such as DejaVu (Debian: apt install fonts-dejavu-core).",
            code="no-fonts",
        )
    picture = svg.to_svg(page, session, embed=False)
    wide, high = svg.size_of(picture)
    scale = min(scale, (MOST_PIXELS / (wide * high)) ** 0.5)
    drawn = bytes(resvg.svg_to_bytes(svg_string=picture, zoom=scale, font_dirs=list(folders)))
    text = svg.embeddable(page)
    return drawn if text is None else _with_page(drawn, text)


def _resvg() -> Any:
    try:
        return import_module("resvg_py")
    except ImportError:
        raise FileError("PNG pictures are drawn by resvg, which is not installed.", "pip install 'rowgrad[png]'",
                        code="not-installed") from None  # fmt: skip


@cache
def _has_fonts(folders: tuple[str, ...]) -> bool:
    """Whether text leaves a trace: resvg draws none, and says nothing, where it finds no font."""
    size = 'xmlns="http://www.w3.org/2000/svg" width="20" height="20"'
    empty, drawn = (
        bytes(_resvg().svg_to_bytes(svg_string=f"<svg {size}>{inside}</svg>", font_dirs=list(folders)))
        for inside in ("", f'<text x="2" y="18" font-size="18" font-family="{SANS}">M</text>')
    )
    return empty != drawn


def _with_page(picture: bytes, text: str) -> bytes:
    # A text chunk: keyword, compressed by zlib, no language, no translation of the keyword.
    data = KEYWORD + b"\0\1\0\0\0" + zlib.compress(text.encode(), 9)
    chunk = b"iTXt" + data
    packed = struct.pack(">I", len(data)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return picture[:HEADER] + packed + picture[HEADER:]


def page_in_png(data: bytes) -> str | None:
    """The page file that a picture holds; None if it holds none.

    Raises
    ------
    FileError
        It is no whole PNG, or too large.
    """
    if len(data) > svg.MOST_BYTES:
        raise FileError(f"the picture is larger than {svg.MOST_BYTES >> 20} MB, too large for one of a page.")
    for kind, content in _chunks(data):
        if kind == b"iTXt" and content.startswith(KEYWORD + b"\0"):
            return _text_of(content[len(KEYWORD) + 1 :])
    return None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise FileError("the file is not PNG.")
    place = len(SIGNATURE)
    while True:
        if place + 12 > len(data):
            raise FileError("the picture is incomplete: it ends early.")
        length, kind = CHUNK.unpack_from(data, place)
        end = place + 8 + length
        if end + 4 > len(data):
            raise FileError("the picture is incomplete: it ends early.")
        if zlib.crc32(data[place + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise FileError("the picture is damaged: a checksum is wrong.")
        if kind == b"IEND":
            return
        yield kind, data[place + 8 : end]
        place = end + 4


def _text_of(content: bytes) -> str:
    is_packed, method, rest = content[:1], content[1:2], content[2:].split(b"\0", 2)
    text, unpack = rest[-1], zlib.decompressobj()
    is_whole = len(rest) == 3 and method == b"\0"
    try:
        if is_whole and is_packed == b"\1":
            text = unpack.decompress(text, svg.MOST_BYTES)
            is_whole = unpack.eof
        words = text.decode()
    except (UnicodeDecodeError, zlib.error):
        is_whole = False
    if is_packed == b"\1" and unpack.unconsumed_tail and len(text) == svg.MOST_BYTES:
        raise FileError(f"the page in the picture is larger than {svg.MOST_BYTES >> 20} MB, too large for a page.")
    if not is_whole:
        raise FileError("the page in the picture is damaged.")
    return words
