"""Sessions: they run pages, keep what came out, and hold the variables.

A result is kept until something it depends on changes; then only what is stale runs again. All blocks of a step see
the variables as they were before it, and the updates take effect together when the step is over, so that a step that
is cancelled or fails changes nothing it should not. One session runs one thing at a time; others run beside it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._batching import source
from rowgrad.blocks._kept import Kept, Run, Snapshot, Variable, definition, frozen, same_bits
from rowgrad.blocks._work import WORK, check_array, file_state
from rowgrad.blocks.batches import ROWS, TEST, TRAIN, Batches, EndOfData
from rowgrad.blocks.literals import literal
from rowgrad.blocks.model import Block, Wire, missing_input
from rowgrad.blocks.page import Page
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, WAITING, BlockResult, History, Progress, Results, on_block
from rowgrad.errors import PageError, RowgradError

Report = Callable[[Progress], None]


class Session:
    """Runs a page.

    Parameters
    ----------
    page : Page
        The page; it may go on changing, and the session runs what has changed.

    Examples
    --------
    >>> from rowgrad.blocks import Page, Session
    >>> page = Page()
    >>> _ = page.add("Placeholder", id="x", dtype="float32", shape=["n"])
    >>> _ = page.add("Variable", id="w", initial_value=[1.0, 1.0])
    >>> _ = page.add("Sub", id="step", x="w:ref", y="x:output")
    >>> _ = page.add("Assign", ref="w:ref", value="step:z")
    >>> session = Session(page)
    >>> history = session.loop(3, feeds={"x": [0.5, 0.25]})
    >>> print(session.variables["w"])
    [-0.5   0.25]
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self._seen = page  # the page as it was when what is running now began
        self._kept: dict[str, Kept] = {}
        self._variables: dict[str, Variable] = {}
        self._feeds: dict[str, tuple[Array, int]] = {}
        self._stamps = count(1)
        self._lock = threading.RLock()
        self._cancel = threading.Event()
        self._walk: Run | None = None  # the run that `step` is in
        self._batch = 0  # the number of the batch that blocks get
        self._used = False  # whether a step has been made with it, so that the next one gets the next
        self._split = TRAIN
        self._batches: dict[str, tuple[Any, Batches]] = {}

    # Running

    def run(
        self,
        fetches: "str | Wire | Block | Iterable[str | Wire | Block] | None" = None,
        feeds: Mapping[str, Any] | None = None,
        *,
        progress: Report | None = None,
    ) -> Results:
        """Run the page once: all of it, or what `fetches` need.

        Parameters
        ----------
        fetches : block or output, or several, optional
            ``"block"`` or ``"block:pin"``. Blocks that update variables run only if they are asked for, or all are.
        feeds : dict, optional
            Values for placeholders, by block. They stay fed until something else is.
        progress : callable, optional
            Called with a `Progress` before each block that runs.

        Returns
        -------
        Results
            A failing block does not raise: it is reported there, what depends on it is skipped, and all else runs.
        """
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            wanted, order = self._plan(fetches)
            return self._step(wanted, order, progress, 0, 1)

    def run_to(self, block: str | Block, feeds: Mapping[str, Any] | None = None) -> Results:
        """Run one block and what it needs; the results of all of these."""
        id = block.id if isinstance(block, Block) else block
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            _, order = self._plan(id)
            return self._step(order, order, None, 0, 1)

    def step(self, feeds: Mapping[str, Any] | None = None) -> BlockResult | None:
        """Run the next block that is due, and no more; None if all are up to date.

        When it gives None, the updates of variables have taken effect, and what depends on them is due again.
        """
        with self._looking():
            self._feed(feeds)
            order = self._seen.order()
            if self._walk is None:
                self._next_batch()
            walk = self._walk = self._walk or Run()
            fresh = self._fresh(order)
            for id in order:
                if not self._is_due(walk, id, fresh):
                    continue
                if self._visit(walk, id):
                    return walk.states[id]
            self._finish(walk, order)
            self._walk = None
            self._used = True
            return None

    def _is_due(self, walk: Run, id: str, fresh: set[str]) -> bool:
        """Whether a block has to be visited, given that those before it have not."""
        block = self._seen[id]
        if id not in walk.states or walk.seen[id] != definition(block):
            return True
        status = walk.states[id].status
        if status == DONE:
            return id not in fresh and block.operator.role != "save"
        if status == FAILED and not block.missing() and self._can_run(walk, block):
            try:
                return self._kept[id].made_of != self._made_of(block)
            except Exception:  # it fails as it did
                return False
        return self._can_run(walk, block) == (status == SKIPPED)

    def _can_run(self, walk: Run, block: Block) -> bool:
        return all(walk.states[wire.block].status == DONE for _, wire in block.wires())

    def loop(
        self,
        steps: int,
        feeds: Mapping[str, Any] | None = None,
        *,
        record: Iterable[str] = (),
        progress: Report | None = None,
    ) -> History:
        """Run the page `steps` times; `record` names outputs whose values are kept from every step.

        Each step gets the next batch of Batches blocks. Stops at the first step in which a block fails, when batches
        have come to an end, and when it is cancelled; a step that was cancelled has changed no variable.
        """
        with self._looking():
            self._cancel.clear()
            recorded = {str(name): str(self._seen.wire(name)) for name in record}
            values: dict[str, list[Array]] = {name: [] for name in recorded}
            self._feed(feeds)
            results = Results({})
            for step in range(steps):
                if step:
                    self._seen = self.page.copy()
                wanted, order = self._plan(None)
                self._next_batch()
                before, results = results, self._step(wanted, order, progress, step, steps)
                if any(isinstance(error, EndOfData) for error in results.errors):
                    return History(step, values, before if step else results)
                if results.cancelled or results.errors:
                    return History(step, values, results, results.cancelled)
                self._used = True
                for name, wire in recorded.items():
                    values[name].append(results[wire])
            return History(steps, values, results)

    def evaluate(
        self, fetches: "str | Iterable[str]", split: str = TEST, feeds: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """The means of outputs over all examples of a split, ``"test"`` (those held out) or ``"train"``.

        Runs what the outputs need for every batch of one epoch, and changes no variable. A batch counts by its number
        of examples.

        Raises
        ------
        PageError
            There is no Batches block, it has no examples of that split, or a block fails.
        """
        names = [fetches] if isinstance(fetches, str) else list(fetches)
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            wires = {name: str(self._seen.wire(name)) for name in names}
            wanted, order = self._plan(list(wires.values()))
            blocks = [self._seen[id] for id in order if self._seen[id].operator.role == "batches"]
            if not blocks or split not in (TRAIN, TEST):
                raise PageError(f"there are no batches of a split {split!r} that {', '.join(names)} depend on.",
                                code="no-examples", value=split)  # fmt: skip
            kept = (self._batch, self._used, self._split)
            sums: dict[str, Any] = dict.fromkeys(names, 0.0)
            examples = 0
            try:
                self._split, count = split, 1
                for self._batch in range(2**62):
                    if self._batch >= count:
                        break
                    results = self._step([*wanted, *(block.id for block in blocks)], order, None, 0, 1)
                    results.raise_first()
                    if results.cancelled:
                        raise PageError("the evaluation was cancelled.", code="cancelled")
                    count = min(self._source(block).count(split) for block in blocks)
                    rows = len(results[blocks[0].id][ROWS])
                    examples += rows
                    for name, wire in wires.items():
                        sums[name] = sums[name] + np.asarray(results[wire], np.float64) * rows
            finally:
                self._batch, self._used, self._split = kept
            return {name: np.asarray(total / max(examples, 1)) for name, total in sums.items()}

    def cancel(self) -> None:
        """Stop what is running after the block it is at, from any thread; updates of that step are dropped."""
        self._cancel.set()

    # Looking

    def results(self) -> Results:
        """What is there now for every block, stale or not."""
        with self._looking():
            found = {}
            fresh = self._fresh(self._seen.order(), before=True)
            for block in self._seen:
                kept = self._kept.get(block.id)
                if kept is None or kept.result.op != block.op:
                    found[block.id] = BlockResult(block.id, block.op, WAITING)
                else:
                    stale = kept.result.status == DONE and block.id not in fresh
                    found[block.id] = replace(kept.result, stale=stale)
            return Results(found)

    @property
    def variables(self) -> dict[str, Array]:
        """The variables as they are now; those that no run has needed yet are missing."""
        with self._lock:
            return {id: variable.value for id, variable in self._variables.items() if id in self.page}

    @property
    def feeds(self) -> dict[str, Array]:
        """What is fed to the placeholders now."""
        with self._lock:
            return {id: array for id, (array, _) in self._feeds.items() if id in self.page}

    def snapshot(self) -> Snapshot:
        """The variables of this moment, to come back to; a later step does not change it."""
        with self._lock:
            return Snapshot(self.variables, self._batch + self._used)

    def restore(self, snapshot: Snapshot) -> None:
        """Set the variables to those of `snapshot`; it may come from another session of an equal page."""
        with self._looking():
            page, new = self._seen, {}
            for id, value in snapshot.variables.items():
                if id not in page or page[id].operator.role != "variable":
                    raise PageError("there is no such variable on the page.", block=id, code="unknown-block")
                signal = page.signal(f"{id}:ref")
                check_array(id, "ref", value, signal.dtype, signal.shape, {})
                value = frozen(np.array(value)) if value.flags.writeable else value
                new[id] = Variable(value, next(self._stamps), self._initial(page[id]))
            self._variables = {**self._variables, **new}
            self._batch, self._used = snapshot.batch, False

    def reset(self) -> None:
        """Forget all results and variables, and begin with the first batch again."""
        with self._lock:
            self._batch, self._used = 0, False
            self._kept.clear()
            self._variables.clear()
            self._walk = None

    def check_gradients(self, y: "str | Wire | Block", xs: "Iterable[str | Wire | Block]", **options: Any) -> Any:
        """Compare the gradients of `y` to `xs` with finite differences; see `rowgrad.blocks._gradcheck`."""
        from rowgrad.blocks._gradcheck import check_gradients

        return check_gradients(self, y, list(xs), **options)

    # Inside: feeds and plans

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Do one thing at a time, and with the page as it is now, whatever becomes of it meanwhile."""
        with self._lock:
            self.page.refresh()
            before, self._seen = self._seen, self.page.copy()
            try:
                yield
            finally:
                self._seen = before

    def _feed(self, feeds: Mapping[str, Any] | None) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        new: dict[str, Array] = {}
        for name, value in (feeds or {}).items():
            id = name.removesuffix(":output") if isinstance(name, str) else name
            if id not in self._seen or self._seen[id].operator.role != "placeholder":
                listed = ", ".join(b.id for b in self._seen if b.operator.role == "placeholder") or "none"
                raise PageError(f"there is no placeholder {id!r} to feed; there are: {listed}.", code="unknown-feed",
                                value=id)  # fmt: skip
            dtype = self._seen.signal(f"{id}:output").dtype
            try:
                array = literal(value, dtype).value
            except PageError as error:
                error.message = f"what is fed does not fit: {error.message}"
                raise PageError.of(error, id, "Placeholder", "output") from error
            new[id] = array
        for id in {**self._feeds, **new}:
            if id in self._seen:
                signal = self._seen.signal(f"{id}:output")
                array = new[id] if id in new else self._feeds[id][0]
                if id in new or signal.dtype == dtypes.name_of(array.dtype):
                    check_array(id, "output", array, signal.dtype, signal.shape, sizes)
        for id, array in new.items():
            before = self._feeds.get(id)
            if before is None or not same_bits(before[0], array):
                self._feeds[id] = (array, next(self._stamps))

    def _plan(self, fetches: Any) -> tuple[list[str], list[str]]:
        """The blocks that are wanted, and all that have to run for them, in order."""
        if fetches is None:
            order = self._seen.order()
            return order, order
        if isinstance(fetches, str | Wire | Block):
            fetches = [fetches]
        wanted = []
        for fetch in fetches:
            if isinstance(fetch, str) and fetch in self._seen:
                wanted.append(fetch)
            else:
                wanted.append(fetch.id if isinstance(fetch, Block) else self._seen.wire(fetch).block)
        needed: set[str] = set()
        stack = list(wanted)
        while stack:
            id = stack.pop()
            if id not in needed:
                needed.add(id)
                stack.extend(wire.block for _, wire in self._seen[id].wires())
        return list(dict.fromkeys(wanted)), [id for id in self._seen.order() if id in needed]

    # Inside: one step

    def _step(self, wanted: list[str], order: list[str], progress: Report | None, step: int, steps: int) -> Results:
        run = Run()
        for done, id in enumerate(order):
            if self._cancel.is_set():
                return Results({id: run.states.get(id, self._waiting(id)) for id in wanted}, cancelled=True)
            if progress is not None:
                progress(Progress(step, steps, done, len(order), id))
            self._visit(run, id)
        if self._cancel.is_set():
            return Results({id: run.states[id] for id in wanted}, cancelled=True)
        self._finish(run, order)
        if progress is not None:
            progress(Progress(step + 1, steps, len(order), len(order), None))
        return Results({id: run.states[id] for id in wanted})

    def _waiting(self, id: str) -> BlockResult:
        return BlockResult(id, self._seen[id].op, WAITING)

    def _finish(self, run: Run, order: list[str]) -> None:
        """Let the updates of a step take effect, all in one moment: whatever interrupts it, there is never half."""
        new = {}
        for block in map(self._seen.__getitem__, order):
            if run.states[block.id].status == DONE:
                for pin, output in block.operator.updates.items():
                    source = block.inputs[pin]
                    assert isinstance(source, Wire)
                    before = self._variables[source.block]
                    value = self._kept[block.id].result.outputs[output]
                    new[source.block] = Variable(value, next(self._stamps), before.initial, before.stamp)
        self._variables = {**self._variables, **new}

    def _visit(self, run: Run, id: str) -> bool:
        """Bring one block up to date: keep what holds, skip what cannot run, run the rest; whether anything changed."""
        block = self._seen[id]
        run.seen[id] = definition(block)
        for _, wire in block.wires():
            state = run.states[wire.block]
            if state.status != DONE:
                root = state.needs if state.status == SKIPPED else wire.block
                result = run.states[id] = BlockResult(id, block.op, SKIPPED, needs=root)
                self._kept[id] = Kept(result, (), next(self._stamps))
                return True
        begun = perf_counter()
        kept = self._kept.get(id)
        made_of: tuple[Any, ...] = ()
        try:
            for pin in block.missing():
                raise missing_input(block, pin)
            made_of = self._made_of(block)
            holds = kept is not None and kept.result.status == DONE and kept.made_of == made_of
            if kept is None or not holds:
                outputs = self._compute(block)
                result = BlockResult(id, block.op, DONE, outputs, seconds=perf_counter() - begun)
                kept = self._kept[id] = Kept(result, made_of, next(self._stamps))
            run.states[id] = kept.result
            return not holds
        except Exception as error:  # whatever it is, it belongs to this block, and the others go on
            found = on_block(error, id, block.op)
            result = BlockResult(id, block.op, FAILED, error=found, seconds=perf_counter() - begun)
            self._kept[id] = Kept(result, made_of, next(self._stamps))
            run.states[id] = result
            return True

    def _made_of(self, block: Block) -> tuple[Any, ...]:
        """What the results of `block` depend on; equal tuples mean equal results.

        Literals and attributes stand for themselves by identity: a page exchanges them when they change.
        """
        role = block.operator.role
        parts: list[Any] = [*definition(block)]
        parts += [self._kept[wire.block].stamp for _, wire in block.wires()]
        if role == "placeholder":
            parts.append(self._feeds.get(block.id, (None, 0))[1])
        elif role == "variable":
            parts.append(self._variable(block).stamp)
        elif role == "batches":
            parts += [self._batch, self._split]
            if block.attributes.get("path") is not None:
                parts.append(file_state(self._seen, block, []))
        elif role in ("file", "restore"):
            parts.append(file_state(self._seen, block, self._inputs(block)))
        elif role == "save":
            parts.append(next(self._stamps))
        return tuple(parts)

    def _fresh(self, order: list[str], *, before: bool = False) -> set[str]:
        """The blocks whose kept results still hold; with `before`, also those of the step that has just been made.

        That step has changed variables, but what it has computed is what there is to be seen of it.
        """
        fresh: set[str] = set()
        for id in order:
            kept, block = self._kept.get(id), self._seen[id]
            if kept is None or kept.result.status != DONE or block.missing():
                continue
            if block.operator.role == "variable" and id not in self._variables:
                continue
            if not all(wire.block in fresh for _, wire in block.wires()):
                continue
            if self._holds(kept, block) or (before and id in self._variables and self._held_before(kept, block)):
                fresh.add(id)
        return fresh

    def _held_before(self, kept: Kept, block: Block) -> bool:
        """Whether a variable is what it was made by the step whose results are kept."""
        held = self._variables[block.id]
        return held.initial == self._initial(block) and kept.made_of[-1:] == (held.before,)

    def _holds(self, kept: Kept, block: Block) -> bool:
        try:
            return kept.made_of == self._made_of(block)
        except RowgradError:  # a file that may not be read any more
            return False

    # Inside: what blocks do

    def _inputs(self, block: Block) -> list[Any]:
        """The values at the input pins."""
        literals = self._seen.inferred(block.id).literals
        values = []
        for pin in block.operator.inputs:
            found = [
                self._kept[source.block].result.outputs[source.pin]
                if isinstance(source, Wire)
                else literals[pin.name, position]
                for position, source in enumerate(block.sources(pin.name))
            ]
            values.append(found if pin.many else found[0])
        return values

    def _compute(self, block: Block) -> dict[str, Array]:
        operator = block.operator
        inferred = self._seen.inferred(block.id)
        if operator.role == "operator":
            results = operator(*self._inputs(block), **inferred.attributes)
            if operator.result is None:
                results = (results,)
        elif operator.role == "batches":
            try:
                found = self._source(block).batch(self._batch, self._split)
            except EndOfData as error:
                error.block = block.id
                raise
            results = tuple(found[pin.name] for pin in operator.outputs)
        elif operator.role in WORK:
            results = WORK[operator.role](self._seen, block, self._inputs(block))
        else:
            results = (self._variable(block).value if operator.role == "variable" else self._fed(block),)
        return {pin.name: frozen(np.asarray(result)) for pin, result in zip(operator.outputs, results, strict=True)}

    def _next_batch(self) -> None:
        if self._used:
            self._batch, self._used = self._batch + 1, False

    def _source(self, block: Block) -> Batches:
        """The batches of a block, which know the order of the epoch that they are at."""
        inputs = self._inputs(block)
        stamps = tuple(self._kept[wire.block].stamp for _, wire in block.wires())
        path = block.attributes.get("path")
        key = (*definition(block), stamps, None if path is None else file_state(self._seen, block, []))
        known = self._batches.get(block.id)
        if known is None or known[0] != key:
            known = self._batches[block.id] = (key, source(self._seen, block, inputs))
        return known[1]

    def _fed(self, block: Block) -> Array:
        signal = self._seen.signal(f"{block.id}:output")
        if block.id not in self._feeds:
            raise PageError(f"nothing is fed; feed {signal}.", block=block.id, pin="output", code="not-fed")
        array = self._feeds[block.id][0]
        check_array(block.id, "output", array, signal.dtype, signal.shape, {})
        return array

    def _variable(self, block: Block) -> Variable:
        """The variable of `block`; its initial value, if the session has none yet or the page has changed it."""
        initial = self._initial(block)
        held = self._variables.get(block.id)
        if held is None or held.initial != initial:
            (value,) = self._inputs(block)
            held = self._variables[block.id] = Variable(frozen(np.asarray(value)), next(self._stamps), initial)
        return held

    def _initial(self, block: Block) -> tuple[Any, ...]:
        """What the initial value is drawn as. That it would come out otherwise now, because of a variable, a feed or a
        file, is no reason to begin anew; that the page was changed is."""
        drawn: dict[str, Any] = {}
        stack = [block.id]
        while stack:
            id = stack.pop()
            if id not in drawn:
                drawn[id] = definition(self._seen[id])
                stack.extend(wire.block for _, wire in self._seen[id].wires())
        return tuple(drawn.values())
