"""Running a data set in workers, with a position that can be saved, and a progress bar."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from torch.utils.data import DataLoader

from rowgrad.errors import InvalidArgumentError
from rowgrad.torch.data._dataset import Batch, JaggedDataset, check_state


def _wrong(argument: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="wrong-argument", argument=argument, op="JaggedLoader")


def _as_it_is(batch: Batch) -> Batch:
    return batch


class JaggedLoader:
    """The batches of a `JaggedDataset`, read by workers.

    Parameters
    ----------
    dataset : JaggedDataset
        The data.
    num_workers : int
        How many processes read; with 0, this process reads.
    progress : bool
        Whether to show a progress bar of rows.
    **options
        Further arguments of `torch.utils.data.DataLoader`, such as prefetch_factor and pin_memory.

    Each loop over it is an epoch, or the rest of an epoch that was interrupted or loaded. `state_dict` returns the
    position after the last batch that was returned, however far workers have read ahead; a loader that continues from
    it returns the same batches in the same order as one that was never stopped.
    """

    def __init__(self, dataset: JaggedDataset, *, num_workers: int = 0, progress: bool = False, **options: Any) -> None:
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "collate_fn"):
            if name in options:
                raise InvalidArgumentError(
                    f"{name} is an argument of JaggedDataset. Pass it there.",
                    code="wrong-argument",
                    argument=name,
                    op="JaggedLoader",
                )
        if not isinstance(dataset, JaggedDataset):
            raise _wrong("dataset", f"dataset is a {type(dataset).__name__}; it must be a JaggedDataset.")
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
            raise _wrong("num_workers", f"num_workers is {num_workers!r}; it must be a whole number of 0 or more.")
        self.dataset, self.num_workers, self.progress = dataset, num_workers, progress
        self._options = options
        self._rows: dict[int, int] = {}
        self._turn = 0

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain numbers."""
        state = self.dataset.state_dict()
        return state | {"rows": dict(self._rows), "turn": self._turn, "workers": max(self.num_workers, 1)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position in the next loop."""
        check_state(state)
        workers = max(self.num_workers, 1)
        if state.get("workers") != workers:
            raise InvalidArgumentError(
                f"the position was saved with {state.get('workers')} workers, but this loader has {workers}. Pass "
                f"num_workers={state.get('workers')}.",
                code="other-data",
                argument="state",
                value=state.get("workers"),
                op="JaggedLoader",
            )
        self.dataset.load_state_dict(state)
        self._rows, self._turn = dict(self.dataset._given), self.dataset._turn

    def __iter__(self) -> Iterator[Batch]:
        dataset, workers = self.dataset, max(self.num_workers, 1)
        dataset._given, dataset._turn = dict(self._rows), self._turn
        ranges = [dataset.rows_of(worker, workers) for worker in range(workers)]
        total = sum(last - first for first, last in ranges)
        loader = DataLoader(dataset, batch_size=None, num_workers=self.num_workers, collate_fn=_as_it_is,
                            **self._options)  # fmt: skip
        with ExitStack() as stack:
            show = self._bar(stack, total)
            for batch in loader:
                worker, done = batch.position
                self._rows[worker] = done
                self._turn = (worker + 1) % workers
                show(sum(self._rows.values()))
                yield batch
        self._rows, self._turn = {}, 0
        dataset.set_epoch(dataset.epoch + 1)

    def _bar(self, stack: ExitStack, total: int) -> Any:
        if not self.progress:
            return lambda done: None
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        shown = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"),
                 TimeRemainingColumn())  # fmt: skip
        bar = stack.enter_context(Progress(*shown))
        task = bar.add_task("rows", total=total, epoch=self.dataset.epoch, completed=sum(self._rows.values()))
        return lambda done: bar.update(task, completed=done)
