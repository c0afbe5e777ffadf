"""Keeping work: saved, opened, exported, dropped, changed on disk; and a server that is killed while a page is open."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rowgrad
from rowgrad.blocks import Page, Session
from studio.browser import Desk, Server, drop, expect

Desks = Callable[..., Desk]


def _small(name: str) -> Page:
    page = Page(name)
    page.add("Const", "grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32", at=(0, 0))
    page.add(
        "SparseSegmentMeanGrad",
        "rows",
        grad="grad",
        indices=[0, 1, 2],
        segment_ids=[2, 2, 2],
        output_dim0=3,
        at=(340, 0),
    )
    return page


def _opened(desks: Desks, page: Page) -> Desk:
    desk = desks()
    page.save(desk.server.folder / f"{page.name}.page.json")
    return desk.open(open=f"{page.name}.page.json")


def _value(path: Path, block: str) -> np.ndarray:
    return Session(Page.load(path)).run()[block].output


def _export(desk: Desk, item: str) -> Path:
    desk.tool("Export").click()
    with desk.page.expect_download() as download:
        desk.page.get_by_role("menuitem", name=item).click()
    return Path(download.value.path())


def test_save_reload_open(desk: Desk) -> None:
    desk.add("Const")
    desk.type("Const", "value", "[1, 2, 3]")
    desk.tool("Save").click()
    dialog = desk.dialog("Save as")
    dialog.get_by_role("textbox", name="File").fill("kept")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(desk.status).to_contain_text("Saved kept.page.json.")
    path = desk.server.folder / "kept.page.json"
    assert _value(path, "Const").tolist() == [1, 2, 3]

    desk.page.reload()
    desk.ready()
    expect(desk.field("Const", "value")).to_have_value("[1, 2, 3]")
    desk.type("Const", "value", "[4]")
    expect(desk.page).to_have_title(re.compile("^● "))
    desk.page.keyboard.press("Control+s")
    expect(desk.page).to_have_title(re.compile("^[^●]"))
    assert _value(path, "Const").tolist() == [4]

    desk.tool("New").click()
    expect(desk.block("Const")).to_have_count(0)
    desk.tool("Open").click()
    desk.dialog("Open").get_by_role("button", name="kept.page.json").click()
    expect(desk.field("Const", "value")).to_have_value("[4]")


def test_saving_over_another_file_asks_first(desk: Desk) -> None:
    path = desk.server.folder / "there.page.json"
    _small("there").save(path)
    before = path.read_text()
    desk.add("Const")
    for answer in ("Cancel", "Overwrite"):
        desk.tool("Save as").click()
        desk.dialog("Save as").get_by_role("textbox", name="File").fill("there.page.json")
        desk.dialog("Save as").get_by_role("button", name="Save", exact=True).click()
        assert path.read_text() == before
        desk.dialog("Overwrite the file?").get_by_role("button", name=answer).click()
    expect(desk.status).to_contain_text("Saved there.page.json.")
    assert path.read_text() != before


def test_a_change_on_disk_is_noticed(desks: Desks) -> None:
    desk = _opened(desks, _small("changed"))
    changed = _small("changed")
    changed.change("rows", output_dim0=7)
    changed.save(desk.server.folder / "changed.page.json")
    banner = desk.page.get_by_role("region", name="Changed on disk")
    banner.get_by_role("button", name="Reload").click()
    expect(desk.field("rows", "output_dim0")).to_have_value("7")
    expect(banner).to_have_count(0)


def test_what_was_not_saved_is_offered_again(desk: Desk, desks: Desks) -> None:
    title = desk.page.get_by_role("textbox", name="Name of the page")
    title.fill("an unsaved thought")
    title.press("Enter")
    desk.add("Neg")
    expect(desk.block("Neg")).to_be_visible()
    other = desks().open()
    desk.page.close()
    other.tool("Open").click()
    other.dialog("Open").get_by_role("button", name=re.compile("^an unsaved thought")).click()
    expect(other.block("Neg")).to_be_visible()


def test_python_gives_the_same_numbers(desks: Desks, tmp_path: Path) -> None:
    desk = _opened(desks, _small("script"))
    script = tmp_path / "script.py"
    script.write_bytes(_export(desk, "Python").read_bytes())
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path / "results.npz")],
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    desk.run()
    with np.load(tmp_path / "results.npz", allow_pickle=False) as found:
        assert found["rows:output"].tolist() == Session(_small("script")).run()["rows"].output.tolist()
        assert desk.numbers("rows") == [pytest.approx(row, abs=1e-5) for row in found["rows:output"].tolist()]


@pytest.mark.parametrize(("item", "name"), [("SVG picture", "picture.svg"), ("PNG picture", "picture.png")])
def test_a_picture_opens_again_when_it_is_dropped(desks: Desks, item: str, name: str) -> None:
    desk = _opened(desks, _small(f"picture_{name[-3:]}"))
    desk.run()
    picture = _export(desk, item).read_bytes()
    before = desk.blocks()
    desk.tool("New").click()
    expect(desk.block("rows")).to_have_count(0)
    drop(desk, name, picture)
    expect(desk.block("rows")).to_be_visible()
    assert desk.blocks() == before
    expect(desk.page).to_have_title(re.compile("^● "))  # it is in no page file yet


def test_a_page_dropped_on_the_window_opens(desk: Desk) -> None:
    drop(desk, "given.page.json", _small("given").to_json().encode())
    expect(desk.status).to_contain_text("Opened given.page.json.")
    expect(desk.block("rows")).to_be_visible()
    desk.run()
    assert desk.numbers("rows")[0] == pytest.approx([1, 1 / 3, 5 / 3], abs=1e-5)


def test_what_is_no_page_is_refused_when_it_is_dropped(desk: Desk) -> None:
    desk.expected = ["400"]
    desk.add("Neg")
    expect(desk.status).to_contain_text("Added Neg")
    drop(desk, "broken.page.json", b'{"rowgrad_page": 1, "blocks": [{"id": "x", "op": "NoSuchOperator"}]}')
    expect(desk.status).to_contain_text("NoSuchOperator")
    expect(desk.block("Neg")).to_be_visible()


def test_a_page_that_is_not_there_is_told_and_a_new_one_is_begun(desks: Desks) -> None:
    desk = desks()
    desk.expected = ["404"]
    desk.open(open="nothing.page.json")
    expect(desk.status).to_contain_text("nothing.page.json: there is no such file.")
    desk.add("Neg")
    expect(desk.block("Neg")).to_be_visible()


def test_graphdefs_are_exported(desks: Desks) -> None:
    desk = _opened(desks, _small("graph"))
    assert 'op: "SparseSegmentMeanGrad"' in _export(desk, "GraphDef, text").read_text()
    assert json.loads(_export(desk, "Page file").read_text())["rowgrad_page"] == 1


def test_examples_run_as_they_are(desk: Desk) -> None:
    desk.tool("Examples").click()
    desk.dialog("Examples").get_by_role("button", name=re.compile("^mean grad SparseSegmentMeanGrad")).click()
    desk.run()
    assert desk.numbers("SparseSegmentMeanGrad")[0] == pytest.approx([1, 1 / 3, 5 / 3], abs=1e-5)


def test_a_server_that_is_killed_and_started_again_loses_nothing(desks: Desks, tmp_path: Path) -> None:
    server = Server(tmp_path).start()
    try:
        desk = desks(server).open()
        desk.expected = ["WebSocket", "ERR_CONNECTION_REFUSED", "Failed to load resource"]
        desk.add("Const")
        desk.type("Const", "value", "[1, 2, 3]")
        expect(desk.tool("Undo")).to_have_attribute("title", re.compile("change value"))
        server.end(signal.SIGKILL)
        expect(desk.page.get_by_role("region", name="Connection")).to_contain_text("is lost")
        desk.type("Const", "value", "[4, 5, 6]")  # while nobody listens
        server.start()
        expect(desk.page.get_by_role("region", name="Connection")).to_have_count(0)
        expect(desk.field("Const", "value")).to_have_value("[4, 5, 6]")
        desk.run()
        assert desk.numbers("Const") == [[4, 5, 6]]
        assert desk.blocks()["Const"]["attrs"]["value"] == [4, 5, 6]

        # And for somebody who comes later, from the draft.
        server.end(signal.SIGKILL)
        address = desk.page.url
        desk.page.close()
        server.start()
        later = desks(server)
        later.page.goto(server.address())
        later.ready()
        later.page.goto(address)
        expect(later.field("Const", "value")).to_have_value("[4, 5, 6]")
    finally:
        server.end(signal.SIGKILL)


def test_large_arrays_go_to_files_beside_the_page(desk: Desk) -> None:
    page = Page("large")
    page.add("Const", "numbers", value=np.arange(3000.0).reshape(60, 50), dtype="float32", at=(0, 0))
    drop(desk, "large.page.json", page.to_json().encode())
    expect(desk.block("numbers")).to_be_visible()
    desk.tool("Save as").click()
    desk.dialog("Save as").get_by_role("textbox", name="File").fill("large.page.json")
    desk.dialog("Save as").get_by_role("button", name="Save", exact=True).click()
    expect(desk.status).to_contain_text("Saved large.page.json.")
    assert _value(desk.server.folder / "large.page.json", "numbers").sum() == np.arange(3000).sum()
