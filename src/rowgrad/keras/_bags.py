"""What a Keras layer is given, in any of its forms, as ids and the bag of each."""

from importlib import import_module
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError

BACKENDS = ("tensorflow", "torch", "jax")
NAME = "EmbeddingBag"
NARROW = ("int8", "int16", "uint8", "uint16")  # whose ids are all int32's


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
    form = _form(inputs)
    if form is None:
        return _of_matrix(_tensor("inputs", inputs), weights)
    check_rank(inputs.shape)
    values, places = _parts(form, inputs)
    check_ids(keras.backend.standardize_dtype(values.dtype))
    if len(values.shape) != 1:
        raise _wrong_rank(list(values.shape))
    flat = None if weights is None else _weights(form, weights, values, places)
    number = inputs.shape[0]
    if form == "RaggedTensor":
        return Bags(_wide(values), inputs.value_rowids(), inputs.nrows(), flat, True)
    if form == "SparseTensor":
        return Bags(_wide(values), places[:, 0], inputs.dense_shape[0], flat, False)
    if form == "nested":
        return Bags(_wide(values), _rows_of(places), places.shape[0] - 1, flat, True)
    if form == "coo":
        return Bags(_wide(values), places[0], number, flat, False)
    # Entries of a BCOO that only pad have an index past the end, which is the bag that is dropped.
    return Bags(_wide(values), ops.minimum(places[:, 0], number), number, flat, False)


def check_bits(inputs: Any) -> None:
    """JAX cuts NumPy's 64-bit ids to 32 bits unless told otherwise, and a large id becomes a valid one."""
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind not in "iu" or inputs.itemsize < 8 or not inputs.size:
        return
    if keras.backend.backend() != "jax" or import_module("jax").config.jax_enable_x64:
        return
    limits = np.iinfo(np.int32)
    if int(inputs.max()) > limits.max or int(inputs.min()) < limits.min:
        raise OutOfRangeError(
            "inputs needs 64-bit integers, which this JAX cuts to 32 bits. Set `jax_enable_x64`.",
            code="index-out-of-range",
            argument="inputs",
            op=NAME,
        )


def check_rank(shape: Any) -> None:
    """Ids have two dimensions, bags and ids."""
    rank = shape.rank if hasattr(shape, "rank") else len(shape)
    if rank != 2:
        raise _wrong_rank("an unknown number of dimensions" if rank is None else list(shape))


def check_ids(dtype: str) -> None:
    """Ids are integers."""
    if "int" not in dtype:
        raise DTypeError(
            f"inputs is {dtype}; ids are integers. Convert them with keras.ops.cast, or hash them with "
            "rowgrad.keras.Hashing.",
            code="wrong-dtype",
            argument="inputs",
            value=dtype,
            op=NAME,
        )


def check_weights(dtype: str) -> None:
    """Weights are real numbers."""
    if "float" not in dtype and "int" not in dtype and dtype != "bool":
        raise DTypeError(
            f"weights is {dtype}; weights are real numbers. Convert them with keras.ops.cast.",
            code="wrong-dtype",
            argument="weights",
            value=dtype,
            op=NAME,
        )


def same_shape(found: Any, wanted: Any) -> None:
    """Each id needs one weight; dimensions that are not known yet are not compared."""
    found, wanted = tuple(found), tuple(wanted)
    if len(found) != len(wanted) or any(a != b for a, b in zip(found, wanted, strict=True) if None not in (a, b)):
        raise InvalidArgumentError(
            f"weights has shape {list(found)}, but inputs has {list(wanted)}; each id needs one weight.",
            code="wrong-shape",
            argument="weights",
            value=found,
            op=NAME,
        )


