"""The look-up in a sharded table, and its gradient: rows or partial sums come here, gradients go to the owners.

The owners add the gradients of all ranks in the order of the ranks, and so in the order of the whole batch: whatever
the number of ranks, a table is changed as one process would.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rowgrad._ops import OPERATORS
from rowgrad._ops.combiners import COMBINERS
from rowgrad._ops.results import RowGradient
from rowgrad._runtime.dtypes import Array
from rowgrad.torch.distributed._exchange import Place
from rowgrad.torch.distributed._request import Asked, Request
from rowgrad.torch.distributed._routing import Route

HALVES = (torch.float16, torch.bfloat16)


class Way(NamedTuple):
    """How rows are pooled and what becomes of their gradient.

    `exact` pools whole rows where they are asked for; `divisor` is what the gradient of the table is divided by;
    `update` changes the table at once.
    """

    combiner: str
    exact: bool
    sparse: bool
    divisor: int
    update: Callable[..., None] | None


class _Fetched(NamedTuple):
    """Rows of other ranks as a small table: each entry's row in it, and the owner's number of each of its rows."""

    table: Tensor
    entries: Tensor
    local: Array
    sizes: list[int]


def scales(combiner: str, sizes: Array, dtype: torch.dtype) -> Array:
    """What the gradient of bags of these sizes is multiplied by, rounded as the operators do."""
    counts = np.maximum(sizes, 1).astype(np.float64)
    found = 1.0 / (counts if combiner == "mean" else np.sqrt(counts))
    return found.astype(str(sum_type(dtype)).removeprefix("torch."))


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type that sums of `dtype` are made in."""
    return torch.float32 if dtype in HALVES else dtype


