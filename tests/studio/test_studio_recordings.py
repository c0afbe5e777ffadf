"""Runs that are kept: names, pauses, sweeps, what late tabs get, and sliders whose drag is one step of undo."""

import pytest
from test_studio_runs import training

LOSS = "ReduceSum:output"


def runs(tab):
    """The runs as the last event has them."""
    return [event for event in tab.events if event["event"] == "runs"][-1]["runs"]


def whole(tab, client):
    """The runs with their values, as a tab that has just come gets them."""
    with client.tab(tab.document) as late:
        late.hear(lambda: late.events[-1]["event"] == "runs")
        return {run["name"]: run for run in late.events[-1]["runs"]}


def told(tab, run):
    """The values that the progress events have told, put together by their places."""
    values: list[float] = []
    for event in tab.events:
        if event["event"] == "progress" and event["run"] == run:
            values[event["begins"] :] = event["recorded"].get(LOSS, ())
    return values


def test_runs_are_kept_under_names(empty, client):
    training(empty)
    first = empty.do("loop", steps=20, record=[LOSS], name="  plain   descent ")
    empty.do("loop", steps=5, record=[LOSS], name="plain descent")
    empty.do("loop", steps=5, record=[LOSS])
    assert [run["name"] for run in runs(empty)] == ["plain descent", "plain descent (2)", "run 3"]
    assert runs(empty)[0]["values"] is None  # told by progress already
    known = whole(empty, client)
    assert len(known["plain descent"]["values"][LOSS]) == 20
    assert known["plain descent"]["values"][LOSS] == told(empty, first["run"])
    empty.do("rename_run", run=first["run"], name="first")
    assert runs(empty)[0]["name"] == "first"
    assert empty.refused("rename_run", run=first["run"], name=" ")["pin"] == "name"
    assert empty.refused("rename_run", run=99, name="x")["code"] == "unknown-run"
    empty.do("remove_runs", runs=[first["run"]])
    assert [run["name"] for run in runs(empty)] == ["plain descent (2)", "run 3"]


def test_a_paused_loop_goes_on_with_what_was_changed(empty, client):
    training(empty)
    n = empty.send("loop", steps=100_000, record=[LOSS])
    while empty.hear_event("progress", running=True)["step"] < 3:
        pass
    empty.do("pause")
    ok = empty.answer(n)["ok"]
    assert ok["paused"] and 3 <= ok["steps"] < 100_000
    assert runs(empty)[-1]["paused"]
    empty.do("change", block="ApplyGradientDescent", set={"alpha": 0.0})
    n = empty.send("resume", run=ok["run"])
    while empty.hear_event("progress", running=True)["step"] < ok["steps"] + 3:
        pass
    empty.do("stop")
    steps = empty.answer(n)["ok"]["steps"]
    (run,) = runs(empty)
    assert not run["paused"] and run["marks"] == [{"step": ok["steps"], "text": "change alpha of ApplyGradientDescent"}]
    values = whole(empty, client)["run 1"]["values"][LOSS]
    assert len(values) == steps and values == told(empty, ok["run"])
    assert values[0] == 80.0 and len(set(values[ok["steps"] :])) == 1  # a rate of zero: nothing moves any more
    assert empty.refused("resume", run=ok["run"])["code"] == "not-paused"
    assert empty.do("pause") == {}  # nothing runs


def test_only_loops_are_paused(empty):
    training(empty)
    n = empty.send("sweep", target="ApplyGradientDescent:alpha", values=[0.1, 0.2], steps=10_000_000, record=[LOSS])
    empty.hear_event("progress", running=True)
    assert empty.refused("pause")["code"] == "not-paused"
    empty.do("stop")
    assert len(empty.answer(n)["ok"]["runs"]) == 1


def test_a_sweep_is_one_run_for_each_value_from_one_beginning(empty, client):
    training(empty)
    empty.do("loop", steps=3, record=[LOSS], name="mine")
    before = empty.results["Variable"]["outputs"]["ref"]["cells"]
    revision = empty.page["revision"]
    ok = empty.do("sweep", target="ApplyGradientDescent:alpha", values=[0.0, 0.25, 0.5], steps=4, record=[LOSS])
    assert len(ok["runs"]) == 3 and empty.page["revision"] == revision
    assert empty.results["Variable"]["outputs"]["ref"]["cells"] == before
    known = whole(empty, client)
    assert known["alpha = 0.0"]["values"][LOSS] == [80.0] * 4
    assert known["alpha = 0.25"]["values"][LOSS] == [80.0, 45.0, 25.3125, pytest.approx(14.23828125)]
    assert known["alpha = 0.5"]["about"] == "alpha of ApplyGradientDescent is 0.5"
    path = f"/api/documents/{empty.document}/look/window"
    run = known["alpha = 0.0"]["id"]
    assert client.get(path, block="Square", pin="y", against=run).status == 200


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"target": "nowhere:alpha"}, "unknown-block"),
        ({"target": "ApplyGradientDescent:nothing"}, "unknown-pin"),
        ({"values": []}, "bad-command"),
        ({"values": [0.1] * 31}, "bad-command"),
        ({"record": ["nowhere:y"]}, "unknown-block"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_it_runs(empty, given, code):
    training(empty)
    fields = {"target": "ApplyGradientDescent:alpha", "values": [0.1], "steps": 2, "record": [LOSS], **given}
    assert empty.refused("sweep", **fields)["code"] == code
    assert not [event for event in empty.events if event["event"] == "runs" and event["runs"]]


def test_one_slide_is_one_step_of_undo(tab):
    for value in (4, 5, 6):
        tab.do("change", block="mean", set={"output_dim0": value}, slide=1)
    tab.do("change", block="mean", set={"output_dim0": 8}, slide=2)
    tab.do("undo")
    assert tab.blocks["mean"]["inputs"]["output_dim0"] == 6
    tab.do("undo")
    assert tab.blocks["mean"]["inputs"]["output_dim0"] == 3


def test_groups_are_copied_with_what_is_in_them(tab, client):
    tab.do("group", blocks=["mean", "after"], name="half")
    tab.do("collapse", group="half")
    page = tab.do("copy", blocks=["half"])["page"]
    assert tab.do("paste_page", page=page, at=[900, 300])["blocks"] == ["half_1"]
    assert tab.blocks["half_1"]["at"] == [900, 300]
    with client.tab(client.open(new=True)) as other:
        assert other.do("paste_page", page=page, at=[0, 0])["blocks"] == ["half"]
        other.do("open", group="half")
        assert {"mean", "after"} <= set(other.blocks)
        assert other.blocks["after"]["inputs"] == {"x": "mean:output"}
        assert other.refused("paste_page", page="{", at=[0, 0])["code"]