def _of_matrix(ids: Any, weights: Any) -> Bags:
    check_rank(ids.shape)
    check_ids(keras.backend.standardize_dtype(ids.dtype))
    bags, length = ops.shape(ids)
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(bags, dtype="int32"), 1), (bags, length))
    if weights is not None:
        weights = _tensor("weights", weights)
        check_weights(keras.backend.standardize_dtype(weights.dtype))
        same_shape(weights.shape, ids.shape)
        weights = ops.reshape(weights, (-1,))
    return Bags(_wide(ops.reshape(ids, (-1,))), ops.reshape(rows, (-1,)), bags, weights, True)


def _form(given: Any) -> str | None:
    """Which kind of ragged or sparse tensor it is, or None."""
    kind = type(given).__name__
    if kind in ("RaggedTensor", "SparseTensor", "BCOO"):
        return kind
    if getattr(given, "is_nested", False):
        return "nested"
    if getattr(given, "is_sparse", False):
        return "coo"
    layout = str(getattr(given, "layout", ""))
    if layout.startswith("torch.sparse"):
        raise InvalidArgumentError(
            f"inputs has the layout {layout}; the sparse tensors that are taken are torch.sparse_coo. Pass "
            ".to_sparse_coo().",
            code="wrong-layout",
            argument="inputs",
            value=layout,
            op=NAME,
        )
    return None


def _parts(form: str, given: Any) -> tuple[Any, Any]:
    """The values, and what tells their places: row splits, or indices."""
    if form == "RaggedTensor":
        return given.values, given.row_splits
    if form == "SparseTensor":
        return given.values, given.indices
    if form == "BCOO":
        return given.data, given.indices
    return (given.values(), given.offsets()) if form == "nested" else (given._values(), given._indices())


def _rows_of(offsets: Any) -> Any:
    import torch

    return torch.repeat_interleave(torch.arange(offsets.numel() - 1, device=offsets.device), offsets.diff())


def _weights(form: str, weights: Any, ids: Any, places: Any) -> Any:
    """The weights of ids that are not a matrix: in the same form, or flat, in the order of the ids."""
    if _form(weights) == form:
        values, found = _parts(form, weights)
        if not (_is_traced(found) or _is_traced(places)) and not np.array_equal(
            ops.convert_to_numpy(found), ops.convert_to_numpy(places)
        ):
            raise InvalidArgumentError(
                "weights has its entries at other places than inputs; each id needs one weight. Pass weights with the "
                "row splits, or the indices, of inputs, or flat ones in the order of the ids.",
                code="wrong-shape",
                argument="weights",
                op=NAME,
            )
    else:
        values = ops.reshape(_tensor("weights", weights), (-1,))
    check_weights(keras.backend.standardize_dtype(values.dtype))
    same_shape(values.shape, ids.shape)
    return values


def _is_traced(tensor: Any) -> bool:
    """Whether a tensor has no values yet."""
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        return bool(torch.compiler.is_compiling())
    return "Tracer" in type(tensor).__name__ if backend == "jax" else not hasattr(tensor, "numpy")


def _tensor(argument: str, given: Any) -> Any:
    """A plain tensor of the backend."""
    try:
        return ops.convert_to_tensor(given)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise DTypeError(
            f"{argument} is a {type(given).__name__} that {keras.backend.backend()} makes no tensor of: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}. Pass an array of numbers.",
            code="wrong-type",
            argument=argument,
            value=type(given).__name__,
            op=NAME,
        ) from error


def _wide(ids: Any) -> Any:
    """Ids of a type that kernels take. Narrower ones would let a large unsigned id wrap around to a valid one."""
    dtype = keras.backend.standardize_dtype(ids.dtype)
    return ids if dtype in ("int32", "int64") else ops.cast(ids, "int32" if dtype in NARROW else "int64")


def _wrong_rank(found: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"inputs has {found if isinstance(found, str) else f'shape {found}'}; it must be a matrix with a bag in each "
        "row, or a ragged or sparse tensor of two dimensions. Reshape it.",
        code="wrong-rank",
        argument="inputs",
        value=found if isinstance(found, str) else tuple(found),
        op=NAME,
    )
