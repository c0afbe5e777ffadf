"""Pooling with gradients: one autograd function for all layers, with dense, compact or fused gradients.

The gradient of the table is a dense tensor, or a sparse one that is coalesced as it is, or none at all: then the
table is changed in the backward pass, row by row, and its gradient is never in memory.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from rowgrad._ops import OPERATORS
from rowgrad._ops.combiners import COMBINERS
from rowgrad._ops.results import RowGradient
from rowgrad.errors import InvalidArgumentError
from rowgrad.torch._bags import has_tangent, is_plain, on_arrays
from rowgrad.torch._schema import NAMESPACE, snake_case

OWNERS: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
_numbers = count(1)


class Owner(NamedTuple):
    """Who changes a table, for compiled programs: a number among `OWNERS`, and which of its tables it is.

    `updates` counts, so that a compiled program has something to change, and does not leave the update out.
    """

    number: int
    table: str
    updates: Tensor


def number_of(owner: Any) -> int:
    """A number for a layer that changes tables, by which a compiled program finds it."""
    number = next(_numbers)
    OWNERS[number] = owner
    return number


class Way(NamedTuple):
    """How rows are pooled and what their gradient is.

    `by_frequency` divides a row's gradient by how often the row occurs; `update` changes the table at once. A compiled
    program calls the `owner` of the table instead.
    """

    combiner: str
    sparse: bool = False
    by_frequency: bool = False
    update: Callable[..., None] | None = None
    owner: Owner | None = None


def pool(weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, way: Way) -> Tensor:
    """The pooled rows; `factors` multiply the entries, whose sums are taken then."""
    # The transforms of torch.func know no sparse gradients, and derivatives forward are for operators.
    transformed = way.update is None and (
        torch._C._are_functorch_transforms_active() or has_tangent(weight) or has_tangent(factors)
    )
    if transformed or not (way.sparse or way.by_frequency or way.update is not None):
        return _differentiable(weight, ids, segment_ids, bags, factors, way.combiner)
    if torch.compiler.is_compiling():
        return pool_compiled(weight, ids, segment_ids, bags, factors, way)
    if way.sparse and way.update is None and weight.is_leaf and weight.requires_grad:
        keep_coalesced(weight)
    return _Pool.apply(weight, ids, segment_ids, bags, factors, way)


def factors_of(weights: Tensor, segment_ids: Tensor, bags: int, combiner: str) -> Tensor:
    """What entries are multiplied by so that their sum is the weighted sum, mean or sqrtn; Σ w = 0 gives 0."""
    if weights.dtype in (torch.float16, torch.bfloat16):
        weights = weights.float()
    if combiner == "sum":
        return weights
    squares = weights * weights if combiner == "sqrtn" else weights
    total = torch.zeros(bags, dtype=weights.dtype, device=weights.device).index_add(0, segment_ids, squares)
    known = total != 0
    total = torch.where(known, total, 1)
    scale = torch.where(known, total.rsqrt() if combiner == "sqrtn" else 1 / total, 0)
    return weights * scale[segment_ids]


def _differentiable(
    weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, combiner: str
) -> Tensor:
    """By the operators alone, whose gradients are dense and have gradients of any order."""
    ops = torch.ops.rowgrad
    if factors is not None:
        return ops.sparse_segment_weighted_sum(weight, factors, ids, segment_ids, bags)
    if combiner == "max":
        return ops.sparse_segment_max(weight, ids, segment_ids, bags)[0]
    operator = getattr(ops, f"{COMBINERS[combiner].function}_with_num_segments")
    return operator(weight, ids, segment_ids, bags)


class _Pool(torch.autograd.Function):
    """Pooling whose gradient to the table is compact, or used up at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None,
                way: Way) -> Tensor:  # fmt: skip
        ctx.way, ctx.shape, ctx.weight = way, weight.shape, weight
        output, chosen = pooled(weight, ids, segment_ids, bags, factors, way.combiner)
        kept = weight if factors is not None and factors.requires_grad else None
        ctx.save_for_backward(*((None, None) if chosen is not None else (ids, segment_ids)), factors, kept, chosen)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
        d_weight, d_factors = pooled_grad(ctx.way, ctx.shape, grad, ctx.saved_tensors, wanted, ctx.weight)
        return d_weight, None, None, None, d_factors, None


