"""Keeping work: open, save, drafts, a change on disk, a server that is killed, and what was lost: nothing."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studio_client import PAGE, TOKEN, Client, studio

from optional import framework
from rowgrad.blocks import Page
from rowgrad_studio import documents, history, sockets
from rowgrad_studio import studio as studio_module


def drafts(client):
    return client.get("/api/files").json["drafts"]


def test_what_there_is_to_open(client, folder):
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "b.page.json").write_text(PAGE)
    (folder / ".git").mkdir()
    (folder / ".git" / "c.page.json").write_text(PAGE)
    (folder / "notes.txt").write_text("x")
    files = client.get("/api/files").json
    assert Path(files["folder"]) == folder
    assert {entry["path"] for entry in files["pages"]} == {"mean.page.json", "deep/er/b.page.json"}
    assert files["drafts"] == []
    assert "tour" in {entry["name"] for entry in files["examples"]}
    assert all(entry["blocks"] > 0 and entry["title"] and entry["summary"] for entry in files["examples"])


def test_save_and_open_again(client, folder, empty):
    assert empty.refused("save")["code"] == "no-path"
    empty.do("add", op="Const", at=[0, 0], attrs={"value": [1.5, 2.5]})
    assert empty.page["dirty"] and empty.page["path"] is None
    assert empty.do("save", path="new") == {"path": "new.page.json"}
    assert not empty.page["dirty"] and empty.page["path"] == "new.page.json"
    assert empty.events[-1] == {"event": "saved", "path": "new.page.json"}
    assert Page.load(folder / "new.page.json").constant("Const").tolist() == [1.5, 2.5]
    empty.do("move", places={"Const": [5, 5]})
    assert empty.page["dirty"]
    empty.do("undo")
    assert not empty.page["dirty"]  # it is again what was saved
    empty.do("redo")
    assert empty.do("save") == {"path": "new.page.json"}
    assert Page.load(folder / "new.page.json")["Const"].at == (5, 5)


def test_no_file_is_overwritten_unasked(client, folder, empty):
    empty.do("add", op="Neg", at=[0, 0])
    assert empty.refused("save", path="mean.page.json")["code"] == "exists"
    assert (folder / "mean.page.json").read_text() == PAGE
    assert empty.do("save", path="mean.page.json", overwrite=True)
    assert len(Page.load(folder / "mean.page.json")) == 1


def test_no_file_is_overwritten_with_an_empty_page(tab, folder):
    tab.do("remove", blocks=["grad", "mean", "after"])
    error = tab.refused("save")
    assert error["code"] == "exists" and "empty" in error["message"]
    assert (folder / "mean.page.json").read_text() == PAGE
    tab.do("save", overwrite=True)
    assert len(Page.load(folder / "mean.page.json")) == 0


def test_a_change_on_disk_is_noticed_and_not_overwritten(tab, folder, monkeypatch):
    monkeypatch.setattr(studio_module, "WATCH", 0.05)
    path = folder / "mean.page.json"
    tab.do("rename", block="after", name="mine")
    path.write_text(PAGE.replace("after", "theirs"))
    tab.hear_event("disk")
    assert tab.refused("save")["code"] == "changed-on-disk"
    tab.do("reload")
    assert "theirs" in tab.blocks and not tab.page["dirty"]
    assert tab.page["undo"] == "reload from disk"
    tab.do("undo")  # what was drawn is not lost by reading the file again
    assert "mine" in tab.blocks and tab.page["dirty"]
    tab.do("save")
    assert "mine" in path.read_text()
    path.write_text(PAGE)
    tab.hear_event("disk")
    tab.do("save", overwrite=True)
    assert "mine" in path.read_text()


def test_a_file_that_is_only_touched_has_not_changed(tab, folder):
    os.utime(folder / "mean.page.json", (1, 1))
    tab.do("move", places={"grad": [0, 0]})
    assert tab.do("save") == {"path": "mean.page.json"}


def test_a_file_that_is_gone_is_written_again(tab, folder):
    (folder / "mean.page.json").unlink()
    tab.do("save")
    assert (folder / "mean.page.json").exists()


def test_a_draft_is_there_after_every_gesture_until_all_is_saved(client, tab, folder):
    assert drafts(client) == []
    tab.do("rename", block="after", name="later")
    (draft,) = drafts(client)
    assert (draft["id"], draft["name"], draft["path"]) == (tab.document, "pooled mean", "mean.page.json")
    tab.do("undo")
    assert drafts(client) == []
    tab.do("redo")
    tab.do("save")
    assert drafts(client) == []
    assert (folder / ".rowgrad" / ".gitignore").read_text() == "*\n"


def test_a_draft_can_be_forgotten(client, folder):
    with client.tab(client.open(open="mean.page.json")) as tab:
        tab.do("rename", block="after", name="later")
        assert client.request("DELETE", f"/api/drafts/{tab.document}").status == 400  # it is being worked on
    end = time.monotonic() + 10
    while client.request("DELETE", f"/api/drafts/{tab.document}").status != 200:
        assert time.monotonic() < end
    assert drafts(client) == []
    with client.tab(client.open(open="mean.page.json")) as tab:
        assert "after" in tab.blocks
    assert client.request("DELETE", "/api/drafts/..%2f..%2fmean").status in (200, 404)


def test_drafts_of_others_are_left_alone(client, folder):
    place = folder / ".rowgrad" / "drafts"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in (("0" * 16, "nonsense"), ("1" * 16, "[]"), ("2" * 16, '{"rowgrad_draft": 1}'), ("x", "{}")):
        (place / f"{name}.draft.json").write_text(text)
    assert drafts(client) == []
    assert client.post({"draft": "0" * 16}).status == 404


def test_a_restarted_studio_goes_on_where_it_was(folder):
    with studio(folder) as first:
        with first.tab(first.open(open="mean.page.json"), "the tab") as tab:
            tab.do("rename", block="after", name="later")
            n = tab.send("add", op="Neg", at=[7, 7])
            answer = tab.answer(n)
            before = dict(tab.blocks)
        clean = first.open(example="tour")
    with studio(folder) as second:
        (draft,) = drafts(second)
        assert draft["id"] == tab.document
        with second.tab(tab.document, "the tab") as back:  # by the address that it had
            assert back.blocks == before and back.page["dirty"] and back.page["path"] == "mean.page.json"
            back.send("add", n=n, op="Neg", at=[7, 7])  # it had not heard the answer
            assert back.answer(n) == answer
            assert back.blocks == before
            back.send("save", n=n + 1)
            assert back.answer(n + 1)["ok"] == {"path": "mean.page.json"}
        assert second.open(draft=tab.document) == tab.document
        with second.tab(clean) as example:
            assert "SparseSegmentMeanGrad" in example.blocks and not example.page["dirty"]


def start(folder, *options):
    environment = {**os.environ, "ROWGRAD_STUDIO_TOKEN": TOKEN}
    environment |= dict(option.split("=") for option in options if "=" in option)
    process = subprocess.Popen(
        [sys.executable, "-m", "rowgrad_studio", "--no-browser", "--folder", str(folder)],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    line = process.stdout.readline()
    assert line.startswith("The studio is at http://127.0.0.1:"), line
    return process, Client(int(line.rpartition(":")[2].partition("/")[0]))


def test_a_studio_that_is_killed_loses_nothing(folder):
    process, client = start(folder)
    try:
        with client.tab(client.open(open="mean.page.json")) as tab:
            tab.do("change", block="mean", set={"segment_ids": [0, 1, 2]})
            tab.do("note", text="before the crash", at=[1, 2])
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert (folder / "mean.page.json").read_text() == PAGE
        process.stdout.close()
        process, client = start(folder)
        (draft,) = drafts(client)
        with client.tab(client.open(draft=draft["id"])) as back:
            assert back.blocks == tab.blocks
            assert back.page["notes"] == tab.page["notes"]
            back.do("run")
            assert back.results["mean"]["status"] == "done"
            back.do("save")
        assert drafts(client) == []
        process.send_signal(signal.SIGINT)  # Ctrl-C
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the ceiling is one of Linux")
def test_memory_has_a_ceiling(folder):
    process, client = start(folder, "ROWGRAD_STUDIO_MEMORY=400M")
    try:
        with client.tab(client.open(new=True)) as tab:
            tab.do("add", op="BroadcastTo", at=[0, 0], inputs={"input": 1.0, "shape": [200_000_000]})
            tab.do("run")
            assert tab.results["BroadcastTo"]["error"]["code"] == "out-of-memory"
            tab.do("change", block="BroadcastTo", set={"shape": [2]})
            tab.do("run")
            assert tab.results["BroadcastTo"]["status"] == "done"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_examples_bring_their_data(client, folder):
    with client.tab(client.open(example="classifier")) as tab:
        assert tab.page["path"] is None and not tab.page["dirty"]
        assert tab.page["problems"] == []
        tab.do("run")
        assert {result["status"] for result in tab.results.values()} == {"done"}
        tab.do("save", path="mine")
        read = [block["attrs"]["path"] for block in tab.blocks.values() if block["op"] == "File"]
        assert read and all((folder / name).exists() for name in read)  # what its blocks read goes with it
        tab.do("run")
        assert {result["status"] for result in tab.results.values()} == {"done"}
    assert all(Page.load(folder / "mine.page.json").signal(f"{id}:output").shape for id in tab.blocks
               if tab.blocks[id]["op"] == "File")  # fmt: skip


@pytest.mark.parametrize("kind", ["svg", "png", "page.json", "pb", "pbtxt"])
def test_what_is_exported_opens_again(client, tab, kind):
    if kind.startswith("pb"):
        framework("tensorboard")
    made = client.get(f"/api/documents/{tab.document}/export", **{"as": kind})
    assert made.status == 200, made.body
    assert made.headers["Content-Disposition"] == f'attachment; filename="pooled-mean.{kind}"'
    data = base64.b64encode(made.body).decode()
    with client.tab(client.open(data=data, name=f"x.{kind}")) as again:
        assert again.page["path"] is None and again.page["dirty"]
        assert {block["op"] for block in again.blocks.values()} == {
            "Const",
            "SparseSegmentMeanGrad",
            "Neg",
        } or kind.startswith("pb")
        again.do("run")
        assert ["1", "0.333333", "1.66667"] in [
            row for result in again.results.values() for value in result["outputs"].values() for row in value["cells"]
        ]


def test_pictures_in_the_folder_open_too(client, tab, folder):
    (folder / "picture.svg").write_bytes(client.get(f"/api/documents/{tab.document}/export", **{"as": "svg"}).body)
    with client.tab(client.open(open="picture.svg")) as picture:
        assert picture.blocks == tab.blocks and picture.page["path"] is None


def test_answers_in_drafts_are_few(client, tab, folder):
    for i in range(60):
        tab.do("move", places={"grad": [i, 0]})
    draft = json.loads((folder / ".rowgrad" / "drafts" / f"{tab.document}.draft.json").read_text())
    assert len(draft["answers"]) == 20


def test_a_draft_that_takes_long_comes_after_the_answer(client, tab, monkeypatch):
    monkeypatch.setattr(documents, "QUICK", -1.0)
    monkeypatch.setattr(sockets, "LATE", 0.05)
    tab.do("rename", block="after", name="later")
    end = time.monotonic() + 10
    while not drafts(client):
        assert time.monotonic() < end
    tab.do("undo")
    assert drafts(client) == []


def test_history_has_an_end(monkeypatch):
    monkeypatch.setattr(history, "MOST_STEPS", 3)
    page, steps = Page(), history.History()
    for number in range(5):
        before = page.state()
        page.add("Neg")
        steps.add(f"add {number}", before)
    assert [steps.undo(page) for _ in range(3)] == ["add 4", "add 3", "add 2"]
    assert steps.undo_label is None and len(page) == 2
    assert [steps.redo(page) for _ in range(3)] == ["add 2", "add 3", "add 4"]
