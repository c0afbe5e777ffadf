"""Text that UTF-8 cannot encode is refused with an answer, and the document goes on answering and writing drafts."""

import json
import os
import sys

import numpy as np
import pytest
from studio_client import PAGE, studio

from rowgrad_studio.launch import serve
from rowgrad_studio.messages import decoded, encoded
from rowgrad_studio.problems import Refusal, problem

HALF = "a\ud800"
COMMANDS = {
    "note": {"text": HALF, "at": [0, 0]},
    "title": {"name": HALF},
    "add": {"op": "Const", "at": [0, 0], "attrs": {"value": [HALF]}},
    "change": {"block": "grad", "set": {"value": HALF, "dtype": "string"}},
    "connect": {"source": HALF, "target": "after:x"},
    "disconnect": {"target": HALF},
    "rename": {"block": "after", "name": HALF},
    "remove": {"blocks": [HALF]},
    "move": {"places": {HALF: [0, 0]}},
    "paste": {"blocks": [{"id": "c", "op": "Const", "attrs": {"value": HALF}}]},
    "feed": {"block": "grad", "value": [[HALF]]},
    "save": {"path": f"{HALF}.page.json"},
    "run_to": {"block": HALF},
    "loop": {"steps": 1, "record": [HALF]},
    HALF: {},
    "undo": {HALF: 1},
}


def draft_of(folder, tab):
    found = json.loads((folder / ".rowgrad" / "drafts" / f"{tab.document}.draft.json").read_text("utf-8"))
    return json.loads(found["page"])


@pytest.mark.parametrize("do", COMMANDS)
def test_commands_are_refused_with_an_answer(tab, folder, do):
    refused = tab.refused(do, **COMMANDS[do])
    assert refused["code"] == "bad-text"
    assert r"\ud800 is half of a surrogate pair" in refused["message"]
    tab.do("title", name="still here")
    assert draft_of(folder, tab)["name"] == "still here"
    with tab.client.tab(tab.document) as other:
        assert other.page["name"] == "still here"


def test_whole_pairs_are_text(tab, folder):
    tab.do("title", name="𝄞")  # which the client escapes as two halves
    assert tab.page["name"] == "𝄞"
    assert draft_of(folder, tab)["name"] == "𝄞"


@pytest.mark.parametrize(
    "body", [{"open": HALF}, {"example": HALF}, {"draft": HALF}, {"data": HALF, "name": HALF}, {"new": True, HALF: 1}]
)
def test_requests_are_refused_with_an_answer(client, body):
    for sent in (body, json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")):
        answer = client.post(sent)
        assert answer.status == 400
        assert answer.json["error"]["code"] in ("bad-text", "bad-json")
    assert client.post({"new": True}).status == 200


@pytest.mark.parametrize("path", ["/api/documents/%ED%A0%80/export?as=py", "/static/%ED%A0%80", "/api/drafts/%FF"])
def test_paths_that_are_no_text(client, path):
    assert client.request("GET", path).status in (404, 405)


def test_files_that_are_no_text(client, folder):
    (folder / "half.page.json").write_text(PAGE.replace("pooled mean", r"\ud800"))
    answer = client.post({"open": "half.page.json"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad-text")
    np.save(folder / "half.npy", np.array(["x", HALF]))
    with client.tab(client.open(new=True)) as tab:
        assert tab.refused("add", op="File", at=[0, 0], attrs={"path": "half.npy"})["code"] == "bad-text"
        np.save(folder / "later.npy", np.array(["x", "y"]))
        tab.do("add", op="File", at=[0, 0], attrs={"path": "later.npy"})
        np.save(folder / "later.npy", np.array(["x", HALF]))
        tab.do("run")
        assert tab.results["File"]["error"]["code"] == "bad-text"
        tab.do("title", name="still here")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_of_files_that_are_no_text(client, folder):
    os.link(folder / "mean.page.json", os.fsencode(folder) + b"/\xff.page.json")
    os.mkdir(os.fsencode(folder) + b"/\xfe")
    os.link(folder / "mean.page.json", os.fsencode(folder) + b"/\xfe/mean.page.json")
    os.symlink(b"\xff.page.json", os.fsencode(folder) + b"/link.page.json")
    (folder / ".rowgrad" / "drafts").mkdir(parents=True)
    (folder / ".rowgrad" / "drafts" / "\udcff.draft.json").write_text("{}")
    answer = client.get("/api/files")
    assert answer.status == 200
    assert {entry["path"] for entry in answer.json["pages"]} == {"mean.page.json", "link.page.json"}
    answer = client.post({"open": "link.page.json"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad-text")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_no_text(tmp_path):
    place = tmp_path / "\udcff"
    place.mkdir()
    with pytest.raises(Refusal, match="the folder of the studio"), studio(place):
        pass
    with pytest.raises(Refusal, match="the name of the page"):
        serve(tmp_path, "\udcff.page.json", browser=False)


def test_drafts_that_hold_no_text_are_none(client, folder):
    id = "0123456789abcdef"
    place = folder / ".rowgrad" / "drafts" / f"{id}.draft.json"
    place.parent.mkdir(parents=True)
    draft = {"rowgrad_draft": 1, "page": PAGE, "name": "n", "path": None, "place": "", "feeds": {}, "answers": []}
    place.write_text(json.dumps({**draft, "feeds": {"x": HALF}}))
    assert client.post({"draft": id}).status == 404
    place.write_text(json.dumps(draft))
    assert client.post({"draft": id}).status == 200


def test_whatever_is_said_can_be_sent():
    error = problem(FileNotFoundError(2, "no such file", HALF))
    assert decoded(encoded({"error": {"message": "é"}}), "it") == {"error": {"message": "é"}}
    assert json.loads(encoded({"error": error}).encode()) == {"error": error}
