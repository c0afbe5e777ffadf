"""A contest is fair: answers are compared first, turns are interleaved, and only the work is timed."""

import gc

import numpy as np
import pytest

from bench import contest
from bench.contest import Entry, compete, differences

TICK = 2.0**-10  # seconds; sums of it are exact
RIGHT = np.array([1.0, 2.0, 4.0], np.float32)


def entry(result=RIGHT, **options):
    return Entry(lambda: result, lambda: [result], **options)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the work moves."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(contest.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_a_right_contestant_is_timed():
    timings = compete({"rowgrad": entry(), "peer": entry()}, rounds=4, turn=0.001)
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
    timings = compete({"rowgrad": entry(), "peer": entry(wrong, **options), "other": entry()}, rounds=1, turn=0)
    assert timings["peer"].problem.startswith("wrong answer: ")
    assert words in timings["peer"].problem
    assert timings["peer"].seconds == []
    assert timings["peer"].as_json() == {"problem": timings["peer"].problem}
    assert timings["rowgrad"].seconds and timings["other"].seconds


def test_what_does_a_part_of_the_work_has_no_answer():
    timings = compete({"rowgrad": entry(), "part": Entry(lambda: None, None)}, rounds=2, turn=0)
    assert len(timings["part"].seconds) == 2


def test_a_failing_contestant_does_not_stop_the_others():
    def fail():
        raise RuntimeError("no such kernel")

    timings = compete({"rowgrad": entry(), "peer": Entry(fail, fail), "other": entry()}, rounds=1, turn=0)
    assert timings["peer"].problem == "RuntimeError: no such kernel"
    assert timings["other"].seconds
    with pytest.raises(RuntimeError, match="no such kernel"):
        compete({"rowgrad": Entry(fail, fail)}, rounds=1, turn=0)


def test_ours_comes_first():
    with pytest.raises(ValueError, match="first contestant is peer"):
        compete({"peer": entry(), "rowgrad": entry()})


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
        return Entry(lambda: log.append(name), lambda: [RIGHT])

    compete({name: takes_part(name) for name in ("rowgrad", "a", "b")}, rounds=3, turn=0)
    turns = log[::2]  # each has an untimed call and a timed one
    assert turns == log[1::2]
    assert turns[:3] == ["rowgrad", "a", "b"]
    assert turns[3:] == ["rowgrad", "a", "b", "a", "b", "rowgrad", "b", "rowgrad", "a"]


def test_calls_follow_each_other_and_the_first_ones_are_not_timed(clock):
    called = []

    def run():
        called.append(clock.now)
        clock.now += 0.5 if len(called) == 1 else TICK

    timings = compete({"rowgrad": Entry(run, list)}, rounds=1, turn=40 * TICK)
    assert timings["rowgrad"].calls == 40
    assert timings["rowgrad"].best == TICK
    assert len(called) == (1 + 1) + (10 + 2) + (40 + 10)  # the first call, a loop that tells how long it takes, a turn
    assert set(np.diff(called[1:])) == {TICK}


def test_prepare_runs_before_each_turn_and_is_not_timed(clock):
    prepared = []

    def prepare():
        prepared.append(True)
        clock.now += 1

    def run():
        clock.now += 0.1

    timings = compete({"rowgrad": Entry(run, list, prepare)}, rounds=3, turn=0)
    assert len(prepared) == 1 + 1 + 3  # the answer, the warm-up, the rounds
    assert timings["rowgrad"].seconds == pytest.approx([0.1] * 3)


def test_garbage_is_collected_before_and_after_but_not_meanwhile():
    seen = []
    compete({"rowgrad": Entry(lambda: seen.append(gc.isenabled()), list)}, rounds=2, turn=0)
    assert seen[-1] is False
    assert gc.isenabled()


def test_what_takes_long_gets_fewer_rounds(clock):
    def run():
        clock.now += 1.4

    slow = {"rowgrad": Entry(run, list)}
    assert len(compete(slow, rounds=9)["rowgrad"].seconds) == contest.MOST_SECONDS // 1.4
    assert len(compete(slow, rounds=2)["rowgrad"].seconds) == 2
