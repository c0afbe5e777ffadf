"""A whole run: every case in turn, as plain data that goes into JSON."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import rowgrad
from bench import case as cases
from bench import contest, machine
from bench.case import OURS, PEERS, THREADS, Case
from bench.contest import Entry, Timing
from bench.lookups import remembered

FORMAT = 2  # of the results

Progress = Callable[[str, int, int], None]  # what comes next, how much is done, of how much


def run(
    chosen: Sequence[Case],
    peers: Sequence[str],
    *,
    rounds: int = contest.ROUNDS,
    turn: float = contest.TURN,
    progress: Progress = lambda what, done, total: None,
) -> dict[str, Any]:
    """All results of the cases `chosen` with `peers`."""
    able = [case for case in chosen if not cases.missing(case.needs)]
    peers = [peer for peer in peers if any(cases.peer_of(name) == peer for case in able for name in case.entries)]
    facts = machine.facts()
    watch = machine.Watch()
    contests: list[dict[str, Any]] = []
    with machine.cores_for(THREADS):
        progress("loading the peers", 0, len(able))
        _load({*peers, *(need for case in able for need in case.needs)})
        for case in able:
            if contests and case.group != contests[-1]["group"]:
                remembered.forget()
            progress(case.name, len(contests), len(able))
            meanwhile = machine.Watch()
            contests.append(run_one(case, peers, rounds=rounds, turn=turn))
            contests[-1]["others_share_of_cores"] = meanwhile.share_of_others()
        progress("done", len(able), len(able))
    facts["versions"].update(cases.versions(peers))
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": facts,
        "method": {"threads": THREADS, "rounds": rounds, "others_share_of_cores": watch.share_of_others()},
        "contests": contests,
    }


def run_one(case: Case, peers: Sequence[str], *, rounds: int, turn: float) -> dict[str, Any]:
    """One contest with those of `peers` that take part."""
    _set_threads(case.threads)
    entries: dict[str, Entry] = {}
    failed: dict[str, Timing] = {}
    for name, make in case.contestants(peers).items():
        try:
            entries[name] = make()
        except Exception as error:  # a peer may fail in any way; the others go on
            if name == OURS:
                raise
            failed[name] = Timing(problem=f"{type(error).__name__}: {error}")
    timings = contest.compete(entries, rounds=rounds, turn=turn) | failed
    best = timings[OURS].best
    return {
        "name": case.name,
        "group": case.group,
        "table": case.table,
        "row": case.row,
        "column": case.column,
        "threads": case.threads,
        "timings": {name: timing.as_json() for name, timing in timings.items()},
        "ratios": {
            name: float(f"{timing.best / best:.4g}")
            for name, timing in timings.items()
            if name != OURS and not timing.problem
        },
        "limits": dict(case.limits),
        **({} if case.most_us is None else {"most_us": case.most_us}),
        **({} if case.intel is None else {"intel": case.intel}),
    }


def problems(results: dict[str, Any]) -> list[str]:
    """Who failed or was wrong, and where."""
    return [
        f"{one['name']}: {contestant}: {timing['problem']}"
        for one in results["contests"]
        for contestant, timing in one["timings"].items()
        if "problem" in timing
    ]


def _load(peers: Iterable[str]) -> None:
    """Import the peers, on as many threads as we use."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    for peer in sorted(peers):
        module: Any = import_module(PEERS[peer].module)
        if peer == "tensorflow" and not module.config.threading.get_intra_op_parallelism_threads():
            module.config.threading.set_intra_op_parallelism_threads(THREADS)
            module.config.threading.set_inter_op_parallelism_threads(THREADS)
    logging.getLogger().setLevel(logging.WARNING)  # FBGEMM tells a lot about each table


def _set_threads(threads: int) -> None:
    """For us, PyTorch and FBGEMM; TensorFlow's number cannot change any more."""
    rowgrad.set_num_threads(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
