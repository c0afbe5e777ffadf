"""Every verb of the protocol: what it changes, what it refuses, and that one gesture is one step back."""

import base64

import pytest
from studio_client import PAGE, studio

from rowgrad_studio.commands import VERBS

MEAN_GRAD = [["1", "0.333333", "1.66667"]] * 3


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A tab that is only asked for what is refused, and so stays as it is."""
    place = tmp_path_factory.mktemp("studio")
    (place / "mean.page.json").write_text(PAGE)
    with studio(place) as client, client.tab(client.open(open="mean.page.json")) as found:
        yield found


def cells(tab, block, pin="output"):
    return tab.results[block]["outputs"][pin]["cells"]


def test_a_page_is_drawn_and_run(empty):
    assert empty.do(
        "add", op="Const", at=[0, 0], attrs={"value": [[1, 2, 3], [4, 4, 2], [3, 1, 5]], "dtype": "float32"}
    ) == {"block": "Const"}
    assert empty.do("add", op="SparseSegmentMeanGrad", at=[300, 0]) == {"block": "SparseSegmentMeanGrad"}
    assert empty.blocks["SparseSegmentMeanGrad"]["missing"] == ["grad", "indices", "segment_ids", "output_dim0"]
    assert [p["pin"] for p in empty.page["problems"]] == ["grad", "indices", "segment_ids", "output_dim0"]
    empty.do("connect", source="Const:output", target="SparseSegmentMeanGrad:grad")
    empty.do(
        "change", block="SparseSegmentMeanGrad", set={"indices": [0, 1, 2], "segment_ids": [2, 2, 2], "output_dim0": 3}
    )
    block = empty.blocks["SparseSegmentMeanGrad"]
    assert block["inputs"] == {"grad": "Const:output", "indices": [0, 1, 2], "segment_ids": [2, 2, 2], "output_dim0": 3}
    assert block["in"]["grad"] == [{"dtype": "float32", "shape": [3, 3], "text": "float32 [3, 3]"}]
    assert block["out"]["output"]["text"] == "float32 [3, 3]"
    assert empty.page["problems"] == []
    assert empty.do("run") == {}
    assert cells(empty, "SparseSegmentMeanGrad") == MEAN_GRAD


def test_events_come_before_the_answer(tab):
    tab.do("rename", block="after", name="later")
    assert "later" in tab.blocks and "after" not in tab.blocks
    assert tab.page["undo"] == "rename after"


def test_only_what_changed_is_sent(tab):
    tab.forget()
    tab.do("move", places={"grad": [1, 2.5]})
    (event,) = [event for event in tab.events if event["event"] == "page"]
    assert list(event["blocks"]) == ["grad"]
    assert event["blocks"]["grad"]["at"] == [1, 2.5]
    assert event["order"] == ["grad", "mean", "after"]


def test_a_gesture_that_changes_nothing_is_no_step(tab):
    tab.do("move", places={"grad": [40, 40]})
    assert tab.page["undo"] is None


def test_change_clears_and_sets(tab):
    tab.do("change", block="mean", set={"grad": None, "indices": {"value": [0, 1, 2], "dtype": "int64"}})
    assert tab.blocks["mean"]["missing"] == ["grad"]
    assert tab.blocks["mean"]["in"]["indices"][0]["dtype"] == "int64"
    assert tab.page["undo"] == "change grad, indices of mean"
    tab.do("undo")
    assert tab.blocks["mean"]["missing"] == []


@pytest.mark.parametrize(
    ("do", "given", "code", "block", "pin"),
    [
        ("connect", {"source": "grad:output", "target": "mean:indices"}, "wrong-dtype", "mean", "indices"),
        ("connect", {"source": "after:y", "target": "mean:grad"}, "cycle", "mean", "grad"),
        ("connect", {"source": "nobody:y", "target": "mean:grad"}, "unknown-block", None, None),
        ("disconnect", {"target": "mean:nothing"}, "unknown-pin", "mean", "nothing"),
        ("change", {"block": "mean", "set": {"indices": [0, [1]]}}, "ragged", "mean", "indices"),
        ("change", {"block": "mean", "set": {"indices": [0.5]}}, "wrong-dtype", "mean", "indices"),
        ("change", {"block": "grad", "set": {"value": [[1, 2], [3]]}}, "ragged", "grad", "value"),
        ("change", {"block": "nobody", "set": {"x": 1}}, "unknown-block", None, None),
        ("add", {"op": "Nothing", "at": [0, 0]}, "unknown-operator", None, None),
        ("add", {"op": "Neg", "at": [0, 0], "inputs": {"y": 1}}, "unknown-pin", None, "y"),
        ("add", {"op": "Neg", "at": [0, 0], "connect": {"source": "grad:output"}}, "bad-command", None, "connect"),
        ("add", {"op": "Neg", "at": [0, 1e300]}, "bad-command", None, "at"),
        ("remove", {"blocks": ["grad", "nobody"]}, "unknown-block", None, None),
        ("rename", {"block": "mean", "name": "a b"}, "bad-id", None, None),
        ("rename", {"block": "mean", "name": "grad"}, "duplicate-id", "grad", None),
        ("tidy", {"blocks": ["nobody"]}, "unknown-block", None, None),
        ("title", {"name": "  "}, "bad-command", None, "name"),
        ("note", {"id": "nobody", "text": "x", "at": [0, 0]}, "unknown-note", None, "id"),
        ("add_gradients", {"y": "nobody", "xs": ["grad"]}, "unknown-block", None, None),
        ("fits", {}, "bad-command", None, None),
        ("fits", {"source": "grad:output", "target": "mean:grad"}, "bad-command", None, None),
        ("fits", {"target": "mean:nothing"}, "unknown-pin", None, "target"),
        ("feed", {"block": "grad", "value": 1}, "unknown-feed", None, "block"),
        ("undo", {}, "nothing-to-do", None, None),
        ("redo", {}, "nothing-to-do", None, None),
        ("run_to", {"block": "nobody"}, "unknown-block", None, None),
        ("loop", {"steps": 0}, "bad-command", None, "steps"),
        ("loop", {"steps": 2, "record": ["nobody:y"]}, "unknown-block", None, None),
        ("check_gradients", {"y": "nobody", "xs": []}, "unknown-block", None, None),
        ("paste", {"blocks": [{"op": "Neg"}]}, "bad-command", None, "id"),
        ("save", {"path": "../out.page.json"}, "outside", None, "path"),
        ("nonsense", {}, "unknown-command", None, None),
        ("move", {"places": {"grad": [0]}}, "bad-command", None, "places"),
        ("move", {"places": {"grad": [True, 0]}}, "bad-command", None, "places"),
        ("move", {}, "bad-command", None, "places"),
        ("run", {"fast": True}, "bad-command", None, "fast"),
    ],
)
def test_what_is_refused_changes_nothing(refusing, do, given, code, block, pin):
    tab = refusing
    error = tab.refused(do, **given)
    assert (error["code"], error["block"], error["pin"]) == (code, block, pin), error
    assert error["message"].endswith((".", ")"))
    assert tab.do("fits", source="grad:output")["pins"]  # it goes on


@pytest.mark.parametrize("do", VERBS)
def test_no_argument_breaks_a_verb(client, do):
    """Every field of every verb with a value of every kind: an answer, and the server goes on."""
    data = base64.b64encode(PAGE.encode()).decode()
    for value in (None, 2, True, "grad", [], {}, [[]], ["mean"], {"a": None}, {"grad": [1, 2]}):
        with client.tab(client.open(data=data, name="mean.page.json")) as tab:
            answer = tab.answer(tab.send(do, **dict.fromkeys(VERBS[do].fields, value)))
            assert "error" not in answer or answer["error"]["code"] != "internal", answer
            assert tab.do("fits", source="grad:output") if "grad" in tab.blocks else tab.do("run") == {}


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", -1),
        ("nonsense", -1),
        ("[]", -1),
        ('{"n": 1000}', 1000),
        ('{"n": "1", "do": "run"}', -1),
        ('{"n": 1005, "do": 3}', 1005),
        ('{"n": 1006, "do": "move", "places": {"grad": [NaN, 0]}}', 1006),
        ("[" * 100_000, -1),
        ('{"n": 1007, "do', 1007),
        ('{"n": true, "do": "run"}', -1),
        ('{"n": -3, "do": "run"}', -1),
    ],
)
def test_messages_that_are_none(refusing, text, n):
    tab = refusing
    tab.answers.pop(n, None)
    tab.line.send(text)
    assert tab.answer(n)["error"]["code"] in ("bad-json", "bad-command")
    assert tab.do("run") == {}


def test_bytes_and_messages_that_are_too_large(tab):
    tab.line.send(b"\0\1")
    assert tab.answer(-1)["error"]["code"] == "bad-json"
    tab.answers.clear()
    tab.line.send('{"n": 77, "do": "note", "text": "' + "x" * (17 * 2**20) + '"}')
    assert tab.answer(77)["error"]["code"] == "too-large"
    assert tab.do("run") == {}


def test_ten_gestures_and_back(empty):
    gestures = [
        ("add", {"op": "Const", "at": [0, 0], "attrs": {"value": [[1.0, 2.0]]}}),
        ("add", {"op": "Neg", "at": [200, 0]}),
        ("connect", {"source": "Const:output", "target": "Neg:x"}),
        ("move", {"places": {"Const": [10, 20], "Neg": [300, 20]}}),
        ("rename", {"block": "Neg", "name": "minus"}),
        ("change", {"block": "Const", "set": {"value": [[3.0, 4.0]]}}),
        ("note", {"text": "watch this", "at": [0, 300]}),
        ("title", {"name": "ten gestures"}),
        (
            "paste",
            {"blocks": [{"id": "minus", "op": "Neg", "inputs": {"x": "Const:output"}, "at": [0, 0]}], "at": [50, 60]},
        ),
        ("remove", {"blocks": ["minus"]}),
    ]
    kinds = ("blocks", "notes", "name")

    def shown():
        return {"blocks": dict(empty.blocks)} | {kind: empty.page[kind] for kind in kinds if kind != "blocks"}

    seen = [shown()]
    for do, given in gestures:
        empty.do(do, **given)
        seen.append(shown())
    labels = []
    for before in reversed(seen[:-1]):
        labels.append(empty.do("undo")["label"])
        assert shown() == before
    assert empty.page["undo"] is None and not empty.blocks
    assert len(set(labels)) == 10
    for after, label in zip(seen[1:], reversed(labels), strict=True):
        assert empty.do("redo")["label"] == label
        assert shown() == after
    assert empty.page["redo"] is None


def test_a_new_gesture_ends_what_could_be_redone(tab):
    tab.do("move", places={"grad": [0, 0]})
    tab.do("undo")
    assert tab.page["redo"] == "move grad"
    tab.do("title", name="other")
    assert tab.page["redo"] is None


def test_results_are_kept_over_undo_and_marked_stale(tab):
    tab.do("run")
    assert not tab.results["after"]["stale"]
    tab.do("change", block="mean", set={"segment_ids": [0, 0, 0]})
    assert tab.results["mean"]["stale"] and tab.results["after"]["stale"] and not tab.results["grad"]["stale"]
    assert cells(tab, "mean") == MEAN_GRAD
    tab.do("undo")
    assert not tab.results["mean"]["stale"] and not tab.results["after"]["stale"]


def test_add_wires_in_both_directions(tab):
    assert tab.do("add", op="Square", at=[0, 0], connect={"source": "grad:output", "pin": "x"}) == {"block": "Square"}
    assert tab.blocks["Square"]["inputs"] == {"x": "grad:output"}
    tab.do("add", op="Const", at=[0, 0], attrs={"value": 3}, connect={"pin": "output", "target": "mean:output_dim0"})
    assert tab.blocks["mean"]["inputs"]["output_dim0"] == "Const:output"
    tab.do("undo")
    assert "Const" not in tab.blocks and tab.blocks["mean"]["inputs"]["output_dim0"] == 3
    tab.do("add", op="Concat", at=[0, 0], connect={"source": "grad:output", "pin": "values"})
    tab.do("connect", source="mean:output", target="Concat:values")
    assert tab.blocks["Concat"]["inputs"]["values"] == ["grad:output", "mean:output"]


def test_every_operator_can_be_added_and_its_example_inserted(empty, client):
    for operator in client.get("/api/catalogue").json["operators"]:
        assert empty.do("add", op=operator["name"], at=[0, 0])["block"]
        example = operator["example"]
        id = empty.do("add", op=operator["name"], at=[0, 0], inputs=example["inputs"], attrs=example["attrs"])["block"]
        assert not empty.blocks[id]["missing"]
    assert sum(block["op"] == "Variable" for block in empty.blocks.values()) > 9  # one for each that is updated


def test_remove_and_move_take_notes_too(tab):
    note = tab.do("note", text="here", at=[5, 6])["note"]
    tab.do("move", places={"grad": [1, 1]}, notes={note: [7, 8]})
    assert tab.page["notes"] == [{"id": note, "text": "here", "at": [7, 8]}]
    tab.do("note", id=note, text="there", at=[7, 8])
    assert tab.page["notes"][0]["text"] == "there"
    tab.do("remove", blocks=["grad"], notes=[note])
    assert tab.page["notes"] == [] and tab.blocks["mean"]["missing"] == ["grad"]
    tab.do("undo")
    assert tab.page["notes"] and "grad" in tab.blocks
    tab.do("note", id=note, text="", at=[0, 0])
    assert tab.page["notes"] == []


def test_tidy_moves_blocks(tab):
    tab.do("move", places={"grad": [900, 900], "mean": [0, 0], "after": [5, 5]})
    tab.do("tidy")
    assert tab.blocks["grad"]["at"][0] < tab.blocks["mean"]["at"][0] < tab.blocks["after"]["at"][0]


def test_paste_keeps_wires(tab):
    records = [{key: tab.blocks[id][key] for key in ("id", "op", "inputs", "attrs", "at")} for id in ("after", "mean")]
    assert tab.do("paste", blocks=records, at=[1000, 500]) == {"blocks": ["after_1", "mean_1"]}
    assert tab.blocks["mean_1"]["inputs"]["grad"] == "grad:output"
    assert tab.blocks["after_1"]["inputs"]["x"] == "mean_1:output"
    assert tab.blocks["mean_1"]["at"] == [1000, 500] and tab.blocks["after_1"]["at"] == [1380, 500]
    assert tab.do("paste", blocks=records)["blocks"] == ["after_2", "mean_2"]


def test_paste_on_another_page_drops_wires_from_elsewhere(tab, client):
    records = [{key: tab.blocks["mean"][key] for key in ("id", "op", "inputs", "attrs", "at")}]
    with client.tab(client.open(new=True)) as other:
        assert other.do("paste", blocks=records, at=[0, 0]) == {"blocks": ["mean"]}
        assert other.blocks["mean"]["missing"] == ["grad"]
        other.do("add", op="Const", at=[0, 0], attrs={"value": "text"})
        other.do("rename", block="Const", name="grad")
        other.do("paste", blocks=records, at=[0, 0])  # there is a block of that name, and it does not fit
        assert other.blocks["mean_1"]["missing"] == ["grad"]


def test_a_cycle_is_not_pasted(tab):
    records = [{"id": "a", "op": "Neg", "inputs": {"x": "b:y"}}, {"id": "b", "op": "Neg", "inputs": {"x": "a:y"}}]
    assert tab.refused("paste", blocks=records)["code"] == "cycle"


def test_large_literals_travel_by_name(tab, client):
    rows = [[float(i), -1.0] for i in range(1000)]
    tab.do("change", block="grad", set={"value": {"value": rows, "dtype": "float32"}})
    held = tab.blocks["grad"]["attrs"]["value"]
    assert set(held) == {"file"} and tab.blocks["grad"]["out"]["output"]["text"] == "float32 [1000, 2]"
    record = {key: tab.blocks["grad"][key] for key in ("id", "op", "inputs", "attrs", "at")}
    with client.tab(client.open(new=True)) as other:
        other.do("paste", blocks=[record], at=[0, 0])
        other.do("run")
        assert other.results["grad"]["outputs"]["output"]["kind"] == "heat"
        assert other.results["grad"]["outputs"]["output"]["shape"] == [1000, 2]


def test_add_gradients(tab):
    tab.do("add", op="ReduceSum", at=[0, 0], inputs={"input": "after:y", "axis": [0, 1]})
    added = tab.do("add_gradients", y="ReduceSum:output", xs=["grad:output"])["group"]
    assert tab.blocks[added]["op"] == "Group" and tab.page["groups"][0]["kind"] == "gradients"
    assert tab.page["undo"] == "add gradients of ReduceSum:output"
    tab.do("undo")
    assert added not in tab.blocks and not tab.page["groups"]
    assert tab.do("check_gradients", y="ReduceSum:output", xs=["grad:output"])["ok"] is True


def test_fits_tells_what_connect_takes(tab):
    tab.do("add", op="SparseSegmentMeanGradV2", at=[0, 0])
    found = tab.do("fits", source="after:y")
    assert found["pins"] == ["SparseSegmentMeanGradV2:grad"]
    operators = {entry["op"]: entry["pin"] for entry in found["operators"]}
    assert operators["Neg"] == "x" and "Const" not in operators and operators["SparseSegmentMeanGrad"] == "grad"
    for pin in tab.do("fits", source="grad:output")["pins"]:
        tab.do("connect", source="grad:output", target=pin)
        tab.do("undo")
    found = tab.do("fits", target="mean:grad")
    assert found["pins"][0] == "grad:output" and not {"mean:output", "after:y"} & set(found["pins"])
    assert {"op": "Const", "pin": "output"} in found["operators"]
    tab.do("add", op="ApplyGradientDescent", at=[0, 0])
    assert tab.do("fits", target="ApplyGradientDescent:var")["operators"] == [{"op": "Variable", "pin": "ref"}]


def test_a_feed_is_checked_and_used(empty):
    empty.do("add", op="Placeholder", at=[0, 0], attrs={"dtype": "float32", "shape": ["n"]})
    empty.do("add", op="Neg", at=[0, 0], connect={"source": "Placeholder:output", "pin": "x"})
    empty.do("run")
    assert empty.results["Placeholder"]["error"]["code"] == "not-fed"
    assert empty.results["Neg"]["status"] == "skipped" and empty.results["Neg"]["needs"] == "Placeholder"
    assert empty.refused("feed", block="Placeholder", value=[[1.0]])["code"] == "wrong-rank"
    empty.do("feed", block="Placeholder", value=[1.0, 2.0])
    empty.do("run")
    assert cells(empty, "Neg", "y") == [["-1"], ["-2"]]
