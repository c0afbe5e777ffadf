"""Steps by entries at addresses: the shortest way from tensors to a kernel, for optimizers of front ends."""

from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._runtime import dtypes
from rowgrad._runtime.threads import GRAIN, Workers
from rowgrad.optim._arguments import State, check_apart, fit_state, fit_table
from rowgrad.optim._base import Optimizer

ALONE = Workers(0)
MOST = 1 << 14  # entries that one thread sorts in less time than it takes to share the work


class Fitted:
    """A table and its state, checked once: where they are, and what kernels need to know of them.

    A caller that keeps it must keep the memory alive and check that it is still the same.
    """

    __slots__ = ("_addresses", "_lanes", "_one", "_row_bytes", "_rows", "_stored", "width")

    def __init__(self, optimizer: Optimizer, table: Any, state: State) -> None:
        target = fit_table(table)
        fitted = fit_state(type(optimizer).__name__, optimizer.layout(), state, target)
        check_apart(target, fitted, {})
        stored, sums, _ = dtypes.summing(target.array.dtype)
        arrays = [target.array, *(array for name, array in fitted.items() if name != "step")]
        self._addresses = (*(array.__array_interface__["data"][0] for array in arrays), 0, 0)[:3]
        self._rows, self.width = target.array.shape[0], target.width
        self._row_bytes = self.width * target.array.itemsize
        self._lanes = kernels.lanes.lanes_for(sums, self.width)
        self._stored, self._one = np.empty(0, stored), np.ones(1, sums)

    def change(self, formula: tuple[Any, Any], ids: int, grads: int, size: int, *, ascending: bool) -> int:
        """Change the rows whose int64 numbers are at the address `ids` by the gradients at `grads`.

        `formula` is the token of a rule, and its numbers as an array; `ascending` says that no row occurs twice. Gives
        the first position that is wrong, and has changed nothing then; or -1.
        """
        workers = ALONE if size * self._row_bytes < GRAIN else Workers(size * (16 + self._row_bytes))
        kernel, (table, *memory) = kernels.optim, self._addresses
        if ascending:
            return workers.run(  # type: ignore[no-any-return]
                kernel.change, ids, size, self._rows, grads, self.width, *formula, self._lanes, self._stored, table,
                *memory, np.empty(workers.chunks, np.int64),
            )  # fmt: skip
        block = kernel.BLOCK * workers.chunks
        return workers.run(  # type: ignore[no-any-return]
            kernel.change_pooled, ids, size, self._rows, np.empty(kernel.room_for_words(size), np.int64), 0, grads,
            self.width, self._one, 0, 0, *formula, self._lanes, self._stored, table, *memory,
            np.empty(block * self.width, self._one.dtype), np.empty(block, np.int64), None, np.empty(3, np.int64),
        )  # fmt: skip
