"""Arrays of any framework: whatever a caller holds becomes an ndarray, without a copy where none is needed, and
results go back as the kind that came in.

Frameworks are recognised by the type of the array and found among the modules that are already loaded: whoever holds
a tensor has imported its framework, and rowgrad never does.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rowgrad._runtime.dtypes import BFLOAT16, Array
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError, RowgradError

SMALL_COPY = 1 << 14  # bytes that are copied faster than described
INT32_MAX = np.iinfo(np.int32).max
BFLOAT16_BITS = np.dtype(np.int16).str  # PyTorch's bfloat16 for NumPy, which has no name for it


class Kind(NamedTuple):
    """One framework: how its arrays become ndarrays, and back."""

    name: str
    adopt: Callable[[Any], Array]
    hand_back: Callable[[Array], Any]


def kind_of(value: Any) -> Kind | None:
    """The framework of `value`, or None for lists, numbers and strings, which belong to none."""
    cls = type(value)
    if cls not in _kinds:
        _kinds[cls] = _find_kind(cls)
    return _kinds[cls]


def _find_kind(cls: type) -> Kind | None:
    roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
    if "torch" in roots:
        return TORCH
    if "jax" in roots or "jaxlib" in roots:
        return JAX
    if "tensorflow" in roots:
        return TENSORFLOW
    if issubclass(cls, np.ndarray):
        return NUMPY
    if hasattr(cls, "__dlpack__"):
        return DLPACK
    return None


def adopt(value: Any) -> Array:
    """`value` as an ndarray; errors name no argument, the caller adds it."""
    kind = kind_of(value)
    if kind is not None:
        return kind.adopt(value)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"it cannot be read as an array ({_first_line(error)}). Lists must be nested evenly; `rowgrad.from_ragged` "
            "takes rows of different lengths.",
            code="not-an-array",
            value=type(value).__name__,
        ) from error
    if isinstance(value, list | tuple) and _tensorflow_records():
        _check_items(value, array.ndim)
    if array.dtype == object and array.ndim == 1 and array.size and isinstance(array[0], list | tuple | np.ndarray):
        raise _is_ragged(f"a {type(value).__name__} of lists")
    return array


def adopt_as(argument: str, value: Any) -> Array:
    """`adopt`, with errors that name the argument."""
    try:
        return adopt(value)
    except RowgradError as error:
        error.argument = argument
        error.message = f"{argument}: {error.message}"
        raise


def _is_ragged(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"it is {what}, with rows of different lengths. `ids, offsets = rowgrad.from_ragged(...)` takes it.",
        code="not-an-array",
        value=what,
    )


def settle(array: Array) -> Array:
    """An array as kernels are compiled for: C-contiguous, aligned, in this machine's byte order, writable.

    A read-only array that is not small is viewed as a writable array instead of being copied; kernels never write to
    inputs.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and array.dtype.isnative):
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
        flags = array.flags
    if flags.writeable or array.dtype.kind in "OT":  # text is not for kernels
        return array
    if array.nbytes <= SMALL_COPY:
        return array.copy()
    lent = np.asarray(_Writable(array))
    return lent if lent.dtype is array.dtype else lent.view(array.dtype)  # NumPy's own types come back as they are


class _Writable:
    """The memory of a read-only array, described as writable."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, array: Array) -> None:
        self._owner = array
        described = array.__array_interface__  # a new dict each time, and slow to make: asked for once
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


# NumPy


def _adopt_numpy(value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            "it is a masked array, and operators have no notion of a mask. Pass `.filled(...)` or `.compressed()`.",
            code="masked-array",
        )
    return np.asarray(value)


def _same(array: Array) -> Array:
    return array


# PyTorch


def _adopt_torch(value: Any) -> Array:
    try:
        typestr = _lent_types().get(value.dtype)
        if typestr is None or not _is_plain(value):
            return value.numpy()  # type: ignore[no-any-return]
        # `numpy()` would forbid PyTorch to resize this memory from then on, and so to free the gathered parameters of
        # `fully_shard`. Nothing keeps arrays of floats beyond a call; ids may be kept, in plans, and are pinned.
        array = np.asarray(_Memory(value, typestr))
        return array if typestr != BFLOAT16_BITS else array.view(BFLOAT16)
    except (TypeError, RuntimeError):  # what it is that NumPy cannot share is found out below
        return _adopt_odd_torch(value)


class _Memory:
    """The memory of a contiguous tensor, described to NumPy."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, tensor: Any, typestr: str) -> None:
        self._owner = tensor
        self.__array_interface__ = {
            "version": 3, "shape": tuple(tensor.shape), "typestr": typestr, "data": (tensor.data_ptr(), False),
        }  # fmt: skip


@cache
def _lent_types() -> dict[Any, str]:
    """The types of tensors whose memory is shared without `numpy()`, and NumPy's names of them."""
    torch = sys.modules["torch"]
    names = ("float16", "float32", "float64")
    return {getattr(torch, name): np.dtype(name).str for name in names} | {torch.bfloat16: BFLOAT16_BITS}


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor's memory holds its numbers row after row, and it needs no gradient."""
    torch = sys.modules["torch"]
    return (
        tensor.is_cpu
        and tensor.is_contiguous()
        and not (tensor.requires_grad and torch.is_grad_enabled())
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and not tensor.is_neg()
        and tensor.data_ptr() != 0  # which has nothing, or zeros that are nowhere
    )


