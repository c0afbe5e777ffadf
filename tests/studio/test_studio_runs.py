"""Runs: to the end, to a block, step by step, in a loop that can be stopped; progress, errors, and two tabs."""

import time

import pytest
from websockets.exceptions import ConnectionClosed

from rowgrad_studio import documents


def training(tab):
    """A page whose loop takes steps: w goes to zero."""
    tab.do("add", op="Variable", at=[0, 0], inputs={"initial_value": [8.0, 4.0]})
    tab.do("add", op="Square", at=[0, 0], connect={"source": "Variable:ref", "pin": "x"})
    tab.do("add", op="ReduceSum", at=[0, 0], inputs={"input": "Square:y", "axis": [0]})
    tab.do(
        "add",
        op="ApplyGradientDescent",
        at=[0, 0],
        inputs={"var": "Variable:ref", "alpha": 0.25, "delta": "Variable:ref"},
    )


def test_progress_begins_and_ends_with_the_run(tab):
    tab.do("run")
    told = [event for event in tab.events if event["event"] == "progress"]
    assert told[0]["running"] and not told[-1]["running"]
    assert {result["status"] for result in tab.results.values()} == {"done"}


def test_run_to_here(tab):
    tab.do("run_to", block="mean")
    assert {id: result["status"] for id, result in tab.results.items()} == {
        "grad": "done",
        "mean": "done",
        "after": "waiting",
    }


def test_step_by_step(tab):
    taken = []
    while (block := tab.do("step")["block"]) is not None:
        taken.append(block)
    assert taken == ["grad", "mean", "after"]


def test_an_error_is_on_its_pin_and_others_wait_for_it(tab):
    tab.do("change", block="mean", set={"indices": [0, 7, 2]})
    tab.do("run")
    error = tab.results["mean"]["error"]
    assert (error["block"], error["pin"], error["code"]) == ("mean", "indices", "index-out-of-range")
    assert error["position"] == 1 and error["value"] == 7
    after = tab.results["after"]
    assert (after["status"], after["needs"], after["stale"]) == ("skipped", "mean", False)
    assert (after["reason"], after["error"], after["outputs"]) == ("skipped: needs mean", None, {})
    tab.do("change", block="mean", set={"indices": [0, 1, 2]})
    assert tab.results["mean"]["stale"] and tab.results["after"]["stale"]  # the error is one of before
    tab.do("undo")
    assert not tab.results["mean"]["stale"] and not tab.results["after"]["stale"]
    tab.do("redo")
    tab.do("run")
    assert tab.results["after"]["status"] == "done"


def test_a_loop_records_every_step(empty):
    training(empty)
    assert empty.do("loop", steps=50, record=["ReduceSum:output"])["steps"] == 50
    told = [event for event in empty.events if event["event"] == "progress"]
    losses = [value for event in told for value in event["recorded"].get("ReduceSum:output", ())]
    assert len(losses) == 50
    assert losses[:3] == [80.0, 45.0, 25.3125]
    empty.do("reset")
    assert {result["status"] for result in empty.results.values()} == {"waiting"}
    empty.do("loop", steps=1, record=["ReduceSum:output"])
    assert [e for e in empty.events if e["event"] == "progress"][-1]["recorded"] == {"ReduceSum:output": [80.0]}


def test_a_loop_without_end_is_stopped_and_the_page_is_drawn_on_meanwhile(empty, client):
    training(empty)
    n = empty.send("loop", steps=10_000_000, record=["ReduceSum:output"])
    first = empty.hear_event("progress", running=True)
    while first["step"] < 3:
        first = empty.hear_event("progress", running=True)
    assert first["steps"] == 10_000_000
    for do, given in (("run", {}), ("step", {}), ("reset", {}), ("loop", {"steps": 2})):
        assert empty.refused(do, **given)["code"] == "busy"
    empty.do("add", op="Neg", at=[0, 0])
    empty.do("remove", blocks=["Square"])  # the run goes on with the page as it was
    with client.tab(empty.document) as late:  # who comes now is told that it runs
        assert late.hear_event("progress", running=True)
    begun = time.monotonic()
    empty.do("stop")
    assert empty.answer(n)["ok"]["steps"] >= 3
    assert time.monotonic() - begun < 30
    assert empty.results["ReduceSum"]["stale"]
    assert "Square" not in empty.results
    assert empty.do("stop") == {}  # nothing runs: fine
    empty.do("undo")
    empty.do("run")
    assert empty.results["ReduceSum"]["status"] == "done"


