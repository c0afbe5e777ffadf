"""`JaggedTensor`: bags of ids of any length, as TorchRec has them, and the checks of the tensors that it is made of.

The constructor checks types and shapes, which costs nothing; ids and offsets themselves are checked where they are
used, by the kernels. `_keyed_jagged.py` has the bags of many features.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rowgrad._ops.ragged_tensor import RaggedTensor
from rowgrad._runtime import arrays
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._keyed import as_tree, short

INTEGERS = (torch.int64, torch.int32)
FIELDS = ("values", "weights", "lengths", "offsets")
SHOWN = 8  # bags of a feature, and ids of a bag, that are printed


def of_ragged(tensor: RaggedTensor, place: str) -> tuple[Tensor, Tensor]:
    """The values and row splits of a `RaggedTensor` whose rows are bags, as tensors that share its memory."""
    values = tensor.values
    if isinstance(values, RaggedTensor) or len(values.shape) != 1:
        raise InvalidArgumentError(
            f"{place} is a ragged tensor whose rows are not vectors; a bag is a row of ids. Pass one ragged dimension.",
            code="wrong-rank",
            argument=place,
        )
    if not isinstance(values, Tensor):
        values = torch.from_numpy(arrays.settle(arrays.adopt(values)))
    return values, torch.from_numpy(tensor.row_splits).to(values.device)


class JaggedTensor:
    """The ids of one feature: a bag of any length for each example.

    Parameters
    ----------
    values : tensor, shape [N]
        The ids of all bags, one after the other.
    weights : float, shape [N], optional
        The weight of each id.
    lengths : int32 or int64, shape [batch], optional
        How many ids each bag has.
    offsets : int32 or int64, shape [batch + 1], optional
        Where each bag begins, followed by the number of ids. Pass `lengths` or `offsets`.

    Examples
    --------
    >>> import torch
    >>> from rowgrad.torch import JaggedTensor
    >>> jagged = JaggedTensor(torch.tensor([7, 7, 42]), lengths=torch.tensor([2, 0, 1]))
    >>> jagged.offsets().tolist()
    [0, 2, 2, 3]
    >>> [bag.tolist() for bag in jagged.to_dense()]
    [[7, 7], [], [42]]
    """

    def __init__(
        self,
        values: Tensor,
        weights: Tensor | None = None,
        lengths: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> None:
        _check(values, weights, lengths, offsets)
        self._values, self._weights, self._lengths, self._offsets = values, weights, lengths, offsets

    def values(self) -> Tensor:
        """The ids of all bags, one after the other."""
        return self._values

    def weights(self) -> Tensor:
        """The weight of each id. Raises if there are none."""
        if self._weights is None:
            raise InvalidArgumentError(
                f"this {type(self).__name__} has no weights. Make it with weights=…, or call weights_or_none().",
                code="missing-argument",
                argument="weights",
            )
        return self._weights

    def weights_or_none(self) -> Tensor | None:
        """The weight of each id, or None."""
        return self._weights

    def lengths(self) -> Tensor:
        """How many ids each bag has."""
        if self._lengths is None:
            assert self._offsets is not None
            made = self._offsets.diff()
            if not _outlives_transforms(made):
                return made
            self._lengths = made
        return self._lengths

    def lengths_or_none(self) -> Tensor | None:
        """The lengths, if they were given or computed."""
        return self._lengths

    def offsets(self) -> Tensor:
        """Where each bag begins, followed by the number of ids."""
        if self._offsets is None:
            assert self._lengths is not None
            made = _offsets_of(self._lengths)
            if not _outlives_transforms(made):
                return made
            self._offsets = made
        return self._offsets

    def offsets_or_none(self) -> Tensor | None:
        """The offsets, if they were given or computed."""
        return self._offsets

    def device(self) -> torch.device:
        """The device of the ids."""
        return self._values.device

    def to_dense(self) -> list[Tensor]:
        """The bags, as a list of tensors."""
        return list(self._values.split(self.lengths().tolist()))

    def to_dense_weights(self) -> list[Tensor] | None:
        """The weights of each bag, or None."""
        return None if self._weights is None else list(self._weights.split(self.lengths().tolist()))

    def to(self, device: Any, non_blocking: bool = False, dtype: torch.dtype | None = None) -> Any:
        """Copy to another device; `dtype` applies to the weights."""
        moved = [None if each is None else each.to(device, non_blocking=non_blocking) for each in self._tensors()]
        if dtype is not None and moved[1] is not None:
            moved[1] = moved[1].to(dtype)
        return self._like(moved)

    def pin_memory(self) -> Any:
        """Copy to pinned memory, from which a GPU can copy asynchronously."""
        return self._like([None if each is None else each.pin_memory() for each in self._tensors()])

    def __str__(self) -> str:
        return f"JaggedTensor({bags_text(self._values, self.offsets())})"

    def __repr__(self) -> str:
        size = self.lengths().shape[0]
        return f"JaggedTensor(batch={size}, values={short(self._values)}, weights={short(self._weights)})"

    def _tensors(self) -> list[Tensor | None]:
        return [self._values, self._weights, self._lengths, self._offsets]

    def _like(self, tensors: Sequence[Any]) -> Any:
        """With other tensors in the place of these; nothing is checked, as they may stand for tensors."""
        return jagged(tensors)


def _outlives_transforms(made: Tensor) -> bool:
    """Whether a tensor can be kept: one that was made inside `torch.func.grad` or `vmap` is dead outside of it."""
    if torch.compiler.is_compiling():
        return True
    return type(made) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(made)


def _offsets_of(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])


def _check(values: Any, weights: Any, lengths: Any, offsets: Any) -> None:
    if lengths is None and offsets is None:
        raise InvalidArgumentError(
            "there are neither lengths nor offsets. Pass lengths, the number of ids of each bag, or offsets, where "
            "each bag begins and the last one ends.",
            code="missing-argument",
            argument="lengths",
        )
    check_vector("values", values, None)
    for name, value, dtypes in (
        ("weights", weights, None),
        ("lengths", lengths, INTEGERS),
        ("offsets", offsets, INTEGERS),
    ):
        if value is not None:
            check_vector(name, value, dtypes)
    if weights is not None and weights.shape != values.shape:
        raise InvalidArgumentError(
            f"weights has length {weights.shape[0]}, but values has {values.shape[0]}; each id needs one weight.",
            code="length-mismatch",
            argument="weights",
            value=weights.shape[0],
        )
    if lengths is not None and offsets is not None and offsets.shape[0] != lengths.shape[0] + 1:
        raise InvalidArgumentError(
            f"offsets has length {offsets.shape[0]}, but lengths has {lengths.shape[0]}; offsets has one more. Pass "
            "one of them.",
            code="length-mismatch",
            argument="offsets",
            value=offsets.shape[0],
        )
    if lengths is None and offsets.shape[0] == 0:
        raise InvalidArgumentError(
            "offsets is empty; it begins with 0 and ends with the number of ids. Pass at least [0].",
            code="bad-offset",
            argument="offsets",
        )


def check_vector(name: str, value: Any, dtypes: tuple[torch.dtype, ...] | None) -> None:
    """`value` must be a tensor with one dimension, of one of the types."""
    if not isinstance(value, Tensor):
        raise DTypeError(
            f"{name} is a {type(value).__name__}; it must be a tensor. Pass torch.tensor(…).",
            code="wrong-dtype",
            argument=name,
            value=type(value).__name__,
        )
    if value.dim() != 1:
        raise InvalidArgumentError(
            f"{name} has shape {list(value.shape)}; it must be a vector. Reshape it.",
            code="wrong-rank",
            argument=name,
            value=tuple(value.shape),
        )
    if dtypes is not None and value.dtype not in dtypes:
        allowed = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
        raise DTypeError(
            f"{name} is {str(value.dtype).removeprefix('torch.')}; allowed: {allowed}. Convert it first.",
            code="wrong-dtype",
            argument=name,
            value=str(value.dtype),
        )


def bags_text(values: Tensor, offsets: Tensor) -> str:
    """The first bags, and the first ids of each."""
    ends = offsets[: SHOWN + 1].tolist()
    bags = []
    for begin, end in pairwise(ends):
        more = ", …" if end - begin > SHOWN else ""
        bags.append(f"[{', '.join(map(str, values[begin : min(end, begin + SHOWN)].tolist()))}{more}]")
    rest = offsets.shape[0] - len(ends)
    return f"[{', '.join(bags)}{f', … {rest} more' if rest > 0 else ''}]"


# For torch.compile, torch.export and tree_map. Leaves may be anything, so nothing is checked.


def jagged(tensors: Any, context: Any = None) -> JaggedTensor:
    """A `JaggedTensor` of values, weights, lengths and offsets that are known to fit."""
    made = JaggedTensor.__new__(JaggedTensor)
    made._values, made._weights, made._lengths, made._offsets = tensors
    return made


as_tree(JaggedTensor, FIELDS, lambda each: None, jagged)
