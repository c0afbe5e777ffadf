"""What is typed into a page stays what it was: nobody else's to change, and the same after a round trip."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad.blocks import Page, Session
from rowgrad.blocks.literals import literal
from rowgrad.errors import PageError


def there_and_back(page: Page, folder: Path) -> list[Page]:
    page.save(folder / "p.page.json")
    graph, text = page.to_graphdef(), page.to_graphdef(text=True)
    pages = [Page.from_json(page.to_json()), Page.load(folder / "p.page.json")]
    return [*pages, Page.from_graphdef(graph), Page.from_graphdef(text)]


def output(page: Page, id: str = "c") -> Any:
    return Session(page).run(id).raise_first()[id].output


def test_lists_are_not_shared_with_who_gave_them() -> None:
    numbers, sizes = [[1.0, 2.0]], [2, "n"]
    page = Page()
    page.add("Const", "c", value=numbers)
    page.add("Neg", "n", x=numbers)
    page.add("Placeholder", "p", dtype="float32", shape=sizes)
    text = page.to_json()
    numbers[0][0] = 7.0
    numbers.append([3.0, 4.0])
    sizes.append(3)
    assert page.to_json() == text
    assert output(page).tolist() == [[1.0, 2.0]]


def test_numbers_of_numpy_in_lists() -> None:
    page = Page()
    page.add("Const", "c", value=list(np.arange(3)))
    page.add("Neg", "n", x=[np.float32(0.1), np.float64(2)])
    assert output(page).tolist() == [0, 1, 2]
    assert Page.from_json(page.to_json()) == page


def test_types_and_sizes_of_numpy_as_attributes(tmp_path: Path) -> None:
    page = Page()
    page.add("Const", "c", value=[1.5], dtype=np.dtype("float64"))
    page.add("Const", "d", value=[1.5], dtype=np.float64)
    page.add("Cast", "e", x="c", DstT=np.float32)
    page.add("Placeholder", "p", dtype=np.dtype("int32"), shape=(np.int64(3), "n"))
    for back in there_and_back(page, tmp_path):
        assert back == page
    assert (output(page).dtype, output(page, "d").dtype) == (np.float64, np.float64)


@pytest.mark.parametrize("size", [3, 2000])
@pytest.mark.parametrize("new", ["float64", "bfloat16"])
def test_another_type_of_a_constant_is_kept_by_files(tmp_path: Path, size: int, new: str) -> None:
    page = Page()
    held = (np.arange(size) / 10).astype(np.float32)
    page.add("Const", "c", value=held)
    page.change("c", dtype=new)
    changed = output(page)
    for back in there_and_back(page, tmp_path):
        assert back == page
        assert output(back).dtype == changed.dtype
        assert output(back).tobytes() == changed.tobytes()
    page.change("c", dtype="float32")
    assert output(page).tobytes() == held.tobytes()


TEXTS = {
    "fixed width": np.array(["abc", "d"]),
    "any width": np.array(["abc" * 9, "d"], np.dtypes.StringDType()),
    "bytes": np.array([b"abc", b"\xc3\xa9"]),
    "objects": np.array([b"a", "é"], object),
    "ends in NUL": ["a\0", "\0"],
    "many": np.array(["é"] * 2000),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_any_kind(tmp_path: Path, kind: str) -> None:
    page = Page("𝄞")
    page.add("Const", "c", value=TEXTS[kind])
    page.note("\uffff", (0, 0))
    page.save(tmp_path / "p.page.json")
    for back in (
        Page.from_json(page.to_json()),
        Page.load(tmp_path / "p.page.json"),
        *there_and_back(page, tmp_path),
    ):
        assert back == page
        assert output(back).dtype == output(page).dtype == object
        assert output(back).tolist() == output(page).tolist()


def test_other_byte_orders(tmp_path: Path) -> None:
    page = Page()
    page.add("Const", "c", value=np.arange(3, dtype=">i4"))
    assert output(page).dtype == np.int32
    assert output(page).dtype.isnative


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(["a", 1], object), r"\[1\] a int is not text"),
        (np.ones((1,) * 33), "33 dimensions"),
        ([1.0, 1e40], "too large for float32"),
    ],
)
def test_what_no_file_could_hold_is_refused(value: Any, words: str) -> None:
    page = Page()
    with pytest.raises(PageError, match=words):
        page.add("Const", "c", value=value)


def test_every_number_of_numpy_is_a_literal() -> None:
    for number in (np.float16(1.5), np.int8(3), np.bool_(True), np.complex64(1j), np.str_("a")):
        assert literal([number]).value == [number.item()]
