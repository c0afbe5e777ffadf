"""What a layer is given, in any of its forms, as ids and the bag of each.

The forms are 2-D ids, a jagged nested tensor, and flat ids with offsets or with the bag of each.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from rowgrad._ops import OPERATORS, Operator
from rowgrad._runtime import arrays
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._kernels import is_portable

INTEGERS = (torch.int64, torch.int32)
IDS = {torch.int64: np.empty(0, np.int64), torch.int32: np.empty(0, np.int32)}
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Bags(NamedTuple):
    """Flat ids, the bag of each, how many bags there are, and a weight for each id, or None."""

    ids: Tensor
    segment_ids: Tensor
    count: int  # type: ignore[assignment]  # hides the method of tuples, which is not used here
    weights: Tensor | None


def read(
    input: Tensor,
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
    segment_ids: Tensor | None,
    num_bags: int | None,
    *,
    include_last_offset: bool,
) -> Bags:
    """The bags in whatever form they come."""
    _check_ids("input", input)
    if input.is_nested:
        _refuse_beside("nested", offsets, segment_ids, num_bags)
        return _read_jagged(input, per_sample_weights)
    if per_sample_weights is not None and not isinstance(per_sample_weights, Tensor):
        raise DTypeError(
            f"per_sample_weights is a {type(per_sample_weights).__name__}; it must be a tensor.",
            code="wrong-dtype",
            argument="per_sample_weights",
            value=type(per_sample_weights).__name__,
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise InvalidArgumentError(
            f"per_sample_weights has shape {list(per_sample_weights.shape)}, but input has {list(input.shape)}; each "
            "id needs one weight.",
            code="wrong-shape",
            argument="per_sample_weights",
            value=tuple(per_sample_weights.shape),
        )
    if input.dim() == 2:
        _refuse_beside("a matrix", offsets, segment_ids, num_bags)
        return _read_matrix(input, per_sample_weights)
    if input.dim() != 1:
        raise InvalidArgumentError(
            f"input has {input.dim()} dimensions; ids come as a matrix, a bag a row, or as a vector with offsets or "
            "segment_ids.",
            code="wrong-rank",
            argument="input",
            value=tuple(input.shape),
        )
    if (offsets is None) == (segment_ids is None):
        raise InvalidArgumentError(
            "a vector of ids needs either offsets, where each bag begins, or segment_ids, the bag of each id.",
            code="missing-argument",
            argument="offsets",
        )
    if segment_ids is not None:
        return _read_segments(input, segment_ids, per_sample_weights, num_bags)
    assert offsets is not None
    return _read_offsets(input, offsets, per_sample_weights, num_bags, include_last_offset)


def flat(
    input: Tensor, offsets: Tensor | None, weights: Tensor | None, *, include_last_offset: bool
) -> "tuple[Tensor, Tensor, Tensor | None, int, bool] | None":
    """Plain ids, where bags begin, weights, the number of bags, and whether offsets lack where the last bag ends.

    Nothing is told here of what is wrong, and None is given then; `read` tells it.
    """
    if input.dtype not in IDS or (weights is not None and weights.shape != input.shape):
        return None
    if offsets is None:
        if input.dim() != 2:
            return None
        bags, length = input.shape
        ends = torch.arange(0, bags * length + 1, length, dtype=input.dtype) if length else input.new_zeros(bags + 1)
        return input.reshape(-1), ends, None if weights is None else weights.reshape(-1), bags, False
    if input.dim() != 1 or type(offsets) not in PLAIN or offsets.dim() != 1 or not offsets.is_cpu:
        return None
    if input.layout is not torch.strided or offsets.layout is not torch.strided:
        return None
    if offsets.dtype is not input.dtype:
        if offsets.dtype not in IDS:
            return None
        offsets = offsets.to(input.dtype)
    if not offsets.is_contiguous():
        offsets = offsets.contiguous()
    bags = offsets.numel()
    if bags == 0:
        return None
    return input, offsets, weights, bags - include_last_offset, not include_last_offset


def without(bags: Bags, padding_idx: int) -> Bags:
    """The bags without the entries that only fill them up."""
    keep = bags.ids != padding_idx
    weights = None if bags.weights is None else bags.weights[keep]
    return Bags(bags.ids[keep], bags.segment_ids[keep], bags.count, weights)


def segment_ids_of(offsets: Tensor, size: int) -> Tensor:
    """The bag of each entry, from where the bags begin."""
    if is_plain(offsets):
        return on_arrays(OPERATORS["SegmentIdsFromOffsets"], offsets, size)
    return torch.ops.rowgrad.segment_ids_from_offsets(offsets, size)


def on_arrays(operator: Operator, *values: Any) -> Any:
    """`operator` on the memory of plain tensors: layers call it often, and this is the shortest way."""
    results = operator(*(array_of(value) if isinstance(value, Tensor) else value for value in values))
    if operator.result is None:
        return arrays.TORCH.hand_back(results)
    return operator.result(*map(arrays.TORCH.hand_back, results))


def array_of(tensor: Tensor) -> Array:
    """The memory of a plain tensor."""
    return arrays.TORCH.adopt(tensor.detach())


def is_plain(tensor: Tensor) -> bool:
    """Whether `tensor` holds numbers that kernels can read at once: nothing is being traced or transformed."""
    return (
        type(tensor) in PLAIN
        and tensor.is_cpu
        and not tensor.is_nested
        and not is_compiling()
        and not is_functorch_wrapped_tensor(tensor)  # one may outlive its transform
        and is_untransformed()
    )


def is_untransformed() -> bool:
    """Whether no transform and no derivative forward is under way, and kernels are allowed."""
    return forward_ad._current_level < 0 and not _are_functorch_transforms_active() and not is_portable()


def may_change(tensor: Tensor) -> bool:
    """Whether `tensor` may carry a derivative forward; costs next to nothing to ask."""
    # While PyTorch traces a program, it enters no level that could be seen here.
    return forward_ad._current_level >= 0 or _are_functorch_transforms_active() or type(tensor) not in PLAIN


def has_tangent(tensor: Tensor | None) -> bool:
    """Whether `tensor` carries a derivative forward (`torch.autograd.forward_ad`)."""
    if tensor is None or not may_change(tensor) or not torch._C._is_fwd_grad_enabled():
        return False
    return torch._VF._unpack_dual(tensor, level=0)[1] is not None


def _refuse_beside(form: str, offsets: Tensor | None, segment_ids: Tensor | None, num_bags: int | None) -> None:
    for name, value in (("offsets", offsets), ("segment_ids", segment_ids), ("num_bags", num_bags)):
        if value is not None:
            raise InvalidArgumentError(
                f"{name} is given, but input is {form}: each of its rows is a bag. Leave {name} out.",
                code="wrong-argument",
                argument=name,
            )


def _read_matrix(input: Tensor, weights: Tensor | None) -> Bags:
    bags, length = input.shape
    begins = torch.arange(bags, dtype=torch.int64, device=input.device) * length
    segments = segment_ids_of(begins, bags * length)
    return Bags(input.reshape(-1), segments, bags, None if weights is None else weights.reshape(-1))


def _read_jagged(input: Tensor, weights: Tensor | None) -> Bags:
    _check_jagged("input", input)
    ids, segments = _entries(input)
    if weights is None:
        return Bags(ids, segments, input.shape[0], None)
    _check_jagged("per_sample_weights", weights)
    values, others = _entries(weights)
    # Two tensors that were made apart have different symbols for equal lengths.
    if weights.shape != input.shape and not torch.equal(segments, others):
        raise InvalidArgumentError(
            "the rows of per_sample_weights are not as long as those of input; each id needs one weight.",
            code="wrong-shape",
            argument="per_sample_weights",
        )
    return Bags(ids, segments, input.shape[0], values)


def _entries(jagged: Any) -> tuple[Tensor, Tensor]:
    """The values of a jagged tensor, and the row of each."""
    values, offsets, lengths = jagged.values(), jagged.offsets(), jagged.lengths()
    if lengths is None:
        # Values behind the last row would get the number of a row that does not exist, which pooling refuses.
        return values, segment_ids_of(offsets, values.shape[0])
    # Rows with holes between them, as torch.nested.narrow makes them.
    rows = torch.repeat_interleave(lengths)
    packed = lengths.cumsum(0) - lengths
    return values[torch.arange(rows.shape[0], device=rows.device) + (offsets[:-1] - packed)[rows]], rows


def _check_jagged(name: str, value: Tensor) -> None:
    if not value.is_nested or value.layout is not torch.jagged:
        raise InvalidArgumentError(
            f"{name} is {'nested, but strided' if value.is_nested else 'not nested, but input is'}; allowed beside "
            "nested ids: nested tensors that are jagged. Make it with layout=torch.jagged.",
            code="wrong-layout",
            argument=name,
            value=str(value.layout),
        )
    if value.dim() != 2:
        raise InvalidArgumentError(
            f"{name} has {value.dim()} dimensions; a jagged tensor of ids has 2, a bag a row.",
            code="wrong-rank",
            argument=name,
            value=value.dim(),
        )


def _read_segments(input: Tensor, segment_ids: Tensor, weights: Tensor | None, num_bags: int | None) -> Bags:
    _check_ids("segment_ids", segment_ids)
    if segment_ids.shape != input.shape:
        raise InvalidArgumentError(
            f"segment_ids has shape {list(segment_ids.shape)}, but input has {list(input.shape)}; each id needs a bag.",
            code="length-mismatch",
            argument="segment_ids",
            value=tuple(segment_ids.shape),
        )
    if num_bags is None:
        num_bags = int(segment_ids[-1]) + 1 if segment_ids.numel() else 0
    if isinstance(num_bags, np.integer):
        num_bags = int(num_bags)
    if isinstance(num_bags, bool) or not isinstance(num_bags, int | torch.SymInt):
        raise InvalidArgumentError(
            f"num_bags is {num_bags!r}; it must be a whole number.",
            code="wrong-argument",
            argument="num_bags",
            value=str(num_bags),
        )
    return Bags(input, segment_ids, num_bags, weights)


def _read_offsets(
    input: Tensor, offsets: Tensor, weights: Tensor | None, num_bags: int | None, include_last_offset: bool
) -> Bags:
    _check_ids("offsets", offsets)
    if offsets.dim() != 1:
        raise InvalidArgumentError(
            f"offsets has shape {list(offsets.shape)}; it must be a vector.",
            code="wrong-rank",
            argument="offsets",
            value=tuple(offsets.shape),
        )
    if num_bags is not None:
        raise InvalidArgumentError(
            "num_bags is given, but offsets tell how many bags there are. Leave it out.",
            code="wrong-argument",
            argument="num_bags",
        )
    size, bags = input.shape[0], offsets.shape[0]
    if not include_last_offset:
        return Bags(input, segment_ids_of(offsets, size), bags, weights)
    bags -= 1
    if bags < 0 or (bags == 0 and size > 0):
        raise InvalidArgumentError(
            f"offsets has {bags + 1} elements for {size} ids, but with include_last_offset it begins with 0 and ends "
            "with the number of ids. Pass at least [0], and a bag for the ids.",
            code="bad-offset",
            argument="offsets",
        )
    segments = segment_ids_of(offsets, size)  # the last offset is checked like the others
    if not is_plain(offsets) or int(offsets[-1]) != size:
        # The last bag reaches to the last id, wherever the last offset is: PyTorch's tests say so.
        segments = segments.clamp(max=bags - 1)
    return Bags(input, segments, bags, weights)


def _check_ids(name: str, value: Tensor) -> None:
    if not isinstance(value, torch.Tensor):
        raise DTypeError(
            f"{name} is a {type(value).__name__}; it must be a tensor of whole numbers.",
            code="wrong-dtype",
            argument=name,
            value=type(value).__name__,
        )
    if value.dtype not in INTEGERS:
        raise DTypeError(
            f"{name} is {str(value.dtype).removeprefix('torch.')}; allowed: int32, int64. Convert it first.",
            code="wrong-dtype",
            argument=name,
            value=str(value.dtype),
        )
