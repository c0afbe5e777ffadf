"""One pass of a sharded collection or layer: rows come from all ranks, gradients go back, and tables are changed.

The owners join the batches of all ranks feature by feature, in the order of the ranks, which is the order of one
process with the whole batch; so a table is changed as that process would, whatever the number of ranks.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rowgrad._ops import OPERATORS, checks
from rowgrad._ops.results import RowGradient
from rowgrad._runtime.dtypes import Array
from rowgrad.torch import _fused as fused
from rowgrad.torch._bags import segment_ids_of
from rowgrad.torch._fused_optimizer import FusedOptimizer
from rowgrad.torch._pooling import compact_gradient
from rowgrad.torch._tables import Batch
from rowgrad.torch._trained_tables import TOGETHER
from rowgrad.torch.distributed._answers import ServedTables
from rowgrad.torch.distributed._collection_request import CollectionRequest
from rowgrad.torch.distributed._errors import PeerError
from rowgrad.torch.distributed._exchange import Place
from rowgrad.torch.distributed._machinery import Machinery

FINE, OVERFLOWN = 0, 1


def look_up(machinery: Machinery, request: CollectionRequest) -> Tensor:
    """The pooled rows of a request."""
    if not request.is_trained:
        return _pooled(machinery, request)
    return _Pass.apply(machinery, request, request.factors, *(bag.weight for bag in machinery.bags))


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, machinery: Machinery, request: CollectionRequest, factors: Tensor | None,
                *parameters: Tensor) -> Tensor:  # fmt: skip
        ctx.machinery, ctx.request, ctx.factor_type = machinery, request, None if factors is None else factors.dtype
        # Only gradients of weights need the rows as they were; PyTorch then notices if they were changed since.
        ctx.save_for_backward(*(parameters if any(request.weights_learn) else ()))
        return _pooled(machinery, request)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        machinery, request = ctx.machinery, ctx.request
        _ = ctx.saved_tensors  # before anything travels: where it raises, it does so on all ranks
        exchange, answers, copies = machinery.exchange, machinery.answers, machinery.copies
        divisor = exchange.size if machinery.gradient_average else 1  # of the gradients of tables, not of weights
        grad, overflow = _prepared(machinery, grad)
        own_batch, own = None, np.empty(0, np.uint8)
        if copies is not None:
            own_batch = copies.batch(request.bags)
            own = copies.message(own_batch, copies.own_grad(grad) / divisor)
        settings = _settings(machinery.optimizer)
        near, apart = machinery.near_for(request), TOGETHER
        if near is None:
            blocks = answers.gradients(grad, request.sent, request.bags, own.size, request.has_sizes)
            for block in blocks:
                block[block.size - own.size :] = own
            first = own.size
        else:
            if not near.is_free:
                exchange.headers(Place.BACKWARD, request.call)
                exchange.done()
            if divisor > 1:
                grad = grad / divisor
            if overflow == FINE:
                apart = near.give(grad, request)
            first = exchange.memory.leave(own)
        work = exchange.announce(Place.BACKWARD, request.call, [(first, overflow, settings)] * exchange.size)
        found = exchange.heard(work)
        if near is not None:
            near.begin_to_read()
        if any(header[2] != settings for header in found):
            exchange.done()
            raise _other_settings(found)
        if any(header[1] for header in found):
            exchange.done()
            if overflow == FINE:
                _note_overflow(machinery.optimizer)
            return None, None, None, *([None] * len(machinery.bags))
        asked, sizes = request.received, [0] * exchange.size
        if near is not None:
            theirs = near.gradients(request.all_bags)
            came = [] if copies is None else exchange.memory.left([header[0] for header in found])
            exchange.traffic.sent["gradients"] += near.given_bytes(request.bags.bags)
        else:
            sizes = [-(-answers.size(exchange.rank, asked.runs[:, s]) // 64) * 64 for s in range(exchange.size)]
            came = exchange.received(exchange.trade(
                blocks, [size + header[0] for size, header in zip(sizes, found, strict=True)], "gradients"
            ))  # fmt: skip
            theirs = answers.joined(came, asked)
        change = None if copies is None else copies.change([m[size:] for m, size in zip(came, sizes, strict=True)])
        d_factors = chosen = None
        if any(request.weights_learn):
            d_factors = _factor_gradient(machinery, request, theirs, own_batch, grad)
        if machinery.is_max:
            chosen = _chosen(machinery, request)
        exchange.done()
        gradients: dict[int, Tensor] = {}
        if any(ctx.needs_input_grad[3:]):
            if divisor > 1 and near is None:
                theirs /= divisor
            if chosen is not None:
                gradients = _changed_most(machinery, theirs, chosen)
            elif machinery.served is not None:
                batch = request.batch(backward=True)
                served = (near or machinery).served_for(batch.weights is not None)
                complete = None if near is None else partial(near.complete, grad, request)
                gradients |= _changed(machinery, served, machinery.layout.tables, batch, theirs, apart, complete)
            if change is not None:
                gradients |= _changed(machinery, change.tables, machinery.layout.copies, change.batch, change.grad)
            _count_elsewhere(machinery)
        found_factors = None
        if d_factors is not None and ctx.needs_input_grad[2]:
            found_factors = d_factors.to(ctx.factor_type)
        return None, None, found_factors, *(gradients.get(i) for i in range(len(machinery.bags)))


def _pooled(machinery: Machinery, request: CollectionRequest) -> Tensor:
    exchange, answers = machinery.exchange, machinery.answers
    if request.early:
        exchange.headers(Place.ROWS, request.call, error=machinery.replaced(request))
    if request.is_near and machinery.near is not None:
        output = machinery.result(request.bags.bags)
        machinery.near.pool(request, output)
        if request.is_trained:
            _ = request.received  # before the memory of others changes
        else:
            request.leave()
        exchange.meet("rows")
        exchange.done()
        return output
    asked, sent = request.received, request.sent
    blocks = answers.answer(machinery.served_for(asked.factors is not None), request.batch(), asked)
    taken = [answers.size(r, counts) for r, counts in enumerate(sent.answers)]
    trade = exchange.trade(blocks, taken, "rows")
    output = machinery.result(request.bags.bags)
    copies = machinery.copies
    if copies is not None:  # while rows travel
        copies.pool(copies.batch(request.bags), output)
    request.chosen = answers.collect(exchange.received(trade), sent, request.bags, output)
    exchange.done()
    return output


def _prepared(machinery: Machinery, grad: Tensor) -> tuple[Tensor, int]:
    """The gradient as it travels, and whether it has overflowed under a scaler."""
    optimizer = machinery.optimizer
    if optimizer is not None and optimizer.grad_scaler is not None:
        found = optimizer.unscaled(grad)
        if found is None:
            return grad.contiguous(), OVERFLOWN
        grad = found
    return grad.contiguous(), FINE


def _note_overflow(optimizer: FusedOptimizer | None) -> None:
    """Another rank's gradients are not finite, so the step is left out here too."""
    if optimizer is not None:
        optimizer.unscaled(torch.full((1,), torch.inf))


