"""What the portable families share: the types that sums are made in, and how wrong input is found and reported."""

from typing import Any, NoReturn

import torch

from rowgrad._ops import OPERATORS

_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that values of `dtype` are summed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def signed(values: Any) -> Any:
    """Unsigned integers under a signed name: sums modulo 2^bits are the same, and PyTorch has operators for them."""
    return values.view(_SIGNED[values.dtype]) if values.dtype in _SIGNED else values


def zeros(rows: int, like: Any) -> Any:
    """Room for sums of rows as long as those of `like`."""
    return like.new_zeros((rows, *like.shape[1:]), dtype=wide(like.dtype))


def per_row(factors: Any, rows: Any) -> Any:
    """One factor per row, shaped so that it multiplies each element of its row."""
    return factors.reshape(-1, *(1,) * (rows.dim() - 1))


def outside(ids: Any, limit: int) -> Any:
    """Whether an id is out of range; the answer stays on the device."""
    return ((ids < 0) | (ids >= limit)).any()


def complain(name: str, *values: Any) -> NoReturn:
    """Raise what the operator `name` says of these values on the CPU: same class, same words.

    Values are left where they are; of tables and gradients only the number of rows goes there.
    """
    plain = []
    for fitter, value in zip(OPERATORS[name].fitters, values, strict=True):
        if not isinstance(value, torch.Tensor):
            plain.append(value)
        elif fitter.is_ids or value.dim() == 0 or not value.dtype.is_floating_point:
            plain.append(value.detach().cpu())
        else:
            columns = (0,) * (value.dim() > 1 and fitter.pin.shape.endswith("...]"))
            shape = (value.shape[0], *columns) if columns else tuple(value.shape)
            plain.append(torch.zeros(shape, dtype=value.dtype))
    with torch.no_grad():
        OPERATORS[name](*plain)
    raise RuntimeError(f"{name} rejected input on a device that it accepts on the CPU; please report this")
