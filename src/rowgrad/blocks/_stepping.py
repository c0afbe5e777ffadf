"""How a session makes one step of a page: it visits blocks in order, keeps what came out, and holds the variables.

A result is kept until something it depends on changes; then only what is stale runs again. All blocks of a step see
the variables as they were before it, and the updates take effect together when the step is over, so that a step that
is cancelled or fails changes nothing it should not.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from time import perf_counter
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks._batching import source
from rowgrad.blocks._kept import Kept, Step, Variable, definition, frozen, same_bits
from rowgrad.blocks._work import WORK, check_array, fed_arrays, file_state
from rowgrad.blocks.batches import TRAIN, Batches, EndOfData
from rowgrad.blocks.model import Block, Wire, missing_input, upstream
from rowgrad.blocks.page import Page
from rowgrad.blocks.results import DONE, FAILED, SKIPPED, WAITING, BlockResult, Printed, Progress, Results, on_block
from rowgrad.blocks.values import brief
from rowgrad.errors import PageError, RowgradError

Report = Callable[[Progress], None]
MOST_PRINTED = 10_000  # lines of Print blocks that are kept
LONGEST_PRINTED = 200  # characters of an array in such a line


class Stepping:
    """The inside of a `Session`, which calls this one thing at a time."""

    def __init__(self, page: Page) -> None:
        self._seen = page  # the page as it was when what is running now began
        self._kept: dict[str, Kept] = {}
        self._variables: dict[str, Variable] = {}
        self._feeds: dict[str, tuple[Array, int]] = {}
        self._stamps = count(1)
        self._cancel = threading.Event()
        self._batch = 0  # the number of the batch that blocks get
        self._used = False  # whether a step has been made with it, so that the next one gets the next
        self._split = TRAIN
        self._batches: dict[str, tuple[Any, Batches]] = {}
        self._made = 0  # how many steps were made
        self.printed: deque[Printed] = deque(maxlen=MOST_PRINTED)

    # Feeds and plans

    def _feed(self, feeds: Mapping[str, Any] | None) -> None:
        held = {id: array for id, (array, _) in self._feeds.items()}
        for id, array in fed_arrays(self._seen, held, feeds).items():
            if id not in held or not same_bits(held[id], array):
                self._feeds[id] = (array, next(self._stamps))

    def _plan(self, fetches: Any) -> tuple[list[str], list[str]]:
        """The blocks that are wanted, and all that have to run for them, in order."""
        if fetches is None:
            order = self._seen.order()
            return order, order
        if isinstance(fetches, str | Wire | Block):
            fetches = [fetches]
        wanted = []
        if not isinstance(fetches, Iterable) or (isinstance(fetches, np.ndarray) and fetches.ndim == 0):
            raise PageError(f"{fetches!r} is no block and no output; name what to run.", code="unknown-block")
        for fetch in fetches:
            if isinstance(fetch, str) and fetch in self._seen:
                wanted.append(fetch)
            else:
                wanted.append(fetch.id if isinstance(fetch, Block) else self._seen.wire(fetch).block)
        needed = upstream(self._seen.__getitem__, wanted)
        return list(dict.fromkeys(wanted)), [id for id in self._seen.order() if id in needed]

    # One step

    def _step(self, wanted: list[str], order: list[str], progress: Report | None, step: int, steps: int) -> Results:
        run = Step()
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

    def _finish(self, run: Step, order: list[str]) -> None:
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

    def _visit(self, run: Step, id: str) -> bool:
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

    def _is_due(self, walk: Step, id: str, fresh: set[str]) -> bool:
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

    def _can_run(self, walk: Step, block: Block) -> bool:
        return all(walk.states[wire.block].status == DONE for _, wire in block.wires())

    # What still holds

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

    # What blocks compute

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
        elif operator.role == "print":
            results = self._print(block)
        elif operator.role == "save" and not self._is_turn(block):
            results = ()
        elif operator.role in WORK:
            results = WORK[operator.role](self._seen, block, self._inputs(block))
        else:
            results = (self._variable(block).value if operator.role == "variable" else self._fed(block),)
        return {pin.name: frozen(np.asarray(result)) for pin, result in zip(operator.outputs, results, strict=True)}

    def _is_turn(self, block: Block) -> bool:
        """Whether a block that does something every so many steps does it in this one."""
        return (self._made + 1) % int(self._seen.inferred(block.id).attributes["every"]) == 0

    def _print(self, block: Block) -> tuple[Array]:
        value, data = self._inputs(block)
        if self._is_turn(block):
            given = self._seen.inferred(block.id).attributes
            text = given["message"] + " ".join(brief(np.asarray(array), LONGEST_PRINTED) for array in data)
            self.printed.append(Printed(self._made + 1, block.id, text))
        return (value,)

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
        return tuple(map(definition, upstream(self._seen.__getitem__, [block.id]).values()))
