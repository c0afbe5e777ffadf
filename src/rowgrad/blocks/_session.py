"""Sessions: they run pages, once, block by block or in loops. `_stepping` makes each step, `_loops` the loops.

One session runs one thing at a time; others run beside it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import _loops
from rowgrad.blocks._kept import Snapshot, Step, Variable, frozen
from rowgrad.blocks._stepping import Report, Stepping
from rowgrad.blocks._work import check_array
from rowgrad.blocks.batches import TEST
from rowgrad.blocks.model import Block, Wire
from rowgrad.blocks.page import Page
from rowgrad.blocks.results import DONE, WAITING, BlockResult, History, Results
from rowgrad.blocks.runs import Run
from rowgrad.errors import PageError


class Session(Stepping):
    """Runs a page.

    Parameters
    ----------
    page : Page
        The page; it may change later, and the session then runs what has changed.

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
        if not isinstance(page, Page):
            raise PageError(f"page is a {type(page).__name__}; it must be a Page.", code="wrong-attribute")
        super().__init__(page)
        self.page = page
        self._lock = threading.RLock()
        self._walk: Step | None = None  # the run that `step` is in
        self._pause = threading.Event()
        self._paused: tuple[_loops.Plan, int] | None = None  # the loop that was paused, and the steps it has made
        self.runs: dict[str, Run] = {}

    # Running

    def run(
        self,
        fetches: "str | Wire | Block | Iterable[str | Wire | Block] | None" = None,
        feeds: Mapping[str, Any] | None = None,
        *,
        progress: Report | None = None,
    ) -> Results:
        """Run the page once: all blocks, or those that `fetches` need.

        Parameters
        ----------
        fetches : block or output, or several, optional
            ``"block"`` or ``"block:pin"``. Blocks that update variables run only if they are fetched, or if all are.
        feeds : dict, optional
            Values for placeholders, by block. They are kept until other values are fed.
        progress : callable, optional
            Called with a `Progress` before each block that runs.

        Returns
        -------
        Results
            A failing block does not raise: the results report it, blocks that depend on it are skipped, and others run.
        """
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            wanted, order = self._plan(fetches)
            results = self._step(wanted, order, progress, 0, 1)
            self._made += fetches is None and not results.cancelled
            return results

    def run_to(self, block: str | Block, feeds: Mapping[str, Any] | None = None) -> Results:
        """Run one block and those that it depends on, and return their results."""
        id = block.id if isinstance(block, Block) else block
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            _, order = self._plan(id)
            return self._step(order, order, None, 0, 1)

    def step(self, feeds: Mapping[str, Any] | None = None) -> BlockResult | None:
        """Run only the next block that is due, and return its result; None if all are up to date.

        When it returns None, the updates of variables have taken effect, and blocks that depend on them are due again.
        """
        with self._looking():
            self._feed(feeds)
            order = self._seen.order()
            if self._walk is None:
                self._next_batch()
            walk = self._walk = self._walk or Step()
            fresh = self._fresh(order)
            for id in order:
                if not self._is_due(walk, id, fresh):
                    continue
                if self._visit(walk, id):
                    return walk.states[id]
            self._finish(walk, order)
            self._walk = None
            self._used = True
            self._made += 1
            return None

    def loop(
        self,
        steps: int,
        feeds: Mapping[str, Any] | None = None,
        *,
        record: Iterable[str] = (),
        name: str | None = None,
        every: int = 1,
        progress: Report | None = None,
        on_record: Callable[[int, Mapping[str, Array]], None] | None = None,
    ) -> History:
        """Run the page `steps` times; record the outputs `record` in every step, or in one of `every` steps.

        Each step gets the next batch of Batches blocks. The loop stops if a block fails, if there are no more batches,
        and if it is paused or cancelled; a cancelled step changes no variable. With a `name`, values are added to the
        run of that name in `runs`; `on_record` is called with each recorded step and its values.
        """
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            return _loops.loop(self, _loops.Plan(steps, tuple(record), name, every, progress, on_record))

    def pause(self) -> None:
        """Pause a loop after its current step, from any thread; `resume` continues it."""
        self._pause.set()

    def resume(self) -> History:
        """Continue the paused loop, on the page as it is now."""
        with self._looking():
            self._cancel.clear()
            return _loops.resume(self)

    def sweep(
        self,
        literal: str,
        values: Iterable[Any],
        *,
        steps: int,
        feeds: Mapping[str, Any] | None = None,
        record: Iterable[str],
        every: int = 1,
        progress: Report | None = None,
    ) -> list[Run]:
        """Run a loop for each value of a literal, each from the same initial state, on a copy of the page.

        Parameters
        ----------
        literal : str
            ``"block:pin"``, or the setting of a training group (``"training:lr"``); ``"lr"``, if there is only one.
        values : values
            The values to set, one after the other.

        Returns
        -------
        list of Run
            One for each value, called ``lr=0.1`` and so on; they are in `runs` too.
        """
        with self._looking():
            self._cancel.clear()
            return _loops.sweep(self, literal, values, steps, feeds, record, every, progress)

    def evaluate(
        self, fetches: "str | Iterable[str]", split: str = TEST, feeds: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """Return the means of outputs over all examples of a split: ``"test"`` (held out), ``"train"``, or another.

        Runs every batch of one epoch without changing variables. Batches are weighted by their number of examples.

        Raises
        ------
        PageError
            There is no Batches block, it has no examples of that split, or a block fails.
        """
        names = [fetches] if isinstance(fetches, str) else _loops.listed("fetches", fetches)
        with self._looking():
            self._cancel.clear()
            self._feed(feeds)
            return _loops.evaluate(self, names, split)

    def cancel(self) -> None:
        """Stop the run after its current block, from any thread; updates of that step are discarded."""
        self._cancel.set()

    # Looking

    def results(self) -> Results:
        """The current results of every block, stale or not."""
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
        """The current variables, without those that no run has needed yet."""
        with self._lock:
            return {id: variable.value for id, variable in self._variables.items() if id in self.page}

    @property
    def feeds(self) -> dict[str, Array]:
        """The current values of the placeholders."""
        with self._lock:
            return {id: array for id, (array, _) in self._feeds.items() if id in self.page}

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the variables, for `restore`; later steps do not change it."""
        with self._lock:
            return Snapshot(self.variables, self._batch + self._used)

    def restore(self, snapshot: Snapshot) -> None:
        """Set the variables to those of `snapshot`, which may be from another session of an equal page."""
        if not isinstance(snapshot, Snapshot):
            raise PageError(f"snapshot is a {type(snapshot).__name__}; it must be the result of `snapshot()`.",
                            code="wrong-attribute")  # fmt: skip
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
        """Discard all results and variables, and start again with the first batch."""
        with self._lock:
            self._batch, self._used, self._made = 0, False, 0
            self._paused = None
            self._kept.clear()
            self._variables.clear()
            self._walk = None

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import session_html

        return session_html(self)

    def check_gradients(self, y: "str | Wire | Block", xs: "Iterable[str | Wire | Block]", **options: Any) -> Any:
        """Check the gradients of `y` with respect to `xs` by finite differences; see `rowgrad.blocks._gradcheck`."""
        from rowgrad.blocks._gradcheck import check_gradients

        return check_gradients(self, y, list(xs), **options)

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
