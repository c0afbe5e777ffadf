"""`KeyedTensor`: what a collection of tables gives, the pooled rows of all features side by side; TorchRec's names."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from rowgrad.errors import DTypeError, InvalidArgumentError


class KeyedTensor:
    """Tensors concatenated along one dimension, each with a key: for example the pooled rows of each feature.

    Parameters
    ----------
    keys : list of str
        The name of each part.
    length_per_key : list of int
        How wide each part is.
    values : tensor, shape [batch, Σ lengths]
        All parts.
    key_dim : int
        The dimension along which the parts are concatenated.

    Raises
    ------
    InvalidArgumentError
        Lengths, keys and values do not fit each other, or keys repeat.
    DTypeError
        `values` is not a tensor.

    Examples
    --------
    >>> import torch
    >>> from rowgrad.torch import KeyedTensor
    >>> pooled = KeyedTensor(["user", "items"], [1, 2], torch.tensor([[1, 2, 3], [4, 5, 6]]))
    >>> pooled["items"].tolist()
    [[2, 3], [5, 6]]
    >>> [group.tolist() for group in KeyedTensor.regroup([pooled], [["items", "user"]])]
    [[[2, 3, 1], [5, 6, 4]]]
    """

    def __init__(self, keys: Sequence[str], length_per_key: Sequence[int], values: Tensor, key_dim: int = 1) -> None:
        self._keys, self._length_per_key, self._values, self._key_dim = (
            check_keys(keys), list(length_per_key), values, key_dim,
        )  # fmt: skip
        if not isinstance(values, Tensor):
            raise DTypeError(
                f"values is a {type(values).__name__}; it must be a tensor.",
                code="wrong-dtype",
                argument="values",
                value=type(values).__name__,
            )
        if len(self._length_per_key) != len(self._keys):
            raise InvalidArgumentError(
                f"length_per_key has length {len(self._length_per_key)}, but keys has {len(self._keys)}; each key "
                "needs one length.",
                code="length-mismatch",
                argument="length_per_key",
                value=len(self._length_per_key),
            )
        if not -values.dim() <= key_dim < values.dim() or values.shape[key_dim] != sum(self._length_per_key):
            raise InvalidArgumentError(
                f"values has shape {list(values.shape)}; dimension {key_dim} must have {sum(self._length_per_key)} "
                "elements, the sum of length_per_key.",
                code="wrong-shape",
                argument="values",
                value=tuple(values.shape),
            )

    @staticmethod
    def from_tensor_list(keys: Sequence[str], tensors: Sequence[Tensor], key_dim: int = 1) -> "KeyedTensor":
        """Concatenate tensors along `key_dim`."""
        return KeyedTensor(keys, [each.shape[key_dim] for each in tensors], torch.cat(list(tensors), key_dim), key_dim)

    def keys(self) -> list[str]:
        """The name of each part."""
        return self._keys

    def values(self) -> Tensor:
        """All parts, as one tensor."""
        return self._values

    def key_dim(self) -> int:
        """The dimension along which the parts are concatenated."""
        return self._key_dim

    def device(self) -> torch.device:
        """The device of the values."""
        return self._values.device

    def length_per_key(self) -> list[int]:
        """How wide each part is."""
        return self._length_per_key

    def offset_per_key(self) -> list[int]:
        """Where each part begins, followed by the total width."""
        found = [0]
        for length in self._length_per_key:
            found.append(found[-1] + length)
        return found

    def __getitem__(self, key: str) -> Tensor:
        if key not in self._keys:
            raise no_such_key("key", key, self._keys)
        index = self._keys.index(key)
        return self._values.narrow(self._key_dim, sum(self._length_per_key[:index]), self._length_per_key[index])

    def to_dict(self) -> dict[str, Tensor]:
        """The parts by their keys."""
        return dict(zip(self._keys, self._values.split(self._length_per_key, self._key_dim), strict=True))

    def to(self, device: Any, non_blocking: bool = False) -> "KeyedTensor":
        """Copy to another device."""
        return _keyed([self._values.to(device, non_blocking=non_blocking)], self._context())

    @staticmethod
    def regroup(keyed_tensors: Sequence["KeyedTensor"], groups: Sequence[Sequence[str]]) -> list[Tensor]:
        """For each group, concatenate the parts that it names, in its order."""
        parts: dict[str, Tensor] = {}
        for each in keyed_tensors:
            parts.update(each.to_dict())
        for i, group in enumerate(groups):
            for j, key in enumerate(group):
                if key not in parts:
                    raise no_such_key(f"groups[{i}][{j}]", key, list(parts))
        dim = keyed_tensors[0].key_dim() if keyed_tensors else 1
        return [torch.cat([parts[key] for key in group], dim) for group in groups]

    @staticmethod
    def regroup_as_dict(
        keyed_tensors: Sequence["KeyedTensor"], groups: Sequence[Sequence[str]], keys: Sequence[str]
    ) -> dict[str, Tensor]:
        """`regroup`, with a name for each group."""
        if len(groups) != len(keys):
            raise InvalidArgumentError(
                f"keys has length {len(keys)}, but groups has {len(groups)}; each group needs a name.",
                code="length-mismatch",
                argument="keys",
                value=len(keys),
            )
        return dict(zip(keys, KeyedTensor.regroup(keyed_tensors, groups), strict=True))

    def __repr__(self) -> str:
        widths = ", ".join(f"{key}: {width}" for key, width in zip(self._keys, self._length_per_key, strict=True))
        return f"KeyedTensor({{{widths}}}, values={short(self._values)})"

    def _context(self) -> tuple[list[str], list[int], int]:
        return self._keys, self._length_per_key, self._key_dim


class _NoSuchKey(InvalidArgumentError, KeyError):
    """As a dict would raise it, with the keys that there are."""


def no_such_key(argument: str, key: Any, keys: list[str]) -> InvalidArgumentError:
    """The error for a key that is none of `keys`."""
    return _NoSuchKey(
        f"{argument} is {key!r}; the keys are {', '.join(map(repr, keys)) or 'none'}.",
        code="unknown-key",
        argument=argument,
        value=key,
    )


def check_keys(keys: Sequence[str]) -> list[str]:
    """`keys` as a list, each once."""
    found = list(keys)
    if len(set(found)) != len(found):
        position = next(i for i, key in enumerate(found) if key in found[:i])
        raise InvalidArgumentError(
            f"keys[{position}] is {found[position]!r}, and so is keys[{found.index(found[position])}]; each key may "
            "occur once. Rename one of them.",
            code="repeated-key",
            argument="keys",
            position=position,
            value=found[position],
        )
    return found


def short(tensor: Any) -> str:
    """Type and shape of a tensor, for texts that read no values."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}" if isinstance(tensor, Tensor) else "None"


