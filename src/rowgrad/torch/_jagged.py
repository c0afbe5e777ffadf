"""The ids of many features in one batch: `KeyedJaggedTensor`, and `JaggedTensor` for one feature, as TorchRec has them.

They hold tensors and compute nothing but lengths and offsets of each other. Constructors check types and shapes, which
costs nothing; ids and offsets themselves are checked where they are used, by the kernels. What comes out of a
collection of tables, `KeyedTensor`, is in `_keyed.py`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._keyed import check_keys, no_such_key, short

INTEGERS = (torch.int64, torch.int32)
SHOWN = 8  # bags of a feature, and ids of a bag, that are printed


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
        Where each bag begins, and the number of ids at the end. Either is enough.

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
        """The weight of each id; an error if there are none."""
        if self._weights is None:
            raise InvalidArgumentError(
                f"this {type(self).__name__} has no weights. Make it with weights=…, or ask for weights_or_none().",
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
            self._lengths = self._offsets.diff()
        return self._lengths

    def lengths_or_none(self) -> Tensor | None:
        """The lengths, if they were given or computed."""
        return self._lengths

    def offsets(self) -> Tensor:
        """Where each bag begins, and the number of ids at the end."""
        if self._offsets is None:
            assert self._lengths is not None
            self._offsets = _offsets_of(self._lengths)
        return self._offsets

    def offsets_or_none(self) -> Tensor | None:
        """The offsets, if they were given or computed."""
        return self._offsets

    def device(self) -> torch.device:
        """Where the ids are."""
        return self._values.device

    def to_dense(self) -> list[Tensor]:
        """The bags."""
        return list(self._values.split(self.lengths().tolist()))

    def to_dense_weights(self) -> list[Tensor] | None:
        """The weights of each bag, or None."""
        return None if self._weights is None else list(self._weights.split(self.lengths().tolist()))

    def to(self, device: Any, non_blocking: bool = False, dtype: torch.dtype | None = None) -> Any:
        """The same on another device; `dtype` is for the weights."""
        moved = [None if each is None else each.to(device, non_blocking=non_blocking) for each in self._tensors()]
        if dtype is not None and moved[1] is not None:
            moved[1] = moved[1].to(dtype)
        return self._like(moved)

    def pin_memory(self) -> Any:
        """The same in memory that a GPU can copy from while the CPU goes on."""
        return self._like([None if each is None else each.pin_memory() for each in self._tensors()])

    def __str__(self) -> str:
        return f"JaggedTensor({_bags_text(self._values, self.offsets())})"

    def __repr__(self) -> str:
        size = self.lengths().shape[0]
        return f"JaggedTensor(batch={size}, values={short(self._values)}, weights={short(self._weights)})"

    def _tensors(self) -> list[Tensor | None]:
        return [self._values, self._weights, self._lengths, self._offsets]

    def _like(self, tensors: Sequence[Any]) -> Any:
        """With other tensors in the place of these; nothing is checked, as they may stand for tensors."""
        return _jagged(tensors, None)


class KeyedJaggedTensor(JaggedTensor):
    """The ids of several features for one batch: for each feature, a bag of any length for each example.

    Names and meaning are TorchRec's. Bags stand feature by feature: all bags of the first key, then all of the second.

    Parameters
    ----------
    keys : list of str
        The features.
    values : int32 or int64, shape [N]
        The ids of all bags, one after the other.
    weights : float, shape [N], optional
        The weight of each id.
    lengths : int32 or int64, shape [keys · batch], optional
        How many ids each bag has.
    offsets : int32 or int64, shape [keys · batch + 1], optional
        Where each bag begins, and the number of ids at the end. Either is enough.
    stride : int, optional
        The number of examples in the batch, which the lengths or offsets tell too.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit each other, keys repeat, or there are neither lengths nor offsets.
    DTypeError
        Something is no tensor, or lengths or offsets are no whole numbers.

    Examples
    --------
    >>> import torch
    >>> from rowgrad.torch import KeyedJaggedTensor
    >>> features = KeyedJaggedTensor(
    ...     keys=["user", "items"],
    ...     values=torch.tensor([4, 5, 6, 1, 1, 0]),
    ...     lengths=torch.tensor([1, 1, 1, 2, 0, 1]),
    ... )
    >>> features.stride(), features.length_per_key()
    (3, [3, 3])
    >>> print(features)
    KeyedJaggedTensor({
        "user": [[4], [5], [6]],
        "items": [[1, 1], [], [0]],
    })
    """

    def __init__(
        self,
        keys: Sequence[str],
        values: Tensor,
        weights: Tensor | None = None,
        lengths: Tensor | None = None,
        offsets: Tensor | None = None,
        stride: int | None = None,
    ) -> None:
        self._keys = check_keys(keys)
        super().__init__(values, weights, lengths, offsets)
        count = len(self._keys)
        bags = self._count_bags()
        if bags % max(count, 1) or (count == 0 and bags):
            given = "lengths" if lengths is not None else "offsets"
            raise InvalidArgumentError(
                f"{given} describes {bags} bags, but there are {count} keys, which have equally many each. Pass "
                f"keys · batch {'lengths' if lengths is not None else 'offsets, and the number of ids behind them'}.",
                code="length-mismatch",
                argument=given,
                value=bags,
            )
        if stride is not None and stride * count != bags:
            raise InvalidArgumentError(
                f"stride is {stride}, but there are {bags} bags of {count} keys. Leave stride out.",
                code="length-mismatch",
                argument="stride",
                value=stride,
            )
        self._length_per_key: list[int] | None = None

    @staticmethod
    def from_lengths_sync(
        keys: Sequence[str],
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
    ) -> "KeyedJaggedTensor":
        """From lengths; what is derived from them is computed at once."""
        return KeyedJaggedTensor(keys, values, weights, lengths=lengths, stride=stride).sync()

    @staticmethod
    def from_offsets_sync(
        keys: Sequence[str],
        values: Tensor,
        offsets: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
    ) -> "KeyedJaggedTensor":
        """From offsets; what is derived from them is computed at once."""
        return KeyedJaggedTensor(keys, values, weights, offsets=offsets, stride=stride).sync()

    @staticmethod
    def from_jt_dict(jt_dict: dict[str, JaggedTensor]) -> "KeyedJaggedTensor":
        """From the bags of each feature, which are equally many."""
        return KeyedJaggedTensor.concat([
            KeyedJaggedTensor([key], jagged.values(), jagged.weights_or_none(), lengths=jagged.lengths())
            for key, jagged in jt_dict.items()
        ])  # fmt: skip

    @staticmethod
    def concat(kjt_list: Sequence["KeyedJaggedTensor"]) -> "KeyedJaggedTensor":
        """The features of several, of one batch, in one."""
        if not kjt_list:
            raise InvalidArgumentError(
                "kjt_list is empty. Pass at least one KeyedJaggedTensor, or use KeyedJaggedTensor.empty().",
                code="missing-argument",
                argument="kjt_list",
            )
        first = kjt_list[0]
        for i, each in enumerate(kjt_list):
            if each.stride() != first.stride():
                raise InvalidArgumentError(
                    f"kjt_list[{i}] has {each.stride()} examples, but kjt_list[0] has {first.stride()}; they must be "
                    "of one batch.",
                    code="length-mismatch",
                    argument="kjt_list",
                    position=i,
                    value=each.stride(),
                )
            if (each._weights is None) != (first._weights is None):
                raise InvalidArgumentError(
                    f"kjt_list[{i}] has {'no ' * (each._weights is None)}weights, unlike kjt_list[0]; either all have "
                    "weights, or none.",
                    code="wrong-argument",
                    argument="kjt_list",
                    position=i,
                )
        return KeyedJaggedTensor(
            [key for each in kjt_list for key in each._keys],
            torch.cat([each._values for each in kjt_list]),
            None if first._weights is None else torch.cat([each.weights() for each in kjt_list]),
            lengths=torch.cat([each.lengths() for each in kjt_list]),
        )

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: Any = None,
        values_dtype: torch.dtype = torch.int64,
        weights_dtype: torch.dtype | None = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> "KeyedJaggedTensor":
        """Without features."""
        weights = torch.empty(0, dtype=weights_dtype, device=device) if is_weighted else None
        values = torch.empty(0, dtype=values_dtype, device=device)
        return KeyedJaggedTensor([], values, weights, lengths=torch.empty(0, dtype=lengths_dtype, device=device))

    def keys(self) -> list[str]:
        """The features."""
        return self._keys

    def stride(self) -> int:
        """The number of examples in the batch."""
        return self._count_bags() // len(self._keys) if self._keys else 0

    def stride_per_key(self) -> list[int]:
        """The number of examples of each feature: the same for all."""
        return [self.stride()] * len(self._keys)

    def length_per_key(self) -> list[int]:
        """How many ids each feature has, in all its bags."""
        if self._length_per_key is None:
            stride = self.stride()
            if not stride:
                return [0] * len(self._keys)
            if self._offsets is not None:
                ends = self._offsets[::stride].diff()
            else:
                ends = self.lengths().view(-1, stride).sum(1)
            self._length_per_key = ends.tolist()
        return self._length_per_key

    def length_per_key_or_none(self) -> list[int] | None:
        """`length_per_key`, if it was computed."""
        return self._length_per_key

    def offset_per_key(self) -> list[int]:
        """Where the ids of each feature begin in `values`, and their number at the end."""
        found = [0]
        for length in self.length_per_key():
            found.append(found[-1] + length)
        return found

    def sync(self) -> "KeyedJaggedTensor":
        """Compute the lengths of features now, and give itself."""
        self.length_per_key()
        return self

    def unsync(self) -> "KeyedJaggedTensor":
        """Forget the lengths of features, and give itself."""
        self._length_per_key = None
        return self

    def __getitem__(self, key: str) -> JaggedTensor:
        if key not in self._keys:
            raise no_such_key("key", key, self._keys)
        (found,) = self._part([self._keys.index(key)])
        return found

    def to_dict(self) -> dict[str, JaggedTensor]:
        """The bags of each feature."""
        return dict(zip(self._keys, self._part(range(len(self._keys))), strict=True))

    def split(self, segments: Sequence[int]) -> list["KeyedJaggedTensor"]:
        """Several with `segments[i]` features each, in order."""
        if any(segment < 0 for segment in segments) or sum(segments) > len(self._keys):
            raise InvalidArgumentError(
                f"segments is {list(segments)}; they must be 0 or more, and in all at most the {len(self._keys)} keys.",
                code="wrong-argument",
                argument="segments",
                value=list(segments),
            )
        ends = [sum(segments[: i + 1]) for i in range(len(segments))]
        return [self.permute(range(end - segment, end)) for segment, end in zip(segments, ends, strict=True)]

    def permute(self, indices: Sequence[int], indices_tensor: Tensor | None = None) -> "KeyedJaggedTensor":
        """The features with these numbers, in this order; those that are left out, are left out."""
        for i, index in enumerate(indices):
            if not 0 <= index < len(self._keys):
                raise InvalidArgumentError(
                    f"indices[{i}] is {index}; allowed: 0 to {len(self._keys) - 1}, one for each key.",
                    code="index-out-of-range",
                    argument="indices",
                    position=i,
                    value=index,
                )
        values, lengths, weights = self.chosen(indices)
        return KeyedJaggedTensor([self._keys[index] for index in indices], values, weights, lengths=lengths)

    def chosen(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The values, lengths and weights of the features with these numbers; a number may repeat."""
        parts = self._part(indices)
        if not parts:
            return self._values[:0], self.lengths()[:0], None if self._weights is None else self._weights[:0]
        if list(indices) == list(range(indices[0], indices[0] + len(parts))):  # neighbours need no copy
            stride, ends = self.stride(), self.offset_per_key()
            first, last = indices[0], indices[-1] + 1
            weights = None if self._weights is None else self._weights[ends[first] : ends[last]]
            return self._values[ends[first] : ends[last]], self.lengths()[first * stride : last * stride], weights
        return (
            torch.cat([part.values() for part in parts]),
            torch.cat([part.lengths() for part in parts]),
            None if self._weights is None else torch.cat([part.weights() for part in parts]),
        )

    def __str__(self) -> str:
        lines = [f'    "{key}": {_bags_text(part.values(), part.offsets())},\n' for key, part in self.to_dict().items()]
        return "KeyedJaggedTensor({\n" + "".join(lines) + "})" if lines else "KeyedJaggedTensor({})"

    def __repr__(self) -> str:
        return (
            f"KeyedJaggedTensor(keys={self._keys!r}, stride={self.stride()}, values={short(self._values)}, "
            f"weights={short(self._weights)})"
        )

    def _part(self, indices: Sequence[int]) -> list[JaggedTensor]:
        stride, sizes = self.stride(), self.length_per_key()
        values, lengths = self._values.split(sizes), self.lengths().view(len(self._keys), stride)
        weights = None if self._weights is None else self._weights.split(sizes)
        return [_jagged([values[i], None if weights is None else weights[i], lengths[i], None], None) for i in indices]

    def _count_bags(self) -> int:
        if self._lengths is not None:
            return int(self._lengths.shape[0])
        assert self._offsets is not None
        return max(int(self._offsets.shape[0]) - 1, 0)

    def _like(self, tensors: Sequence[Any]) -> Any:
        return _keyed_jagged(tensors, self._keys)


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


