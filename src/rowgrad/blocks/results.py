"""What a session knows after running: each block's results, and why those without any have none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks.model import as_wire
from rowgrad.errors import PageError, RowgradError

DONE, FAILED, SKIPPED, WAITING = "done", "failed", "skipped", "waiting"


@dataclass(frozen=True, eq=False)
class BlockResult:
    """The result of one block: its outputs by pin, also as attributes (``result.output``).

    `status` is ``"done"``, ``"failed"`` (see `error`), ``"skipped"`` (see `needs`) or ``"waiting"`` (not run yet).
    `stale` is True if the page, a feed, a file or a variable has changed since; updates by the step itself do not
    count.
    """

    block: str
    op: str
    status: str
    outputs: Mapping[str, Array] = field(default_factory=dict)
    error: PageError | None = None
    needs: str | None = None
    seconds: float = 0.0
    stale: bool = False

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, pin: str) -> Array:
        if self.status == DONE and pin in self.outputs:
            return self.outputs[pin]
        if self.status == DONE:
            listed = ", ".join(self.outputs) or "none"
            raise PageError(f"it has no output {pin}; it has: {listed}.", block=self.block, pin=pin, code="unknown-pin")
        if self.error is not None:
            raise self.error
        raise PageError(f"it has no results: {self.reason}.", block=self.block, pin=pin, code=self.status)

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import result_html

        return result_html(self)

    @property
    def reason(self) -> str:
        """The status in words."""
        if self.status == FAILED:
            return f"failed: {self.error}"
        return f"skipped: needs {self.needs}" if self.status == SKIPPED else self.status


class Results(Mapping[str, BlockResult]):
    """The results of a run by block; ``results["block:pin"]`` is one array.

    `errors` has one error for each block that failed by itself; `cancelled` is True if the run was cancelled.
    """

    def __init__(self, blocks: Mapping[str, BlockResult], *, cancelled: bool = False) -> None:
        self._blocks = dict(blocks)
        self.cancelled = cancelled

    def __getitem__(self, key: str) -> Any:
        if key in self._blocks:
            return self._blocks[key]
        id, pin = as_wire(key)
        if pin is not None and id in self._blocks:
            return self._blocks[id][pin]
        raise PageError(f"no block {key!r} was requested.", code="unknown-block", value=key)

    def get(self, key: str, default: Any = None) -> Any:
        """The results of a block, or `default` if it was not requested."""
        return self._blocks.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: object) -> bool:
        return key in self._blocks

    @property
    def errors(self) -> list[PageError]:
        """The errors, one for each block that caused one."""
        return [result.error for result in self._blocks.values() if result.error is not None]

    def raise_first(self) -> "Results":
        """Raise the first error; if nothing failed, return these results."""
        for error in self.errors:
            raise error
        return self

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import results_html

        return results_html(self)

    def __repr__(self) -> str:
        counts = {status: sum(r.status == status for r in self._blocks.values()) for status in
                  (DONE, FAILED, SKIPPED, WAITING)}  # fmt: skip
        return f"<Results: {', '.join(f'{count} {status}' for status, count in counts.items() if count)}>"


@dataclass(frozen=True)
class Progress:
    """The progress of a run, reported before each block and at the end of each step."""

    step: int
    steps: int
    done: int
    total: int
    block: str | None


class Printed(NamedTuple):
    """A line of a Print block: the step, counted from 1, the block, and the text."""

    step: int
    block: str
    text: str


@dataclass(frozen=True, eq=False)
class History:
    """The result of a loop: the number of steps, the recorded values, and the results of the last step."""

    steps: int
    values: Mapping[str, list[Array]]
    results: Results
    cancelled: bool = False
    paused: bool = False

    def __getitem__(self, key: str) -> list[Array]:
        return self.values[key]

    def _repr_html_(self) -> str:
        from rowgrad.blocks._notebook import run_html

        return run_html(self)


def on_block(error: Exception, block: str, op: str) -> PageError:
    """Whatever went wrong while a block ran, as an error of that block."""
    if isinstance(error, PageError) and error.block == block:
        return error
    if isinstance(error, RowgradError):
        return PageError.of(error, block, op)
    if isinstance(error, MemoryError):
        found = PageError("there is not enough memory for this.", block=block, code="out-of-memory", op=op)
    elif isinstance(error, OSError):
        found = PageError(f"{error.filename or 'a file'}: {error.strerror or error}.", block=block, code="bad-file",
                          op=op)  # fmt: skip
    else:
        found = PageError(f"{type(error).__name__}: {error}", block=block, code="internal", op=op)
    found.__cause__ = error
    return found