def look_up(weight: Tensor, request: Request, way: Way) -> Tensor:
    """The pooled rows of a request."""
    return _LookUp.apply(weight, request.factors, request, way)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, factors: Tensor | None, request: Request, way: Way) -> Tensor:
        if request.early:
            request.exchange.headers(Place.ROWS, request.call)
        asked, batch, found = request.asked(), request.batch, request.route
        ctx.weight, ctx.request, ctx.way, ctx.chosen, ctx.fetched = weight, request, way, None, None
        ctx.factor_type = None if factors is None else factors.dtype
        # Only gradients of weights need the rows as they were; PyTorch then notices if they were changed since.
        ctx.save_for_backward(weight if request.any_weights_learn else None)
        if way.combiner == "max":
            ctx.fetched = fetched = _fetch(weight, request, asked)
            output, ctx.chosen = _run(
                "SparseSegmentMax", fetched.table, fetched.entries, batch.segment_ids, batch.count
            )
            return output
        if way.exact:
            table, entries = _fetch(weight, request, asked)[:2]
            return _pooled(table, entries, request, way)
        parts = request.exchange.swap(_partial(weight, asked), asked.runs_of, found.runs, "rows")
        request.exchange.done()
        if request.runs is not None:
            ctx.rows = parts if ctx.needs_input_grad[1] else None
            return _pooled(parts, request.runs, request, way)
        return _added(parts, request, way.combiner if factors is None else "sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        way: Way = ctx.way
        request: Request = ctx.request
        weight: Tensor = ctx.weight
        (rows,) = ctx.saved_tensors  # before anything travels: where it raises, it does so on all ranks
        asked, exchange = request.asked(), request.exchange
        grad, headers = grad.contiguous(), exchange.announce(Place.BACKWARD, request.call)
        if way.combiner == "max":
            mine, chosen = grad[torch.from_numpy(request.route.bags)], _chosen(ctx.chosen, ctx.fetched, request.route)
            exchange.heard(headers)
            grads = exchange.swap(mine, request.route.runs, asked.runs_of, "gradients")
            theirs = exchange.swap(chosen, request.route.runs, asked.runs_of, "gradients")
            exchange.done()
            d_weight = None
            if ctx.needs_input_grad[0]:
                grads = grads if way.divisor == 1 else grads / way.divisor
                compact = _run("SparseSegmentMaxGradV2", grads, theirs.long(), weight.shape[0])
                d_weight = _settled(weight, RowGradient(*compact), way)
            return d_weight, None, None, None
        mine = _sent(grad, request, way)
        exchange.heard(headers)
        grads = exchange.swap(mine, request.route.runs, asked.runs_of, "gradients")
        d_factors = None
        here = request.runs is not None
        if request.any_weights_learn:
            wanted = ctx.factor_type if ctx.needs_input_grad[1] and not here else None
            d_factors = _factor_gradient(rows, grads, request, wanted)
        exchange.done()
        if here and ctx.needs_input_grad[1]:
            d_factors = _dots(grad, ctx.rows, request.batch.segment_ids, request.runs).to(ctx.factor_type)
        d_weight = None
        if ctx.needs_input_grad[0]:
            grads = grads if way.divisor == 1 else grads / way.divisor
            d_weight = _table_gradient(weight, grads, asked, way)
        return d_weight, d_factors, None, None


def _pooled(table: Tensor, entries: Tensor, request: Request, way: Way) -> Tensor:
    """The bags, from a table of rows that were sent here."""
    batch, factors = request.batch, request.factors
    if factors is not None:
        return _run("SparseSegmentWeightedSum", table, factors, entries, batch.segment_ids, batch.count)
    name = f"SparseSegment{COMBINERS[way.combiner].name}WithNumSegments"
    return _run(name, table, entries, batch.segment_ids, batch.count)


def _partial(weight: Tensor, asked: Asked) -> Tensor:
    """The sum of each run that this rank was asked for."""
    runs = len(asked.lengths)
    if asked.factors is not None:
        return _run("SparseSegmentWeightedSum", weight, asked.factors, asked.rows, asked.runs, runs)
    return _run("SparseSegmentSumWithNumSegments", weight, asked.rows, asked.runs, runs)


def _added(parts: Tensor, request: Request, combiner: str) -> Tensor:
    """The bags, from the sums of their runs, in the order of the owners."""
    bags, count = torch.from_numpy(request.route.bags), request.batch.count
    every = torch.arange(len(bags), dtype=torch.int32)
    if combiner == "sum":
        return _run("SparseSegmentSumGrad", parts, bags, every, count)
    of_bags = scales(combiner, request.bag_sizes, parts.dtype)
    factors = torch.from_numpy(of_bags[request.route.bags])
    return _run("SparseSegmentWeightedSum", parts, factors, every, bags, count)


def _fetch(weight: Tensor, request: Request, asked: Asked) -> _Fetched:
    """The rows that this rank needs, each once. Both sides find out which those are from the entries."""
    wanted = [np.unique(part) for part in _cut(asked.rows.numpy(), asked.entries_of)]
    found = request.route
    mine = [np.unique(part) for part in _cut(found.local, found.entries)]
    given, taken = [part.size for part in wanted], [part.size for part in mine]
    rows = weight.detach().index_select(0, torch.from_numpy(np.concatenate(wanted)))
    table = request.exchange.swap(rows, given, taken, "rows")
    request.exchange.done()
    entries = np.empty(found.local.size, np.int32)
    begin = first = 0
    for unique, local in zip(mine, _cut(found.local, found.entries), strict=True):
        places = slice(begin, begin + local.size) if found.order is None else found.order[begin : begin + local.size]
        entries[places] = first + np.searchsorted(unique, local)
        begin, first = begin + local.size, first + unique.size
    return _Fetched(table, torch.from_numpy(entries), np.concatenate(mine), taken)


def _cut(array: Array, sizes: list[int]) -> list[Array]:
    return np.split(array, np.cumsum(sizes)[:-1])


def _sent(grad: Tensor, request: Request, way: Way) -> Tensor:
    """The gradient of each run's bag; already multiplied, where that is rounded as sums are, and so as one process.

    Where rows were pooled here, it is the gradient of each run's only row.
    """
    if request.runs is not None:
        batch, rows = request.batch, len(request.route.bags)
        if request.factors is not None:
            given = grad, request.factors, request.runs, batch.segment_ids, rows
            return _run("SparseSegmentWeightedSumGradV2", *given)[0]
        name = f"SparseSegment{COMBINERS[way.combiner].name}GradV2"
        return _run(name, grad, request.runs, batch.segment_ids, rows)[0]
    rows = grad.index_select(0, torch.from_numpy(request.route.bags))
    if request.factors is None and way.combiner != "sum" and grad.dtype not in HALVES:
        of_bags = scales(way.combiner, request.bag_sizes, grad.dtype)
        rows *= torch.from_numpy(of_bags[request.route.bags])[:, None]
    return rows


def _factor_gradient(weight: Tensor, grads: Tensor, request: Request, wanted: torch.dtype | None) -> Tensor | None:
    """The owners multiply the gradients of bags with their rows, entry by entry, and send the products back."""
    asked, found = request.asked(), request.route
    given = [size * learns for size, learns in zip(asked.entries_of, asked.weights_learn, strict=True)]
    picked = torch.from_numpy(np.repeat(asked.weights_learn, asked.entries_of))
    runs, rows = (x if all(asked.weights_learn) else x[picked] for x in (asked.runs, asked.rows))
    dots = _dots(grads, weight, runs, rows)
    taken = found.entries if wanted is not None else [0] * len(found.entries)
    back = request.exchange.swap(dots, given, taken, "weights")
    if wanted is None:
        return None
    if found.order is not None:
        back = torch.empty_like(back).index_copy_(0, torch.from_numpy(found.order), back)
    return back.to(wanted)


def _dots(grads: Tensor, table: Tensor, runs: Tensor, rows: Tensor) -> Tensor:
    name = str(sum_type(table.dtype)).removeprefix("torch.")
    return OPERATORS["RowDot"](grads, table.detach(), runs, rows, out_type=name)


def _table_gradient(weight: Tensor, grads: Tensor, asked: Asked, way: Way) -> Tensor | None:
    """The gradient of this rank's rows, or None where they were changed at once."""
    factors = asked.factors
    if asked.scales is not None:
        by_run = asked.scales.index_select(0, asked.runs)
        factors = by_run if factors is None else factors * by_run  # one of the two is 1
    if way.update is not None:
        way.update(weight, grads, asked.rows, asked.runs, factors)
        return None
    if factors is None:
        compact = _run("SparseSegmentSumGradV2", grads, asked.rows, asked.runs, weight.shape[0])
    else:
        compact = _run("SparseSegmentWeightedSumGradV2", grads, factors, asked.rows, asked.runs, weight.shape[0])
    return _settled(weight, RowGradient(*compact), way)


def _settled(weight: Tensor, compact: RowGradient, way: Way) -> Tensor | None:
    """A compact gradient as autograd takes it; where there is an update, it is made, and nothing is left."""
    if way.update is not None:
        way.update(weight, compact)
        return None
    rows, ids = compact.output, compact.sorted_unique_indices.long()
    if not way.sparse:
        return rows.new_zeros(weight.shape).index_copy_(0, ids, rows)
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, weight.shape, is_coalesced=True, check_invariants=False)


def _chosen(chosen: Tensor, fetched: _Fetched, found: Route) -> Tensor:
    """For each run and column, the owner's number of the row that was chosen; −1 where that is another rank's."""
    ranks = len(fetched.sizes)
    owner_of = np.append(np.repeat(np.arange(ranks), fetched.sizes), -1)  # the last is for bags without rows
    local = np.append(fetched.local, -1).astype(fetched.local.dtype)
    of_runs = chosen.numpy()[found.bags]
    here = owner_of[of_runs] == np.repeat(np.arange(ranks), found.runs)[:, None]
    return torch.from_numpy(np.where(here, local[of_runs], local[-1]))


def _run(name: str, table: Tensor, *values: Any) -> Any:
    return OPERATORS[name](
        table.detach(), *(value.detach() if isinstance(value, Tensor) else value for value in values)
    )
