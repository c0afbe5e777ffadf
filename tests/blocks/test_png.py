"""The picture as PNG: drawn by resvg, with the page inside, and read with care."""

import struct
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from drawn import five_gradients, pooled_mean

from optional import framework, missing
from rowgrad.blocks import Page, Session, png, svg
from rowgrad.blocks.png import page_in_png, to_png
from rowgrad.errors import FileError


@pytest.fixture(scope="module")
def fonts():
    """Folders with fonts, if the machine has none of its own."""
    framework("resvg_py")
    found = find_spec("matplotlib")
    folders = [
        str(Path(place) / "mpl-data" / "fonts" / "ttf") for place in (found and found.submodule_search_locations) or ()
    ]
    if not png._has_fonts(tuple(folders)):
        missing("there are no fonts on this machine")
    return folders


def size_of(data):
    assert data.startswith(png.SIGNATURE) and data[12:16] == b"IHDR"
    return struct.unpack(">II", data[16:24])


def test_it_is_a_picture_of_the_right_size_and_carries_the_page(fonts):
    page = five_gradients()
    session = Session(page)
    session.run()
    data = to_png(page, session, 2, font_folders=fonts)
    wide, high = svg.size_of(page.to_svg(session))
    assert size_of(data) == pytest.approx((2 * wide, 2 * high), abs=2)
    assert page_in_png(data) == page.to_json()
    assert Page.from_json(page_in_png(data)) == page
    assert len({data[i : i + 64] for i in range(200, len(data), 64)}) > 50  # something is drawn
    assert data == to_png(page, session, 2, font_folders=fonts)


def test_pages_draw_themselves(fonts):
    if not png._has_fonts(()):
        missing("there are no fonts on this machine")
    page = pooled_mean()
    assert size_of(page.to_png(scale=1))[0] == pytest.approx(svg.size_of(page.to_svg())[0], abs=1)


def test_large_pictures_are_drawn_smaller(fonts, monkeypatch):
    monkeypatch.setattr(png, "MOST_PIXELS", 100_000)
    wide, high = size_of(to_png(five_gradients(), font_folders=fonts))
    assert 50_000 < wide * high < 110_000


@pytest.mark.parametrize("scale", [0, -1, float("nan"), 17])
def test_scales_that_make_no_sense_are_refused(scale):
    with pytest.raises(FileError, match="scale"):
        pooled_mean().to_png(scale=scale)


def test_without_resvg_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(FileError, match="not installed") as caught:
        pooled_mean().to_png()
    assert caught.value.hint == "pip install 'rowgrad[png]'"


def test_without_fonts_it_says_so(monkeypatch):
    framework("resvg_py")
    monkeypatch.setattr(png, "_has_fonts", lambda folders: False)
    with pytest.raises(FileError, match="no fonts") as caught:
        pooled_mean().to_png()
    assert "Install one" in caught.value.hint


# Reading; these pictures are made by hand, and need neither resvg nor fonts


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(*chunks):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return png.SIGNATURE + header + b"".join(chunks) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def test_the_page_is_put_in_and_found():
    text = pooled_mean().to_json() + "δ \\ud800"
    assert page_in_png(png._with_page(picture(), text)) == text


def test_plain_and_foreign_texts():
    keyword = svg.PAGE_ID.encode()
    assert page_in_png(picture(chunk(b"iTXt", keyword + b"\0\0\0en\0word\0{}"))) == "{}"
    assert page_in_png(picture()) is None
    assert page_in_png(picture(chunk(b"tEXt", b"Comment\0hello"))) is None
    assert page_in_png(picture(chunk(b"iTXt", keyword + b"-other\0\0\0\0\0{}"))) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not PNG"),
        (b"<svg/>", "not PNG"),
        (png.SIGNATURE, "ends early"),
        (picture()[:-5], "ends early"),
        (png.SIGNATURE + b"\xff\xff\xff\xffIHDR" + bytes(20), "ends early"),
        (picture().replace(b"IDAT", b"IDAX"), "checksum"),
        (picture(chunk(b"iTXt", b"rowgrad-page\0\1\0\0\0not zlib")), "damaged"),
        (picture(chunk(b"iTXt", b"rowgrad-page\0\1\0\0\0" + zlib.compress(b"x" * 99)[:-8])), "damaged"),
        (picture(chunk(b"iTXt", b"rowgrad-page\0\1\7\0\0")), "damaged"),
        (picture(chunk(b"iTXt", b"rowgrad-page\0")), "damaged"),
        (picture(chunk(b"iTXt", b"rowgrad-page\0\0\0\0\0\xff\xfe")), "damaged"),
    ],
)
def test_damaged_pictures_are_refused(data, said):
    with pytest.raises(FileError, match=said):
        page_in_png(data)


def test_a_small_picture_cannot_hold_an_endless_page(monkeypatch):
    monkeypatch.setattr(svg, "MOST_BYTES", 100_000)
    bomb = picture(chunk(b"iTXt", b"rowgrad-page\0\1\0\0\0" + zlib.compress(bytes(10_000_000))))
    with pytest.raises(FileError, match="too large"):
        page_in_png(bomb)
    with pytest.raises(FileError, match="too large"):
        page_in_png(picture(chunk(b"tEXt", bytes(200_000))))
