"""A contest is fair: answers are compared first, turns are interleaved, and only the work is timed."""

import gc
import time

import numpy as np
import pytest

from bench import contest
from bench.contest import Entry, compete, differences

RIGHT = np.array([1.0, 2.0, 4.0], np.float32)


def entry(name, result=RIGHT, **options):
    return Entry(name, lambda: result, lambda given: [given], **options)


def test_a_right_contestant_is_timed():
    timings = compete([entry("rowgrad"), entry("peer")], rounds=4, pause=0)
    for timing in timings.values():
        assert len(timing.seconds) == 4
        assert timing.best == min(timing.seconds) > 0
        assert timing.calls > 1
        written = timing.as_json()
        assert written["ms"] == pytest.approx(timing.best * 1e3, rel=1e-3)
        assert written["median_ms"] >= written["ms"]
        assert written["rounds"] == 4


@pytest.mark.parametrize(
    ("wrong", "options", "words"),
    [
        (RIGHT * 2, {}, "3 of 3 numbers of result 0 differ by more than 0.001 of it; at [0] it has 2.0, ours has 1.0"),
        (RIGHT + np.float32(1e-6), {"exact": True}, "at [0] it has 1.00000"),
        (RIGHT[:2], {}, "result 0 has shape [2]; ours has [3]"),
        (np.array([1, np.nan, 4], np.float32), {}, "at [1] it has nan, ours has 2.0"),
        (RIGHT.astype(np.float64), {"exact": True}, "differ"),
    ],
)
def test_a_wrong_contestant_is_caught_and_not_timed(wrong, options, words):
    timings = compete([entry("rowgrad"), entry("peer", wrong, **options), entry("other")], rounds=1, pause=0)
    assert timings["peer"].problem.startswith("wrong answer: ")
    assert words in timings["peer"].problem
    assert timings["peer"].seconds == []
    assert timings["peer"].as_json() == {"problem": timings["peer"].problem}
    assert timings["rowgrad"].seconds and timings["other"].seconds


def test_a_failing_contestant_does_not_stop_the_others():
    def fail():
        raise RuntimeError("no such kernel")

    timings = compete([entry("rowgrad"), Entry("peer", fail, list), entry("other")], rounds=1, pause=0)
    assert timings["peer"].problem == "RuntimeError: no such kernel"
    assert timings["other"].seconds
    with pytest.raises(RuntimeError, match="no such kernel"):
        compete([Entry("rowgrad", fail, list)], rounds=1, pause=0)


def test_ours_comes_first():
    with pytest.raises(ValueError, match="first contestant is peer"):
        compete([entry("peer"), entry("rowgrad")])


def test_differences():
    off = RIGHT * np.float32(1.0005)
    assert differences([RIGHT], [off], exact=False, tolerance=1e-3) == ""
    assert differences([RIGHT], [off], exact=False, tolerance=1e-4)
    assert differences([RIGHT], [RIGHT.copy()], exact=True, tolerance=0) == ""
    assert "it has 1 results; ours has 2" in differences([RIGHT, RIGHT], [RIGHT], exact=False, tolerance=1)
    zero = np.zeros(1, np.float32)
    assert differences([zero], [-zero], exact=True, tolerance=0)
    ids = np.arange(3)
    assert differences([ids], [ids + 1], exact=False, tolerance=10)
    assert differences([ids], [ids.astype(np.int32)], exact=False, tolerance=0) == ""
    scalar = np.float32(3)
    assert differences([np.asarray(scalar)], [np.asarray(scalar)], exact=True, tolerance=0) == ""


def test_turns_are_interleaved_and_begin_with_another_each_time():
    log = []

    def takes_part(name):
        return Entry(name, lambda: log.append(name) or RIGHT, lambda given: [given], once=True)

    compete([takes_part("rowgrad"), takes_part("a"), takes_part("b")], rounds=3, pause=0)
    check, warm_up, rounds = log[:3], log[3:6], log[6:]
    assert check == warm_up == ["rowgrad", "a", "b"]
    assert rounds == ["rowgrad", "a", "b", "a", "b", "rowgrad", "b", "rowgrad", "a"]


def test_prepare_runs_before_each_round_and_is_not_timed():
    prepared = []

    def prepare():
        prepared.append(True)
        time.sleep(0.02)

    def run():
        assert prepared.pop()
        return RIGHT

    timings = compete(
        [entry("rowgrad"), Entry("peer", run, lambda given: [given], prepare, once=True)], rounds=3, pause=0
    )
    assert timings["peer"].calls == 1
    assert timings["peer"].best < 0.02
    assert prepared == []


def test_garbage_is_collected_before_and_after_but_not_meanwhile():
    seen = []
    compete([Entry("rowgrad", lambda: seen.append(gc.isenabled()), lambda _: [])], rounds=2, pause=0)
    assert seen[-1] is False
    assert gc.isenabled()


def test_what_takes_long_gets_fewer_rounds(monkeypatch):
    monkeypatch.setattr(contest, "MOST_SECONDS", 0.04)
    slow = Entry("rowgrad", lambda: time.sleep(0.01), lambda _: [])
    assert 3 <= len(compete([slow], rounds=9, pause=0)["rowgrad"].seconds) <= 4
    assert len(compete([slow], rounds=2, pause=0)["rowgrad"].seconds) == 2