def _settings(optimizer: FusedOptimizer | None) -> int:
    """A number for the settings that the step would use, which must be the same on all ranks."""
    if optimizer is None:
        return 0
    return zlib.crc32(repr([(names, vars(each)) for names, each in optimizer.groups()]).encode())


def _other_settings(headers: list[list[int]]) -> PeerError:
    other = [rank for rank, header in enumerate(headers) if header[2] != headers[0][2]]
    return PeerError(
        f"the settings of the fused optimizer on ranks {other} differ from those on rank 0. No table was changed. Set "
        "param_groups, and step schedulers, in the same way on all ranks.",
        code="ranks-differ",
        argument="fused_optimizer",
        value=other,
    )


def _changed(
    machinery: Machinery, tables: ServedTables, numbers: list[int], batch: Batch, grad: Tensor,
    apart: tuple[int, int, int] = TOGETHER, complete: Callable[[], None] | None = None,
) -> dict[int, Tensor]:  # fmt: skip
    """Make the steps of tables that have a fused optimizer; the gradients of the others.

    Some of the gradient may be `apart`; `complete` puts it into its place.
    """
    bags, names, optimizer = machinery.bags, machinery.names, machinery.optimizer
    groups = []
    for members, each in [] if optimizer is None else optimizer.groups():
        places = [place for place, number in enumerate(numbers) if names[number] in members]
        if places:
            groups.append((places, each))
    plain = [place for place, number in enumerate(numbers) if bags[number].fused_optimizer is None]
    if plain and complete is not None:
        complete()
    gradients = _gradients(tables, batch, grad, plain) if plain else []
    if groups:
        done = tables.step(batch, grad, groups, apart) if tables.fit() else False
        if done is None:
            raise checks.changed("values")
        if not done:
            if complete is not None:
                complete()
            entries = list(tables.entries(batch, grad))
            for places, each in groups:
                for place in places:
                    rows, ids, segments, factors = entries[place]
                    if factors is None and tables.modes()[place] != getattr(bags[numbers[place]], "mode", "sum"):
                        factors = torch.ones(ids.shape[0], dtype=torch.float32)  # gradients are multiplied already
                    one = fused.Pass(bags[numbers[place]].weight, rows, ids, segments, factors)
                    bags[numbers[place]]._make_step(one, each)
    found = {}
    for place, (rows, ids) in zip(plain, gradients, strict=True):
        found[numbers[place]] = _as_gradient(machinery, bags[numbers[place]].weight, rows, ids)
    return found