def pooled(
    weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, combiner: str
) -> tuple[Tensor, Tensor | None]:
    """The pooled rows by operators; for the combiner max, also which entries these are from."""
    if combiner == "max":
        output, chosen = _run("SparseSegmentMax", weight, ids, segment_ids, bags)
        return output, chosen
    if factors is not None:
        return _run("SparseSegmentWeightedSum", weight, factors, ids, segment_ids, bags), None
    return _run(f"SparseSegment{COMBINERS[combiner].name}WithNumSegments", weight, ids, segment_ids, bags), None


def pooled_grad(
    way: Way, shape: Any, grad: Tensor, saved: Any, wanted: tuple[bool, bool], table: Tensor | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients to the table and to the factors, if wanted; an update is made at once, and nothing is left of it.

    `saved` are ids, segment_ids, factors, the table if a gradient to the factors is wanted, and, for the combiner max,
    the chosen entries. `table` is that which is updated, or gets a sparse gradient.
    """
    (ids, segment_ids, factors, weight, chosen), (wants_weight, wants_factors) = saved, wanted
    if chosen is not None:
        gradient = _compact("SparseSegmentMaxGradV2", grad, chosen, shape[0])
        if way.update is None:
            return _settled(way, shape, gradient, table), None
        refuse_second_order()
        way.update(table, gradient)
        return None, None
    d_factors = None
    if wants_factors:
        d_factors = _dot(grad, weight, segment_ids, ids, factors.dtype)
    if way.update is not None:
        refuse_second_order()
        if wants_weight:
            way.update(table, grad, ids, segment_ids, factors)
        return None, d_factors
    if not wants_weight:
        return None, d_factors
    gradient = compact_gradient(way.combiner, grad, ids, segment_ids, factors, shape[0])
    if way.by_frequency:
        ones = grad.new_ones(grad.shape[0], 1)
        counts, _ = _compact("SparseSegmentSumGradV2", ones, ids, segment_ids, shape[0])
        gradient = RowGradient(gradient.output / counts, gradient.sorted_unique_indices)
    return _settled(way, shape, gradient, table), d_factors


def compact_gradient(
    combiner: str, grad: Tensor, ids: Tensor, segment_ids: Tensor, factors: Tensor | None, rows: int
) -> RowGradient:
    """The gradient of the rows that were looked up."""
    if factors is None:
        return _compact(f"SparseSegment{COMBINERS[combiner].name}GradV2", grad, ids, segment_ids, rows)
    return _compact("SparseSegmentWeightedSumGradV2", grad, factors, ids, segment_ids, rows)


def _settled(way: Way, shape: Any, gradient: RowGradient, table: Tensor | None) -> Tensor:
    """A compact gradient as autograd takes it."""
    rows, ids = gradient
    if not way.sparse:
        return rows.new_zeros(shape).index_copy(0, ids.long(), rows)
    places = ids.unsqueeze(0)
    if table is not None:
        keep_rows(table, places)
    return torch.sparse_coo_tensor(places, rows, shape, is_coalesced=True, check_invariants=False)


# In compiled programs the same is an operator: `torch.compile` looks into autograd functions, and finds there what it
# cannot trace, but takes operators as they are.


def pool_compiled(
    weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, way: Way
) -> Tensor:
    """The same as `pool`, for `torch.compile`."""
    number, table, updates = way.owner if way.update is not None and way.owner is not None else (0, "", None)
    output, _ = torch.ops.rowgrad.pool_bags(weight, ids, segment_ids, bags, factors, updates, way.combiner, way.sparse,
                                            way.by_frequency, number, table)  # fmt: skip
    return output


@torch.library.custom_op(f"{NAMESPACE}::pool_bags", mutates_args=())
def _pool_bags(
    weight: Tensor,
    ids: Tensor,
    segment_ids: Tensor,
    bags: int,
    factors: Tensor | None,
    updates: Tensor | None,
    combiner: str,
    sparse: bool,
    by_frequency: bool,
    owner: int,
    table: str,
) -> tuple[Tensor, Tensor]:
    output, chosen = pooled(weight, ids, segment_ids, bags, factors, combiner)
    return output, ids.new_empty(0) if chosen is None else chosen


@_pool_bags.register_fake
def _(weight: Tensor, ids: Tensor, segment_ids: Tensor, bags: int, factors: Tensor | None, updates: Tensor | None,
      combiner: str, *others: Any) -> tuple[Tensor, Tensor]:  # fmt: skip
    output = weight.new_empty(bags, weight.shape[1])
    return output, torch.empty_like(output, dtype=ids.dtype) if combiner == "max" else ids.new_empty(0)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    weight, ids, segment_ids, _, factors, updates, combiner, sparse, by_frequency, number, table = inputs
    chosen = output[1] if combiner == "max" else None
    kept = weight if factors is not None and factors.requires_grad else None
    ctx.save_for_backward(ids, segment_ids, factors, kept, chosen, updates)
    ctx.shape, ctx.way, ctx.owner = weight.shape, Way(combiner, sparse, by_frequency), (number, table)
    ctx.mark_non_differentiable(output[1])


def _pool_bags_grad(ctx: Any, grad: Tensor, _: Any) -> Any:
    *saved, updates = ctx.saved_tensors
    way: Way = ctx.way
    if updates is not None:

        def update(_: Any, grad: Any, *entries: Any) -> None:
            rows, ids, segment_ids, factors = (grad, *entries) if entries else (*grad, None, None)
            torch.ops.rowgrad.update_bags(updates, rows, ids, segment_ids, factors, *ctx.owner)

        way = way._replace(update=update)
    wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
    d_weight, d_factors = pooled_grad(way, ctx.shape, grad, saved, wanted)
    return d_weight, None, None, None, d_factors, None, None, None, None, None, None


_pool_bags.register_autograd(_pool_bags_grad, setup_context=_keep)


@torch.library.custom_op(f"{NAMESPACE}::update_bags", mutates_args=("updates",))
def _update_bags(
    updates: Tensor,
    grad: Tensor,
    ids: Tensor,
    segment_ids: Tensor | None,
    factors: Tensor | None,
    owner: int,
    table: str,
) -> None:
    layer = OWNERS[owner]
    if segment_ids is None:
        layer.update_table(table, RowGradient(grad, ids))
    else:
        layer.update_table(table, grad, ids, segment_ids, factors)
    updates.add_(1)


@_update_bags.register_fake
def _(updates: Tensor, *others: Any) -> None:
    return None


class Mark:
    """A hook of a table that marks its gradients as coalesced, which they are.

    PyTorch forgets it when a gradient becomes ``.grad``, though it takes the gradient as it is. `rows` are the row
    numbers of the last gradient, kept until that is accumulated: no other gradient can lie where they are.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: Tensor | None = None

    def __call__(self, weight: Tensor) -> None:
        rows, grad, self.rows = self.rows, weight.grad, None
        if rows is not None and grad is not None and grad.is_sparse and grad._indices().data_ptr() == rows.data_ptr():
            grad._coalesced_(True)


def keep_coalesced(weight: Tensor) -> Mark:
    """Have gradients of a table marked as coalesced from now on."""
    mark = _mark_of(weight)
    if mark is None:
        mark = Mark()
        weight.register_post_accumulate_grad_hook(mark)
    return mark


def keep_rows(weight: Tensor, places: Tensor) -> None:
    """Keep the row numbers of a gradient until it is accumulated."""
    mark = _mark_of(weight)
    if mark is not None:
        mark.rows = places


def _mark_of(weight: Tensor) -> Mark | None:
    return next((hook for hook in (weight._post_accumulate_grad_hooks or {}).values() if type(hook) is Mark), None)


def refuse_second_order() -> None:
    """Raise an error if the backward pass is to be differentiated."""
    if torch.is_grad_enabled():
        raise InvalidArgumentError(
            "a fused optimizer changes the table in the backward pass, so there is no gradient to differentiate again. "
            "Leave create_graph out, or use the layer without fused_optimizer.",
            code="fused-second-order",
        )


def _run(name: str, *values: Any) -> Any:
    """One operator, without gradients: CPU tensors go to the kernels straight away."""
    if is_plain(values[0]) and not torch.is_grad_enabled():
        return on_arrays(OPERATORS[name], *values)
    return getattr(torch.ops.rowgrad, snake_case(name))(*values)


def _compact(name: str, *values: Any) -> RowGradient:
    return RowGradient(*_run(name, *values))


def _dot(a: Tensor, b: Tensor, a_rows: Tensor, b_rows: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.ops.rowgrad.row_dot(a, b, a_rows, b_rows, out_type=dtype)