def keyed(keys: list[str], lengths: list[int], values: Tensor) -> KeyedTensor:
    """A `KeyedTensor` of parts that are known to fit."""
    return _keyed([values], (keys, lengths, 1))


def _keyed(tensors: Any, context: Any) -> KeyedTensor:
    made = KeyedTensor.__new__(KeyedTensor)
    (made._values,) = tensors
    made._keys, made._length_per_key, made._key_dim = context
    return made


def as_tree(cls: type, fields: Sequence[str], context: Callable[[Any], Any], make: Callable[[Any, Any], Any]) -> None:
    """Let torch.compile, torch.export and tree_map see the tensors of a class; `make` checks none of them."""

    def flatten(each: Any) -> tuple[list[Any], Any]:
        return [getattr(each, f"_{name}") for name in fields], context(each)

    def with_names(each: Any) -> tuple[list[tuple[Any, Any]], Any]:
        leaves, told = flatten(each)
        return [(pytree.GetAttrKey(name), leaf) for name, leaf in zip(fields, leaves, strict=True)], told

    pytree.register_pytree_node(
        cls, flatten, make, serialized_type_name=f"rowgrad.torch.{cls.__name__}", flatten_with_keys_fn=with_names
    )


as_tree(KeyedTensor, ["values"], KeyedTensor._context, _keyed)