def test_a_failing_step_ends_a_loop(tab):
    tab.do("change", block="mean", set={"indices": [0, 7, 2]})
    assert tab.do("loop", steps=5) == {"steps": 0, "run": 1, "paused": False}
    assert tab.results["mean"]["status"] == "failed"


def test_texts_are_not_recorded(empty):
    empty.do("add", op="Const", at=[0, 0], attrs={"value": "a"})
    assert empty.refused("loop", steps=1, record=["Const:output"])["code"] == "wrong-dtype"


def test_two_tabs_see_the_same(tab, client):
    with client.tab(tab.document) as other:
        assert other.blocks == tab.blocks
        other.do("rename", block="after", name="first")
        tab.hear(lambda: "first" in tab.blocks)
        numbers = [t.send("add", op="Neg", at=[i, 0]) for i in range(20) for t in (tab, other)]
        assert len(numbers) == 40
        for n in range(20):
            tab.answer(numbers[2 * n])
            other.answer(numbers[2 * n + 1])
        for one, two in ((tab, other), (other, tab)):
            one.hear(lambda one=one, two=two: one.page["revision"] >= two.page["revision"])
        assert tab.blocks == other.blocks and len(tab.blocks) == 43
        tab.do("run")
        other.hear(lambda: other.results["mean"]["status"] == "done")
        for _ in range(40):
            other.do("undo")
        tab.hear(lambda: len(tab.blocks) == 3)


def test_the_same_file_is_one_document(client, tab):
    assert client.open(open="mean.page.json") == tab.document
    assert client.open(open="./mean.page.json") == tab.document


def test_a_command_is_done_once_however_often_it_is_sent(tab, client):
    n = tab.send("add", n=500, op="Neg", at=[0, 0])
    first = tab.answer(n)
    tab.answers.clear()
    tab.send("add", n=500, op="Neg", at=[0, 0])
    assert tab.answer(500) == first
    assert "Neg_1" not in tab.blocks
    with client.tab(tab.document, tab.name) as again:  # the tab was cut off, and is back
        again.send("add", n=500, op="Neg", at=[0, 0])
        assert again.answer(500) == first
        again.send("add", n=501, op="Neg", at=[0, 0])
        assert again.answer(501)["ok"] == {"block": "Neg_1"}
    with client.tab(tab.document) as another:  # another client's numbers are its own
        another.send("add", n=500, op="Neg", at=[0, 0])
        assert another.answer(500)["ok"] == {"block": "Neg_2"}


def test_a_run_whose_tab_goes_is_answered_to_the_next(empty, client):
    training(empty)
    empty.send("loop", n=900, steps=10_000_000)
    empty.hear_event("progress", running=True)
    empty.close()
    with client.tab(empty.document, empty.name) as back:
        back.send("loop", n=900, steps=10_000_000)
        back.send("stop", n=901)
        assert "steps" in back.answer(900)["ok"]


def test_a_tab_that_does_not_listen_is_dropped_and_others_go_on(tab, client, monkeypatch):
    monkeypatch.setattr(documents, "MOST_WAITING", 20)
    with client.tab(tab.document, max_queue=1, compression=None) as deaf:
        for i in range(10):
            tab.do("note", text="x" * 9999, at=[0, i])
        for i in range(200):  # far more than sockets hold back
            tab.do("move", places={"grad": [i, 1]})
        assert tab.blocks["grad"]["at"] == [199, 1]
        with pytest.raises((ConnectionClosed, EOFError)):
            deaf.hear(lambda: deaf.blocks["grad"]["at"] == [199, 1])
