"""Loops of a session: steps one after the other, recorded, paused and resumed; sweeps over a literal; evaluation."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks.batches import ROWS, EndOfData
from rowgrad.blocks.literals import Literal
from rowgrad.blocks.model import as_wire
from rowgrad.blocks.page import Page
from rowgrad.blocks.results import History, Progress, Results
from rowgrad.blocks.runs import Run
from rowgrad.errors import PageError

if TYPE_CHECKING:
    from rowgrad.blocks._session import Session
    from rowgrad.blocks._stepping import Report

MOST_RUNS = 1000  # that a session keeps


@dataclass(frozen=True)
class Plan:
    """What a loop was asked for, so that it can go on after a pause."""

    steps: int
    record: tuple[str, ...]
    name: str | None
    every: int
    progress: "Report | None"
    on_record: "Callable[[int, Mapping[str, Array]], None] | None" = None


def loop(session: "Session", plan: Plan, done: int = 0) -> History:
    """Run steps `done` + 1 to the last of `plan`; the caller holds the session."""
    check_count("steps", plan.steps, 0)
    check_count("every", plan.every, 1)
    check_report(plan.progress)
    recorded = {str(name): str(session._seen.wire(name)) for name in plan.record}
    values: dict[str, list[Array]] = {name: [] for name in recorded}
    run = None if plan.name is None else _run(session, plan.name)
    session._pause.clear()
    session._paused = None
    results = Results({})
    for step in range(done, plan.steps):
        if step > done:
            session._seen = session.page.copy()
        wanted, order = session._plan(None)
        session._next_batch()
        before, results = results, session._step(wanted, order, plan.progress, step, plan.steps)
        if any(isinstance(error, EndOfData) for error in results.errors):
            return _ended(session, run, History(step - done, values, before if step > done else results))
        if results.cancelled or results.errors:
            problem = str(results.errors[0]) if results.errors else "cancelled"
            return _ended(session, run, History(step - done, values, results, results.cancelled), problem)
        session._used = True
        session._made += 1
        if (step + 1) % plan.every == 0:
            found = {name: results[wire] for name, wire in recorded.items()}
            for name, value in found.items():
                values[name].append(value)
            if run is not None:
                run.add(run.steps[-1] + plan.every if run.steps else step + 1, found)
            if plan.on_record is not None:
                plan.on_record(step + 1, found)
        if session._pause.is_set() and step + 1 < plan.steps:
            session._paused = (plan, step + 1)
            return _ended(session, run, History(step + 1 - done, values, results, paused=True))
    return _ended(session, run, History(max(plan.steps - done, 0), values, results))


def _ended(session: "Session", run: Run | None, history: History, problem: str | None = None) -> History:
    if run is not None:
        run.problem, run.variables = problem, session.variables
    return history


def _run(session: "Session", name: str) -> Run:
    """The run of a name, which a loop adds to; a new one, if there is none."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise PageError(
            f"{name!r} is not a valid name for a run; it must be a text of one line.", code="bad-name", value=name
        )
    if name not in session.runs and len(session.runs) >= MOST_RUNS:
        raise PageError(f"a session keeps {MOST_RUNS} runs. Delete some: del session.runs[name].", code="too-large",
                        value=name)  # fmt: skip
    return session.runs.setdefault(name, Run(name))


def resume(session: "Session") -> History:
    """Go on with the loop that was paused."""
    if session._paused is None:
        raise PageError("no loop was paused.", code="not-paused")
    plan, done = session._paused
    return loop(session, plan, done)


# Arguments