def _bags_text(values: Tensor, offsets: Tensor) -> str:
    """The first bags, and the first ids of each."""
    ends = offsets[: SHOWN + 1].tolist()
    bags = []
    for begin, end in pairwise(ends):
        more = ", …" if end - begin > SHOWN else ""
        bags.append(f"[{', '.join(map(str, values[begin : min(end, begin + SHOWN)].tolist()))}{more}]")
    rest = offsets.shape[0] - len(ends)
    return f"[{', '.join(bags)}{f', … {rest} more' if rest > 0 else ''}]"


# For torch.compile, torch.export and tree_map. Leaves may be anything, so nothing is checked.


def _jagged(tensors: Any, context: Any) -> JaggedTensor:
    made = JaggedTensor.__new__(JaggedTensor)
    made._values, made._weights, made._lengths, made._offsets = tensors
    return made


def _keyed_jagged(tensors: Any, keys: Any) -> KeyedJaggedTensor:
    made = KeyedJaggedTensor.__new__(KeyedJaggedTensor)
    made._values, made._weights, made._lengths, made._offsets = tensors
    made._keys, made._length_per_key = list(keys), None
    return made


pytree.register_pytree_node(
    JaggedTensor, lambda each: (each._tensors(), None), _jagged, serialized_type_name="rowgrad.torch.JaggedTensor"
)
pytree.register_pytree_node(
    KeyedJaggedTensor,
    lambda each: (each._tensors(), each._keys),
    _keyed_jagged,
    serialized_type_name="rowgrad.torch.KeyedJaggedTensor",
)