def _adopt_odd_torch(value: Any) -> Array:
    torch = sys.modules["torch"]
    if value.device.type != "cpu":
        raise InvalidArgumentError(
            f"it is on the device {value.device}, and kernels run on the CPU. Pass `.cpu()`.",
            code="not-on-cpu",
            value=str(value.device),
        )
    if value.layout is not torch.strided or value.is_quantized:
        raise DTypeError("it is not a plain dense tensor. Pass its indices and values.", code="not-dense")
    if value.requires_grad and torch.is_grad_enabled():
        raise InvalidArgumentError(
            "it requires a gradient, which plain functions would lose. Pass `.detach()`, or call within `no_grad()`.",
            code="requires-grad",
        )
    value = value.detach().resolve_conj().resolve_neg()
    try:
        if value.dtype is torch.bfloat16:
            return value.contiguous().view(torch.int16).numpy().view(BFLOAT16)  # type: ignore[no-any-return]
        return value.numpy()  # type: ignore[no-any-return]
    except (TypeError, RuntimeError) as error:
        raise DTypeError(f"{_first_line(error)}.", code="wrong-dtype", value=str(value.dtype)) from error


def _to_torch(array: Array) -> Any:
    torch = sys.modules["torch"]
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


# JAX


def _adopt_jax(value: Any) -> Array:
    try:
        return np.asarray(value)
    except Exception as error:  # JAX has many classes for "this has no value yet"
        raise InvalidArgumentError(
            f"it has no value here ({_first_line(error)}). Call outside `jit`, `grad` and `vmap`.",
            code="no-value",
            value=type(value).__name__,
        ) from error


def _to_jax(array: Array) -> Any:
    jax = sys.modules["jax"]
    if array.dtype == np.int64 and not jax.config.jax_enable_x64:
        # JAX would cut 64-bit numbers to 32 bits, whatever they are.
        if array.size and not -INT32_MAX - 1 <= array.min() <= array.max() <= INT32_MAX:
            raise OutOfRangeError(
                "a result needs 64-bit integers, which this JAX cuts to 32 bits. Set `jax_enable_x64`.",
                code="needs-x64",
            )
        array = array.astype(np.int32)
    return jax.device_put(array)  # `asarray` would compile a program for each new shape


# TensorFlow


def _adopt_tensorflow(value: Any) -> Array:
    if hasattr(value, "numpy"):
        if _tensorflow_records():
            _check_unwatched(value)
        try:
            return np.asarray(value.numpy())
        except NotImplementedError:  # a variable within `tf.function`
            pass
    raise InvalidArgumentError(
        "it has no value here: it is a symbolic tensor. Call the function of `rowgrad.tensorflow`, or call eagerly, "
        "outside `tf.function`.",
        code="no-value",
        value=type(value).__name__,
    )


def _tensorflow_records() -> bool:
    """Whether a gradient tape or forward accumulator of this thread is recording."""
    # There is no public way to ask. Without a tape this is all that the check costs.
    record = sys.modules.get("tensorflow.python.eager.record")
    return record is not None and bool(record.could_possibly_record())


def _check_unwatched(value: Any) -> None:
    """Raise an error if a gradient would be lost; tapes watch variables when they are read."""
    tensor = sys.modules["tensorflow"].convert_to_tensor(getattr(value, "flat_values", value))  # of ragged tensors
    if not hasattr(tensor, "numpy"):  # symbolic, which the caller tells
        return
    record = sys.modules["tensorflow.python.eager.record"]
    if record.should_record_backprop([tensor]) or record.pywrap_tfe.TFE_Py_PackJVPs([tensor])[1]:
        raise InvalidArgumentError(
            "it is watched by a gradient tape or forward accumulator, and plain functions would lose its gradient. "
            "Call the function of `rowgrad.tensorflow`; or pass `tf.stop_gradient(...)` of it, or call within "
            "`tape.stop_recording()`.",
            code="requires-grad",
        )


def _check_items(values: Any, depth: int) -> None:
    for value in values:
        if kind_of(value) is TENSORFLOW:
            _check_unwatched(value)
        elif isinstance(value, list | tuple) and depth > 1:
            _check_items(value, depth - 1)


def _to_tensorflow(array: Array) -> Any:
    return sys.modules["tensorflow"].convert_to_tensor(array)


# Anything else that speaks DLPack


def _adopt_dlpack(value: Any) -> Array:
    is_arrow = type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "to_numpy")
    try:
        return np.asarray(value.to_numpy()) if is_arrow else np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if is_arrow:
            raise _not_lent_by_arrow(value) from error
        raise InvalidArgumentError(
            f"it cannot be shared by DLPack ({_first_line(error)}). Copy it to the CPU first.",
            code="not-on-cpu",
            value=type(value).__name__,
        ) from error


def _not_lent_by_arrow(value: Any) -> InvalidArgumentError:
    if hasattr(value, "flatten") and hasattr(value, "values"):
        return _is_ragged(f"a column of {value.type}")
    remedy = "Fill them, with fill_null(...)" if value.null_count else "Pass a column of numbers, or cast it"
    return InvalidArgumentError(
        f"it is a column of {value.type} with {value.null_count} nulls, not an array of numbers. {remedy}.",
        code="has-nulls" if value.null_count else "not-an-array",
        value=str(value.type),
    )


NUMPY = Kind("numpy", _adopt_numpy, _same)
TORCH = Kind("torch", _adopt_torch, _to_torch)
JAX = Kind("jax", _adopt_jax, _to_jax)
TENSORFLOW = Kind("tensorflow", _adopt_tensorflow, _to_tensorflow)
DLPACK = Kind("dlpack", _adopt_dlpack, _same)

_kinds: dict[type, Kind | None] = {}
