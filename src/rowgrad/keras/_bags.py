"""What a Keras layer is given, in any of its forms, as ids and the bag of each."""

from importlib import import_module
from typing import Any, NamedTuple

import keras
from keras import ops

from rowgrad.errors import DTypeError, InvalidArgumentError

BACKENDS = ("tensorflow", "torch", "jax")
NAME = "EmbeddingBag"


class Bags(NamedTuple):
    """Flat ids, the bag of each, how many bags there are, a weight for each id, or None.

    `is_sorted` says whether the bags come in order. Ids that stand for nothing are in one bag more than there are.
    """

    ids: Any
    segment_ids: Any
    number: Any
    weights: Any
    is_sorted: bool


def front_end() -> Any:
    """The front end for the backend that Keras runs on."""
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise InvalidArgumentError(
            f"Keras runs on {backend}; rowgrad runs on {', '.join(BACKENDS)}. Set KERAS_BACKEND to one of these.",
            code="unknown-backend",
            argument="backend",
            value=backend,
        )
    return import_module(f"rowgrad.{backend}")


def read(inputs: Any, weights: Any) -> Bags:
    """The bags in whatever form they come: a matrix, a ragged, a sparse or a jagged nested tensor."""
    kind = type(inputs).__name__
    if kind in ("RaggedTensor", "SparseTensor"):
        return _check(_of_tensorflow(kind, inputs, weights))
    if getattr(inputs, "is_nested", False):
        return _check(_of_nested(inputs, weights))
    if getattr(inputs, "is_sparse", False):
        return _check(_of_coo(inputs, weights))
    if kind == "BCOO":
        return _check(_of_bcoo(inputs, weights))
    ids = ops.convert_to_tensor(inputs)
    if len(ids.shape) != 2:
        raise InvalidArgumentError(
            f"inputs has shape {list(ids.shape)}; it must be a matrix with a bag in each row, or a ragged or sparse "
            "tensor of two dimensions. Reshape it.",
            code="wrong-rank",
            argument="inputs",
            value=tuple(ids.shape),
            op=NAME,
        )
    bags, length = ops.shape(ids)
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(bags, dtype="int32"), 1), (bags, length))
    if weights is not None:
        _same_shape(tuple(weights.shape), tuple(ids.shape))
        weights = ops.reshape(weights, (-1,))
    return _check(Bags(ops.reshape(ids, (-1,)), ops.reshape(rows, (-1,)), bags, weights, True))


def _of_tensorflow(kind: str, inputs: Any, weights: Any) -> Bags:
    if inputs.shape.rank != 2:
        raise InvalidArgumentError(
            f"inputs has {inputs.shape.rank} dimensions; a ragged or sparse tensor of ids has two, bags and ids.",
            code="wrong-rank",
            argument="inputs",
            op=NAME,
        )
    values = None if weights is None else _flat(weights, "values")
    if kind == "RaggedTensor":
        return Bags(inputs.values, inputs.value_rowids(), inputs.nrows(), values, True)
    return Bags(inputs.values, inputs.indices[:, 0], inputs.dense_shape[0], values, False)


def _of_nested(inputs: Any, weights: Any) -> Bags:
    import torch

    offsets = inputs.offsets()
    number = offsets.numel() - 1
    rows = torch.repeat_interleave(torch.arange(number, device=offsets.device), offsets.diff())
    return Bags(inputs.values(), rows, number, None if weights is None else _flat(weights, "values"), True)


def _of_coo(inputs: Any, weights: Any) -> Bags:
    return Bags(inputs._values(), inputs._indices()[0], inputs.shape[0],
                None if weights is None else _flat(weights, "_values"), False)  # fmt: skip


def _of_bcoo(inputs: Any, weights: Any) -> Bags:
    # Entries that only pad have an index past the end, which is the bag that is dropped.
    return Bags(inputs.data, ops.minimum(inputs.indices[:, 0], inputs.shape[0]), inputs.shape[0],
                None if weights is None else _flat(weights, "data"), False)  # fmt: skip


def _flat(weights: Any, name: str) -> Any:
    """The weights of ids that are not a matrix: in the same form, or flat, in the order of the ids."""
    found = getattr(weights, name, None)
    if found is None or (not hasattr(weights, "indices") and not getattr(weights, "is_nested", True)):
        return ops.reshape(weights, (-1,))
    return found() if callable(found) else found


def _same_shape(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    if len(found) != len(wanted) or any(a != b for a, b in zip(found, wanted, strict=True) if None not in (a, b)):
        raise InvalidArgumentError(
            f"weights has shape {list(found)}, but inputs has {list(wanted)}; each id needs one weight.",
            code="wrong-shape",
            argument="weights",
            value=found,
            op=NAME,
        )


def _check(bags: Bags) -> Bags:
    dtype = keras.backend.standardize_dtype(bags.ids.dtype)
    if "int" not in dtype:
        raise DTypeError(
            f"inputs is {dtype}; ids are integers. Convert them with keras.ops.cast, or hash them with "
            "rowgrad.keras.Hashing.",
            code="wrong-dtype",
            argument="inputs",
            value=dtype,
            op=NAME,
        )
    return bags if dtype in ("int32", "int64") else bags._replace(ids=ops.cast(bags.ids, "int32"))
