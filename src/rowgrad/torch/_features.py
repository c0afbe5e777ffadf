"""What a collection of tables is given, in any of its forms, as one vector of ids with one vector of offsets.

The forms are a `KeyedJaggedTensor`, rowgrad's or TorchRec's, and a dict of what one `EmbeddingBag` takes. Only shapes
are looked at, and the ends of the offsets of a dict; the rest is checked when it is used.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._jagged import INTEGERS, JaggedTensor, check_vector
from rowgrad.torch._keyed import no_such_key
from rowgrad.torch._keyed_jagged import KeyedJaggedTensor

FORMS = "a matrix of ids, (ids, offsets), (ids, offsets, weights), a JaggedTensor, or a jagged nested tensor"
LIKE_KEYED = ("keys", "values", "offsets", "weights_or_none")  # the methods that tell TorchRec's class


class Features(NamedTuple):
    """The ids of all bags, feature by feature; where each bag begins and the last one ends; a weight for each id."""

    values: Tensor
    offsets: Tensor
    weights: Tensor | None


class _Bags(NamedTuple):
    """One feature of a dict; `offsets` that were made here need no checks."""

    ids: Tensor
    offsets: Tensor
    weights: Tensor | None
    made: bool


def read(features: Any, names: list[str], weighted: bool) -> Features:
    """The bags of the features `names`, in this order, in whatever form they come."""
    if isinstance(features, KeyedJaggedTensor):
        return _read_keyed(features, names, weighted)
    if isinstance(features, Mapping):
        return _read_dict(features, names, weighted)
    if all(hasattr(features, name) for name in LIKE_KEYED):
        return _read_keyed(_adopted(features), names, weighted)
    raise DTypeError(
        f"features is a {type(features).__name__}; pass a KeyedJaggedTensor, or a dict whose values are {FORMS}.",
        code="wrong-dtype",
        argument="features",
        value=type(features).__name__,
    )


def _read_keyed(features: KeyedJaggedTensor, names: list[str], weighted: bool) -> Features:
    weights = features.weights_or_none() if weighted else None
    if weighted and weights is None:
        raise InvalidArgumentError(
            "features has no weights, but the collection was made with is_weighted=True. Pass weights, or leave "
            "is_weighted out.",
            code="missing-argument",
            argument="features",
        )
    if features.keys() == names:
        return Features(features.values(), features.offsets(), weights)
    index = {key: i for i, key in enumerate(features.keys())}
    for name in names:
        if name not in index:
            raise no_such_key("the collection's feature", name, features.keys())
    values, lengths, weights = features.chosen([index[name] for name in names])
    return Features(values, JaggedTensor(values, lengths=lengths).offsets(), weights if weighted else None)


def _adopted(features: Any) -> KeyedJaggedTensor:
    """TorchRec's class, recognised by its methods, as rowgrad's."""
    for name, remedy in (
        ("variable_stride_per_key", "its features have batches of different sizes"),
        ("inverse_indices_or_none", "it has inverse indices"),
    ):
        told = getattr(features, name, lambda: None)()
        if told is not None and told is not False:
            raise InvalidArgumentError(
                f"features is a {type(features).__name__} and {remedy}, which a collection does not take. Give all "
                "features the same batch, without deduplication.",
                code="wrong-argument",
                argument="features",
            )
    return KeyedJaggedTensor(features.keys(), features.values(), features.weights_or_none(), offsets=features.offsets())


def _read_dict(features: Mapping[str, Any], names: list[str], weighted: bool) -> Features:
    for name in names:
        if name not in features:
            raise no_such_key("the collection's feature", name, list(features))
    bags = {name: _one(name, features[name], weighted) for name in dict.fromkeys(names)}
    _check_batches(bags)
    if not torch.compiler.is_compiling():
        _check_ends(bags)
    parts, begins, before = [bags[name] for name in names], [], 0
    for each in parts:
        begins.append(each.offsets[:-1] + before)
        before += each.ids.shape[0]
    begins.append(torch.full((1,), before, dtype=torch.int64, device=begins[0].device))
    weights = torch.cat([each.weights for each in parts]) if weighted else None
    return Features(torch.cat([each.ids for each in parts]), torch.cat(begins), weights)


def _one(name: str, given: Any, weighted: bool) -> _Bags:
    """The bags of one feature, its offsets from 0 on."""
    place = f"features[{name!r}]"
    weights, made = None, False
    if isinstance(given, Tensor) and not given.is_nested:
        if given.dim() != 2:
            raise InvalidArgumentError(
                f"{place} has shape {list(given.shape)}; a tensor of ids is a matrix, a bag a row. Pass (ids, offsets) "
                "for bags of different lengths.",
                code="wrong-rank",
                argument=place,
                value=tuple(given.shape),
            )
        size, length = given.shape
        ids, made = given.reshape(-1), True
        offsets = torch.arange(size + 1, dtype=torch.int64, device=given.device) * length
    elif isinstance(given, tuple) and len(given) in (2, 3) and all(isinstance(each, Tensor) for each in given):
        ids, offsets, weights = (*given, None)[:3]
    elif isinstance(given, Tensor) or hasattr(given, "offsets"):  # a jagged tensor, PyTorch's or TorchRec's
        if isinstance(given, Tensor) and (given.layout is not torch.jagged or given.lengths() is not None):
            raise InvalidArgumentError(
                f"{place} is a nested tensor that is strided or has holes between its rows. Make it with "
                "layout=torch.jagged, and .contiguous() closes the holes.",
                code="wrong-layout",
                argument=place,
            )
        ids, offsets = given.values(), given.offsets()
        weights = getattr(given, "weights_or_none", lambda: None)()
    else:
        raise DTypeError(
            f"{place} is a {type(given).__name__}; pass {FORMS}.",
            code="wrong-dtype",
            argument=place,
            value=type(given).__name__,
        )
    check_vector(f"{place}, its ids,", ids, INTEGERS)
    check_vector(f"{place}, its offsets,", offsets, INTEGERS)
    if weights is not None and weights.shape != ids.shape:
        raise InvalidArgumentError(
            f"{place} has weights of shape {list(weights.shape)} and ids of shape {list(ids.shape)}; each id needs one "
            "weight.",
            code="wrong-shape",
            argument=place,
            value=tuple(weights.shape),
        )
    if weighted and weights is None:
        raise InvalidArgumentError(
            f"{place} has no weights, but the collection was made with is_weighted=True. Pass (ids, offsets, weights).",
            code="missing-argument",
            argument=place,
        )
    return _Bags(ids, offsets, weights, made)


def _check_batches(bags: dict[str, _Bags]) -> None:
    first, *others = bags
    for name in others:
        if bags[name].offsets.shape != bags[first].offsets.shape:
            raise InvalidArgumentError(
                f"features[{name!r}] has {bags[name].offsets.shape[0] - 1} bags, but features[{first!r}] has "
                f"{bags[first].offsets.shape[0] - 1}; each needs a bag for each example. Offsets end with the number "
                "of ids.",
                code="length-mismatch",
                argument=f"features[{name!r}]",
                value=bags[name].offsets.shape[0] - 1,
            )


def _check_ends(bags: dict[str, _Bags]) -> None:
    """Offsets begin and end where their ids do: else the ids of one feature would go to bags of another."""
    given = [name for name, each in bags.items() if not each.made]
    if not given:
        return
    begins = torch.cat([bags[name].offsets[:1] for name in given]).tolist()
    ends = torch.cat([bags[name].offsets[-1:] for name in given]).tolist()
    for i, name in enumerate(given):
        size = bags[name].ids.shape[0]
        if i >= len(begins) or begins[i] != 0 or ends[i] != size:
            raise InvalidArgumentError(
                f"the offsets of features[{name!r}] must begin with 0 and end with {size}, the number of ids, but are "
                f"{bags[name].offsets[:1].tolist()} to {bags[name].offsets[-1:].tolist()}. Append the number of ids "
                "if it is missing.",
                code="bad-offset",
                argument=f"features[{name!r}]",
            )