def _as_gradient(machinery: Machinery, weight: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    found = torch.sparse_coo_tensor(ids.long()[None], rows, weight.shape, is_coalesced=True, check_invariants=False)
    return found if machinery.sparse else found.to_dense()


def _changed_most(machinery: Machinery, grad: Tensor, chosen: Tensor) -> dict[int, Tensor]:
    """The same for the only table, which is pooled by the maximum."""
    (bag,), optimizer = machinery.bags, machinery.optimizer
    compact = RowGradient(*OPERATORS["SparseSegmentMaxGradV2"](grad, chosen, bag.weight.shape[0]))
    if optimizer is None:
        return {0: _as_gradient(machinery, bag.weight, *compact)}
    bag._make_step(fused.Pass(bag.weight, *compact), optimizer.groups()[0][1])
    return {}


def _chosen(machinery: Machinery, request: CollectionRequest) -> Tensor:
    """For each run that this rank was asked for and each column, the row that was chosen; −1 for one of another rank.

    That is what the owners need for the gradient of the maximum.
    """
    exchange, sent, width = machinery.exchange, request.sent, machinery.layout.columns
    fetched, kind = sent.fetched[0], machinery.id_type
    assert request.chosen is not None
    owner_of = np.append(np.repeat(np.arange(exchange.size), fetched.counts), -1)  # the last is for bags without rows
    local, found = np.append(fetched.rows, -1), request.chosen.numpy()
    runs = [int(each[0]) for each in sent.runs]
    room = exchange.memory.room(sum(runs) * width * kind.itemsize)
    ends, blocks = np.cumsum(runs) * width * kind.itemsize, []
    for rank, (end, size) in enumerate(zip(ends, runs, strict=True)):
        of_runs = found[sent.bags_of(0, rank, size)]
        block = room[end - size * width * kind.itemsize : end]
        block.view(kind)[:] = np.where(owner_of[of_runs] == rank, local[of_runs], -1).ravel()
        blocks.append(block)
    taken = (request.received.runs[0] * width * kind.itemsize).tolist()
    came = exchange.received(exchange.trade(blocks, taken, "gradients"))
    return torch.from_numpy(np.concatenate([each.view(kind) for each in came]).reshape(-1, width)).long()


def _gradients(tables: ServedTables, batch: Batch, grad: Tensor, places: list[int]) -> list[tuple[Tensor, Tensor]]:
    """The compact gradients of some of the tables."""
    found = tables.gradients(batch, grad) if tables.fit() else False
    if found is None:
        raise checks.changed("values")
    if not isinstance(found, bool):
        return [(found[place][1], found[place][0][0]) for place in places]
    entries = list(tables.entries(batch, grad))
    modes, weights = tables.modes(), tables.weights()
    made: list[RowGradient] = []
    for place in places:
        rows, ids, segments, factors = entries[place]
        made.append(compact_gradient(modes[place], rows, ids, segments, factors, weights[place].shape[0]))
    return [(each.output, each.sorted_unique_indices) for each in made]


def _count_elsewhere(machinery: Machinery) -> None:
    """Steps of tables that live on other ranks are counted here too, for checkpoints."""
    here = {*machinery.layout.tables, *machinery.layout.copies}
    for number, bag in enumerate(machinery.bags):
        if number not in here and bag.fused_optimizer is not None and "step" in bag.fused_state:
            bag.fused_state["step"].add_(1)


def _factor_gradient(machinery: Machinery, request: CollectionRequest, theirs: Tensor, own_batch: Batch | None,
                     grad: Tensor) -> Tensor | None:  # fmt: skip
    """The gradients of the factors: owners multiply the gradients of bags with their rows, and send the products."""
    layout, exchange, bags, asked = machinery.layout, machinery.exchange, request.bags, request.received
    item, learn = machinery.answers.sums.itemsize, request.weights_learn
    served = machinery.summed
    of_parts: list[Array] = []
    if served is not None:
        for weight, entries in zip(served.weights(), served.entries(request.batch(), theirs), strict=True):
            of_parts.append(_dots(weight, *entries[:3]))
    dots = np.concatenate(of_parts) if of_parts else np.empty(0, machinery.answers.sums)
    begins = np.cumsum(asked.entries.ravel()) - asked.entries.ravel()
    begins = begins.reshape(asked.entries.shape)
    room = exchange.memory.room(dots.nbytes)
    blocks, at = [], 0
    for s in range(exchange.size):
        size = item * int(asked.entries[:, s].sum()) * learn[s]
        block = room[at : at + size]
        parts = [dots[begins[i, s] : begins[i, s] + asked.entries[i, s]] for i in range(asked.entries.shape[0])]
        if parts and learn[s]:
            block.view(dots.dtype)[:] = np.concatenate(parts)
        blocks.append(block)
        at += size
    taken = [item * int(entries.sum()) * learn[exchange.rank] for entries in request.sent.entries]
    came = exchange.received(exchange.trade(blocks, taken, "weights"))
    if not learn[exchange.rank]:
        return None
    result, count = np.zeros(bags.values.size, dots.dtype), bags.bags
    for r, of_rank in enumerate(layout.parts):
        found, at = came[r].view(dots.dtype), 0
        for i, part in enumerate(of_rank):
            size = int(request.sent.entries[r][i])
            first, last = int(bags.offsets[part.feature * count]), int(bags.offsets[(part.feature + 1) * count])
            places: Any = slice(first, last)
            if part.spread:
                places = first + np.flatnonzero(bags.values[first:last] // layout.placed(part.feature).chunk == r)
            result[places] += found[at : at + size]
            at += size
    copies = machinery.copies
    if copies is not None and own_batch is not None:
        own = copies._summed
        given = own.entries(own_batch, copies.own_grad(grad))
        values = [_dots(weight, *entries[:3]) for weight, entries in zip(own.weights(), given, strict=True)]
        made, at = np.concatenate(values), 0
        for number in copies.numbers:
            first, last = int(bags.offsets[number * count]), int(bags.offsets[(number + 1) * count])
            result[first:last] = made[at : at + last - first]
            at += last - first
    return torch.from_numpy(result)


def _dots(weight: Tensor, grad: Tensor, ids: Tensor, segments: Tensor) -> Array:
    name = "float64" if weight.dtype == torch.float64 else "float32"
    found: Array = OPERATORS["RowDot"](grad, weight.detach(), segments, ids, out_type=name).numpy()
    return found


def factors_for(values: Tensor, offsets: Tensor, weights: Tensor, bags: int, poolings: list[str]) -> Tensor:
    """What ids are multiplied by, feature by feature as their tables pool."""
    from rowgrad.torch._pooling import factors_of

    if all(pooling == "sum" for pooling in poolings):
        return factors_of(weights, offsets, 0, "sum")
    segments = segment_ids_of(offsets[:-1], values.shape[0])
    bounds = offsets[:: max(bags, 1)].tolist() if bags else [0] * (len(poolings) + 1)
    parts = [
        factors_of(weights[begin:end], segments[begin:end] - f * bags, bags, pooling)
        for f, (begin, end, pooling) in enumerate(zip(bounds, bounds[1:], poolings, strict=False))
    ]
    return torch.cat(parts)
