"""A whole run: every contest in turn, then the machine's speeds and our memory, as plain data that goes into JSON."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from bench import contest, contestants, data, machine, memory, targets
from bench.contest import Entry, Timing
from bench.contestants import ours
from bench.work import OPERATORS, OURS, THREADS, Bags, Work

FORMAT = 1  # of the results

Progress = Callable[[str, int, int], None]  # what comes next, how much is done, of how much


def run(
    works: Sequence[Work],
    peers: Sequence[str],
    *,
    rounds: int = contest.ROUNDS,
    pause: float = contest.PAUSE,
    speeds: bool = True,
    peak_memory: bool = True,
    progress: Progress = lambda what, done, total: None,
) -> dict[str, Any]:
    """All results of `works` with `peers`."""
    works = [work for work in works if not work.needs or not contestants.missing([work.needs])]
    operations = memory.OPERATIONS if peak_memory else ()
    total = len(works) + len(operations) + speeds
    facts = machine.facts()
    watch = machine.Watch()
    contests: list[dict[str, Any]] = []
    with machine.cores_for(THREADS):
        progress("loading the contestants", 0, total)
        modules = contestants.load(peers)
        for work in works:
            progress(work.name, len(contests), total)
            contests.append(run_one(work, modules, rounds=rounds, pause=pause))
        peaks: list[dict[str, Any]] = []
        for operation in operations:
            progress(f"memory/{operation}", len(works) + len(peaks), total)
            peaks.append(memory.measure(operation))
        if speeds:
            progress("speed of memory", total - 1, total)
            facts.update(machine.memory_speeds())
        progress("done", total, total)
    facts["versions"].update(contestants.versions(peers))
    results = {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": facts,
        "method": {"threads": THREADS, "rounds": rounds, "others_share_of_cores": watch.share_of_others()},
        "contests": contests,
        "memory": [peak for peak in peaks if peak],
    }
    return {**results, "must_show": targets.judge(results)}


def run_one(work: Work, modules: dict[str, ModuleType], *, rounds: int, pause: float) -> dict[str, Any]:
    """One contest with those of `modules` that take part."""
    entries: list[Entry] = [ours.entry(work)]
    failed: dict[str, Timing] = {}
    for rival in work.rivals:
        if rival in modules:
            try:
                entries.append(modules[rival].entry(work))
            except Exception as error:  # a peer may fail in any way; the others go on
                failed[rival] = Timing(problem=f"{type(error).__name__}: {error}")
    entries += [ours.variant(work, name, other) for name, other in work.variants.items()]
    timings = contest.compete(entries, rounds=rounds, pause=pause) | failed
    best = timings[OURS].best
    return {
        "name": work.name,
        "operator": OPERATORS[work.operation],
        "group": work.group,
        "input": work.input.title,
        "dtype": work.bags.dtype if isinstance(work.input, Bags) else "float32",
        "size": work.input.size,
        "bytes": data.bytes_to_move(work),
        "timings": {name: timing.as_json() for name, timing in timings.items()},
        "ratios": {
            name: float(f"{timing.best / best:.4g}")
            for name, timing in timings.items()
            if name != OURS and not timing.problem
        },
    }


def problems(results: dict[str, Any]) -> list[str]:
    """Who failed or was wrong, and where."""
    return [
        f"{one['name']}: {contestant}: {timing['problem']}"
        for one in results["contests"]
        for contestant, timing in one["timings"].items()
        if "problem" in timing
    ]
