"""Look-ups in one table whose gradient is sparse: the shortest way from tensors to the kernels and back.

A step of a small batch is Python and PyTorch more than work, and PyTorch's own layer does all of it in C++. So what
does not change from call to call is looked up once, and machine code is called without a look at the types of its
arguments. All that is unusual is left to `_tables.py` and `_trained_tables.py`.
"""

from typing import Any

import torch
from torch import Tensor

from rowgrad import _kernels as kernels
from rowgrad._kernels.kinds import LATE
from rowgrad._ops.quick import first_call
from rowgrad._runtime import memory, team
from rowgrad._runtime.memory import LINE
from rowgrad._runtime.team import GRAIN
from rowgrad._runtime.threads import most_threads
from rowgrad.torch._bags import IDS
from rowgrad.torch._pooling import Mark
from rowgrad.torch._tables import KINDS, TILE
from rowgrad.torch._trained_tables import MOST_ROWS, TrainedTables

OWN_ENTRIES = 64  # entries that the kernel of a gradient needs no scratch for
FACTOR_BYTES = 8  # that it takes for the factor of a bag
INT64 = torch.empty(0, dtype=torch.int64, device="cpu")
FEW = 2  # grains of work: to share the pooling of so little takes longer than to do it


def one_table(tables: TrainedTables) -> "OneTable | bool":
    """The short way for these tables, or False if there is none: for several of them."""
    if tables.only is None or tables.features != 1:
        return False
    weight = tables.weights()[0]
    return OneTable(tables, weight) if weight.shape[0] < MOST_ROWS else False


class OneTable:
    """What calls of the kernels for one table have in common; it holds for as long as `TrainedTables` fit."""

    def __init__(self, tables: TrainedTables, weight: Tensor) -> None:
        self.rows, self.width = weight.shape
        assert tables.only is not None
        self.dtype, self.shape, self.parameters, self.tables = weight.dtype, weight.shape, tables.only, tables
        self.at, self.size, self.stride = weight.data_ptr(), weight.numel(), weight.stride(0)
        self.combiners, self.mode = tables.combiners, tables.combiners[0]
        self.is_scaled = self.mode != "sum"
        self.like = torch.empty(0, dtype=weight.dtype, device="cpu")  # asked for new tensors, which is quicker
        self.row_bytes = self.width * tables.numpy.itemsize
        self.most = FEW * GRAIN // (16 + self.row_bytes)  # entries that one thread pools
        self.most_summed = GRAIN // (16 + self.row_bytes)  # and whose gradient it computes
        self.marked: Tensor | None = None  # the table whose gradients will be marked as coalesced
        self.mark: Mark | None = None
        self._pool: dict[torch.dtype, Any] = {}
        self._gradient: dict[torch.dtype, Any] = {}

    def pool(self, values: Tensor, offsets: Tensor, bags: int, is_open: bool) -> Tensor | None:
        """The pooled rows, or None if an id or an offset is bad."""
        size, width = values.numel(), self.width
        if size <= self.most and bags <= self.most:
            run, threads, tiles, nontemporal = 0, 1, 1, False
            output = self.like.new_empty(bags, width)
        else:
            run, threads = team.team(size * (8 + self.row_bytes), most_threads())
            tiles = min(max(bags // TILE, threads), bags) or 1
            output = self.tables.result(bags, width)
            nontemporal = self.tables.is_nontemporal(output, self.tables.first)
        code, fixed = self._pool.get(values.dtype) or (None, self._fixed_for_pool(values.dtype))
        args = (run, threads, 1, 1, tiles, *fixed, values.data_ptr(), size, offsets.data_ptr(), is_open, bags, 0,
                output.data_ptr(), width, nontemporal)  # fmt: skip
        if code is None:
            status, code = first_call(kernels.tables.pool, args)
            self._pool[values.dtype] = code, fixed
        else:
            status = code(*args)
        if threads > 1:
            team.note(status == LATE)
        return None if status > 0 else output

    def gradient(self, values: Tensor, offsets: Tensor, bags: int, is_open: bool, grad: Tensor,
                 mark: Mark | None) -> Tensor | None:  # fmt: skip
        """The gradient of the table, or None if an id or an offset is bad."""
        size, width, words, scratch = values.numel(), self.width, 0, None
        most = size if size < self.rows else self.rows
        places = INT64.new_empty(1, most)
        if size <= self.most_summed and bags <= self.most:
            run, threads = 0, 1
            sums = self.like.new_empty(most, width)
        else:
            run, threads = team.team(size * (16 + self.row_bytes), most_threads())
            sums = self.tables.result(most, width)
        factors = self.tables.one_at
        if self.is_scaled:
            factor_bytes = -(-FACTOR_BYTES * bags * threads // LINE) * LINE
            scratch = memory.borrow(factor_bytes + 16 * size * threads + LINE * (threads + 1))
            factors = scratch[1]
            words = factors + factor_bytes
        elif size > OWN_ENTRIES or threads > 1:
            scratch = memory.borrow(16 * size * threads + LINE * (threads + 1))
            words = scratch[1]
        code, fixed = self._gradient.get(values.dtype) or (None, self._fixed_for_gradient(values.dtype))
        args = (run, threads, *fixed, factors, values.data_ptr(), size, offsets.data_ptr(), is_open, bags,
                grad.data_ptr(), grad.stride(0), places.data_ptr(), sums.data_ptr(), words)  # fmt: skip
        if code is None:
            count, code = first_call(kernels.tables_alone.gradient, args)
            self._gradient[values.dtype] = code, fixed
        else:
            count = code(*args)
        if scratch is not None:
            memory.give_back(scratch)
        if count == -1:
            return None
        if threads > 1:
            team.note(count < 0)
            if count < 0:
                count = -2 - count
        if count < most:  # views would keep as much memory, and take longer to make
            places.resize_(1, count)
            sums.resize_(count, width)
        if mark is not None:
            mark.rows = places
        return torch.sparse_coo_tensor(places, sums, self.shape, is_coalesced=True, check_invariants=False)

    def _fixed_for_pool(self, ids: torch.dtype) -> tuple[Any, ...]:
        """The arguments of the kernel that tell types, and where the table is."""
        tables = self.tables
        return IDS[ids], tables.first.lanes, tables.first.scaled, None, tables.stored, tables.address

    def _fixed_for_gradient(self, ids: torch.dtype) -> tuple[Any, ...]:
        """The first arguments of the kernel."""
        tables = self.tables
        lanes = kernels.lanes.lanes_for_rows(tables.sums, self.width)
        return IDS[ids], lanes, tables.first.scaled, tables.stored, self.rows, self.width, KINDS[self.mode]
