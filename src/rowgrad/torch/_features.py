"""What a collection of tables is given, in any of its forms, as one vector of ids with one vector of offsets.

The forms are a `KeyedJaggedTensor`, rowgrad's or TorchRec's, and a dict of what one `EmbeddingBag` takes. Only shapes
are looked at, and the ends of the offsets of a dict; the rest is checked when it is used.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rowgrad._ops.ragged_tensor import RaggedTensor
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.torch._jagged import INTEGERS, JaggedTensor, check_vector, of_ragged
from rowgrad.torch._keyed import no_such_key
from rowgrad.torch._keyed_jagged import KeyedJaggedTensor

FORMS = (
    "a matrix of ids, (ids, offsets), (ids, offsets, weights), a JaggedTensor, a RaggedTensor, or a jagged nested "
    "tensor"
)
LIKE_KEYED = ("keys", "values", "offsets", "weights_or_none")  # the methods that tell TorchRec's class


class Features(NamedTuple):
    """The ids of all bags, feature by feature; where each bag begins and the last one ends; a weight for each id."""

    values: Tensor
    offsets: Tensor
    weights: Tensor | None


class _Bags(NamedTuple):
    """One feature of a dict; a matrix of ids has a length for all its bags, and no offsets."""

    ids: Tensor
    count: int  # type: ignore[assignment]  # hides the method of tuples, which is not used here
    length: int
    offsets: Tensor | None
    weights: Tensor | None


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
    parts = [bags[name] for name in names]
    count = parts[0].count
    for name, each in bags.items():
        if each.count != count:
            raise InvalidArgumentError(
                f"features[{name!r}] has {each.count} bags, but features[{names[0]!r}] has {count}; each needs a bag "
                "for each example. Offsets end with the number of ids.",
                code="length-mismatch",
                argument=f"features[{name!r}]",
                value=each.count,
            )
    values = torch.cat([each.ids for each in parts])
    weights = torch.cat([each.weights for each in parts]) if weighted else None
    return Features(values, _joined(names, parts, count, values), weights)


def _joined(names: list[str], parts: list[_Bags], count: int, values: Tensor) -> Tensor:
    """The offsets of all features, in few operations however many there are."""
    device, kind = values.device, torch.int64
    first = torch.tensor([0, *(each.ids.shape[0] for each in parts[:-1])], dtype=kind, device=device).cumsum(0)
    steps = torch.arange(count + 1, dtype=kind, device=device)
    if all(each.offsets is None for each in parts):
        own = steps * torch.tensor([each.length for each in parts], dtype=kind, device=device)[:, None]
    else:
        rows = [steps * each.length if each.offsets is None else each.offsets for each in parts]
        own = torch.cat(rows).view(len(parts), count + 1)
        if not torch.compiler.is_compiling():
            _check_ends(names, parts, own)
    begins = (own[:, :-1] + first[:, None]).reshape(-1)
    return torch.cat([begins, torch.full((1,), values.shape[0], dtype=kind, device=device)])


def _one(name: str, given: Any, weighted: bool) -> _Bags:
    """The bags of one feature, its offsets from 0 on."""
    place = f"features[{name!r}]"
    weights = None
    if isinstance(given, RaggedTensor):
        given = of_ragged(given, place)
    if isinstance(given, Tensor) and not given.is_nested:
        if given.dim() != 2:
            raise InvalidArgumentError(
                f"{place} has shape {list(given.shape)}; a tensor of ids is a matrix, a bag a row. Pass (ids, offsets) "
                "for bags of different lengths.",
                code="wrong-rank",
                argument=place,
                value=tuple(given.shape),
            )
        _check_type(place, given)
        return _Bags(given.reshape(-1), given.shape[0], given.shape[1], None, _needed(place, None, weighted))
    if isinstance(given, tuple) and len(given) in (2, 3) and all(isinstance(each, Tensor) for each in given):
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
    if offsets.shape[0] == 0:
        raise InvalidArgumentError(
            f"{place} has offsets without elements; they begin with 0 and end with the number of ids. Pass at least "
            "[0].",
            code="bad-offset",
            argument=place,
        )
    return _Bags(ids, offsets.shape[0] - 1, 0, offsets, _needed(place, weights, weighted))


def _check_type(place: str, ids: Tensor) -> None:
    if ids.layout is not torch.strided:
        raise InvalidArgumentError(
            f"{place} has the layout {ids.layout}; a matrix of ids is dense. Pass (ids, offsets) for bags of different "
            "lengths.",
            code="wrong-layout",
            argument=place,
            value=str(ids.layout),
        )
    if ids.dtype not in INTEGERS:
        check_vector(f"{place}, its ids,", ids.reshape(-1), INTEGERS)


def _needed(place: str, weights: Tensor | None, weighted: bool) -> Tensor | None:
    if weighted and weights is None:
        raise InvalidArgumentError(
            f"{place} has no weights, but the collection was made with is_weighted=True. Pass (ids, offsets, weights).",
            code="missing-argument",
            argument=place,
        )
    return weights


def _check_ends(names: list[str], parts: list[_Bags], own: Tensor) -> None:
    """Offsets begin and end where their ids do: else the ids of one feature would go to bags of another."""
    begins, ends = own[:, 0].tolist(), own[:, -1].tolist()
    for name, each, begin, end in zip(names, parts, begins, ends, strict=True):
        if begin != 0 or end != each.ids.shape[0]:
            raise InvalidArgumentError(
                f"the offsets of features[{name!r}] must begin with 0 and end with {each.ids.shape[0]}, the number of "
                f"ids, but are {begin} to {end}. Append the number of ids if it is missing.",
                code="bad-offset",
                argument=f"features[{name!r}]",
            )