def check_count(name: str, value: Any, least: int) -> None:
    """A number of steps."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise PageError(f"{name} is {value!r}; it must be a whole number.", code="wrong-attribute", value=str(value))
    if value < least:
        raise PageError(f"{name} is {value}; it must be {least} or more.", code="wrong-attribute", value=value)


def check_report(progress: Any) -> None:
    """What is told of progress."""
    if not (progress is None or callable(progress)):
        raise PageError(f"progress is {progress!r}; it must be a function, or None.", code="wrong-attribute")


def listed(name: str, given: Any) -> list[Any]:
    """The elements of a list, or of anything that can be gone through."""
    if not isinstance(given, Iterable) or (isinstance(given, np.ndarray) and given.ndim == 0):
        raise PageError(f"{name} is {given!r}; it must be a list.", code="wrong-attribute", value=str(given))
    return list(given)


# Sweeps


def sweep(
    session: "Session", literal: str, values: Iterable[Any], steps: int, feeds: Mapping[str, Any] | None,
    record: Iterable[str], every: int, progress: "Report | None",
) -> list[Run]:  # fmt: skip
    """A run for each value of a literal, each from the beginning, in a session of its own."""
    from rowgrad.blocks._session import Session

    given = listed("values", values)
    record = listed("record", record)
    if not isinstance(literal, str):
        raise PageError(f"literal is {literal!r}; it must be a text, such as 'training:lr'.", code="wrong-attribute")
    if not (feeds is None or isinstance(feeds, Mapping)):
        raise PageError(f"feeds is {feeds!r}; it must be a dict of block to value.", code="wrong-attribute")
    check_report(progress)
    page = session.page.copy()
    target = swept(page, literal)
    fed = {**session.feeds, **(feeds or {})}
    found = []
    names = [f"{literal}={_short(value)}" for value in given]
    for position, (value, name) in enumerate(zip(given, names, strict=True)):
        set_literal(page, target, value)
        other = Session(page.copy())
        report = _within(session, other, progress, position, len(given))
        history = other.loop(steps, fed, record=record, name=name, every=every, progress=report)
        run = replace(other.runs[name], name=_free(session, name), settings={literal: value})
        session.runs[run.name] = run
        found.append(run)
        if history.cancelled:
            break
    return found


def _within(session: "Session", other: "Session", progress: "Report | None", position: int, runs: int) -> "Report":
    """Progress of one run as that of the sweep; and the way by which a cancelled sweep stops its run."""

    def report(told: Progress) -> None:
        if session._cancel.is_set():
            other.cancel()
        if progress is not None:
            progress(replace(told, step=position * told.steps + told.step, steps=runs * told.steps))

    return report


def _free(session: "Session", name: str) -> str:
    number, wanted = 1, name
    while name in session.runs:
        number += 1
        name = f"{wanted} ({number})"
    return name


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def swept(page: Page, name: str) -> tuple[str, str]:
    """The block or derived group and the pin, attribute or setting that ``"lr"`` or ``"training:lr"`` stands for."""
    id, pin = as_wire(name)
    places = [place for place in _literals(page) if place == (id, pin) or (pin is None and _means(place[1], id))]
    if len(places) == 1:
        return places[0]
    if not places:
        listed = ", ".join(dict.fromkeys(":".join(place) for place in _literals(page))) or "none"
        raise PageError(f"there is no literal {name!r} to change; there are: {listed}.", code="unknown-pin", value=name)
    listed = ", ".join(":".join(place) for place in places)
    raise PageError(f"{name!r} may mean {listed}; say which.", code="unknown-pin", value=name)


def _means(pin: str, name: str) -> bool:
    return pin == name or (name, pin) == ("lr", "alpha")  # gradient descent calls its rate alpha


def _literals(page: Page) -> list[tuple[str, str]]:
    """Settings of training groups, literals at pins, and attributes that were given; none within derived groups."""
    found = [(group.name, setting) for group in page.groups.values() if group.recipe is not None
             for setting in _settings(page, group.name)]  # fmt: skip
    for block in page:
        if not page._is_derived(block.group):
            found += [(block.id, pin) for pin, source in block.inputs.items() if isinstance(source, Literal)]
            found += [(block.id, attribute) for attribute in block.attributes]
    return found


def _settings(page: Page, group: str) -> list[str]:
    """The numbers of an optimizer."""
    from rowgrad.blocks._training import OPTIMIZERS

    recipe = page.groups[group].recipe
    assert recipe is not None
    return list(OPTIMIZERS[recipe.optimizer].settings) if recipe.optimizer else []


def set_literal(page: Page, target: tuple[str, str], value: Any) -> None:
    """Change what `swept` has found."""
    page.change(target[0], **{target[1]: value})


# Evaluation


def evaluate(session: "Session", names: list[str], split: str) -> dict[str, Array]:
    """The means of outputs over all examples of a split; the caller holds the session."""
    wires = {name: str(session._seen.wire(name)) for name in names}
    wanted, order = session._plan(list(wires.values()))
    blocks = [session._seen[id] for id in order if session._seen[id].operator.role == "batches"]
    if not blocks:
        raise PageError(f"there are no batches of a split {split!r} that {', '.join(names)} depend on.",
                        code="no-examples", value=split)  # fmt: skip
    kept = (session._batch, session._used, session._split)
    sums: dict[str, Any] = dict.fromkeys(names, 0.0)
    examples = 0
    try:
        session._split, count = split, 1
        for session._batch in range(2**62):
            if session._batch >= count:
                break
            results = session._step([*wanted, *(block.id for block in blocks)], order, None, 0, 1)
            results.raise_first()
            if results.cancelled:
                raise PageError("the evaluation was cancelled.", code="cancelled")
            count = min(session._source(block).count(split) for block in blocks)
            rows = len(results[blocks[0].id][ROWS])
            examples += rows
            for name, wire in wires.items():
                sums[name] = sums[name] + np.asarray(results[wire], np.float64) * rows
    finally:
        session._batch, session._used, session._split = kept
    return {name: np.asarray(total / max(examples, 1)) for name, total in sums.items()}
