"""`KeyedJaggedTensor`: the ids of many features in one batch, with TorchRec's names and meaning.

It holds tensors and computes nothing but lengths and offsets of each other. What comes out of a collection of tables,
`KeyedTensor`, is in `_keyed.py`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rowgrad.errors import InvalidArgumentError
from rowgrad.torch._jagged import FIELDS, JaggedTensor, bags_text, jagged
from rowgrad.torch._keyed import as_tree, check_keys, no_such_key, short


class KeyedJaggedTensor(JaggedTensor):
    """The ids of several features for one batch: for each feature, a bag of any length for each example.

    Names and meaning are TorchRec's. Bags are ordered by feature: all bags of the first key, then all of the second.

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
        Where each bag begins, followed by the number of ids. Pass `lengths` or `offsets`.
    stride : int, optional
        The number of examples in the batch; by default it is computed from the lengths or offsets.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit each other, keys repeat, or there are neither lengths nor offsets.
    DTypeError
        An argument is not a tensor, or lengths or offsets are not integers.

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
                f"stride is {stride}, but there are {bags} bags for {count} keys. Leave stride out.",
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
        """Make one from lengths, and compute immediately what is derived from them."""
        return KeyedJaggedTensor(keys, values, weights, lengths=lengths, stride=stride).sync()

    @staticmethod
    def from_offsets_sync(
        keys: Sequence[str],
        values: Tensor,
        offsets: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
    ) -> "KeyedJaggedTensor":
        """Make one from offsets, and compute immediately what is derived from them."""
        return KeyedJaggedTensor(keys, values, weights, offsets=offsets, stride=stride).sync()

    @staticmethod
    def from_jt_dict(jt_dict: dict[str, JaggedTensor]) -> "KeyedJaggedTensor":
        """Make one from a dict of feature name to bags; all features have the same number of bags."""
        return KeyedJaggedTensor.concat([
            KeyedJaggedTensor([key], jagged.values(), jagged.weights_or_none(), lengths=jagged.lengths())
            for key, jagged in jt_dict.items()
        ])  # fmt: skip

    @staticmethod
    def concat(kjt_list: Sequence["KeyedJaggedTensor"]) -> "KeyedJaggedTensor":
        """Concatenate the features of several tensors of one batch."""
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
        """Make one without features."""
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
            self._length_per_key = self.lengths().view(-1, stride).sum(1).tolist()
        return self._length_per_key

    def length_per_key_or_none(self) -> list[int] | None:
        """`length_per_key`, if it was computed."""
        return self._length_per_key

    def offset_per_key(self) -> list[int]:
        """Where the ids of each feature begin in `values`, followed by the number of ids."""
        found = [0]
        for length in self.length_per_key():
            found.append(found[-1] + length)
        return found

    def sync(self) -> "KeyedJaggedTensor":
        """Compute the lengths of features now, and return self."""
        self.length_per_key()
        return self

    def unsync(self) -> "KeyedJaggedTensor":
        """Discard the computed lengths of features, and return self."""
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
        """Split into tensors with `segments[i]` features each, in order."""
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
        """Select the features with these positions, in this order."""
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
        """The values, lengths and weights of the features with these positions, which may repeat."""
        numbers = list(indices)
        first = numbers[0] if numbers else 0
        last = first + len(numbers)
        if numbers == list(range(first, last)):  # neighbours need no copy
            stride, ends = self.stride(), self.offset_per_key()
            weights = None if self._weights is None else self._weights[ends[first] : ends[last]]
            return self._values[ends[first] : ends[last]], self.lengths()[first * stride : last * stride], weights
        sizes, chosen = self._sizes(), torch.tensor(numbers, device=self.device())
        values = self._values.split(sizes)
        weights = None if self._weights is None else self._weights.split(sizes)
        return (
            torch.cat([values[number] for number in numbers]),
            self.lengths().view(len(self._keys), -1).index_select(0, chosen).view(-1),
            None if weights is None else torch.cat([weights[number] for number in numbers]),
        )

    def __str__(self) -> str:
        lines = [f'    "{key}": {bags_text(part.values(), part.offsets())},\n' for key, part in self.to_dict().items()]
        return "KeyedJaggedTensor({\n" + "".join(lines) + "})" if lines else "KeyedJaggedTensor({})"

    def __repr__(self) -> str:
        return (
            f"KeyedJaggedTensor(keys={self._keys!r}, stride={self.stride()}, values={short(self._values)}, "
            f"weights={short(self._weights)})"
        )

    def _part(self, indices: Sequence[int]) -> list[JaggedTensor]:
        stride, sizes = self.stride(), self._sizes()
        values, lengths = self._values.split(sizes), self.lengths().view(len(self._keys), stride)
        weights = None if self._weights is None else self._weights.split(sizes)
        return [jagged([values[i], None if weights is None else weights[i], lengths[i], None]) for i in indices]

    def _sizes(self) -> list[int]:
        """`length_per_key`, which is that of the values."""
        sizes = self.length_per_key()
        if not torch.compiler.is_compiling() and sum(sizes) != self._values.shape[0]:
            raise InvalidArgumentError(
                f"the lengths of all bags are {sum(sizes)} together, but values has {self._values.shape[0]} ids; each "
                "id is in one bag.",
                code="length-mismatch",
                argument="lengths",
                value=sum(sizes),
            )
        return sizes

    def _count_bags(self) -> int:
        # Not by int(…): exported code keeps sizes that may change.
        if self._lengths is not None:
            bags: int = self._lengths.shape[0]
        else:
            assert self._offsets is not None
            bags = self._offsets.shape[0] - 1
        return bags

    def _like(self, tensors: Sequence[Any]) -> Any:
        return _keyed_jagged(tensors, self._keys)


def _keyed_jagged(tensors: Any, keys: Any) -> KeyedJaggedTensor:
    """From the leaves of a tree, which may be anything: nothing is checked."""
    made = KeyedJaggedTensor.__new__(KeyedJaggedTensor)
    made._values, made._weights, made._lengths, made._offsets = tensors
    made._keys, made._length_per_key = list(keys), None
    return made


as_tree(KeyedJaggedTensor, FIELDS, lambda each: each._keys, _keyed_jagged)
