"""The recorded TensorFlow answers: reading them, and comparing with them.

The file holds a header, then a case a line. `tests/record_golden.py` writes it from an installed TensorFlow.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
FILE = Path(__file__).parent / "data" / "tensorflow-2.21.jsonl"

# TensorFlow shows its quantised types to NumPy as structures of one field.
QUANTISED = {
    name: np.dtype([(name, base)])
    for name, base in [
        ("qint8", np.int8),
        ("quint8", np.uint8),
        ("qint16", np.int16),
        ("quint16", np.uint16),
        ("qint32", np.int32),
    ]
}
DTYPES = QUANTISED | {
    "string": np.dtype(object),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


SUMMED = ("indices", "grad_values")


@dataclass(frozen=True)
class Case:
    """One call, and what TensorFlow made of it: one of `out`, `error` and `undefined`."""

    id: str
    op: str
    tags: list[str]
    args: dict[str, Any]  # arrays, or lists of them
    attrs: dict[str, Any] = field(default_factory=dict)
    cmp: str = "bits"
    out: dict[str, Array] | None = None
    error: str | None = None
    undefined: dict[str, Any] | None = None

    @property
    def terms(self) -> int:
        """No sum of this case holds more numbers than this."""
        return max([1, *(np.size(array) for name, array in self.args.items() if name in SUMMED and self.plain)])

    @property
    def plain(self) -> bool:
        """Whether it takes arrays only, no lists of them."""
        return not any(isinstance(value, list) for value in self.args.values())


def dtype(name: str) -> np.dtype[Any]:
    return DTYPES.get(name) or np.dtype(name)


def dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return dtype.names[0]
    return "string" if dtype.kind == "O" else dtype.name


def decode(tensor: Any) -> Any:
    if isinstance(tensor, list):
        return [decode(each) for each in tensor]
    kind, shape = dtype(tensor["dtype"]), tuple(tensor["shape"])
    if "b64" in tensor:
        return np.frombuffer(base64.b64decode(tensor["b64"]), kind.newbyteorder("<")).reshape(shape).copy()
    if kind.kind == "O":
        array = np.empty(len(tensor["list"]), object)
        array[:] = [text.encode(tensor.get("encoding", "utf-8")) for text in tensor["list"]]
        return array.reshape(shape)
    if kind.names:
        return np.array(tensor["list"], kind[0]).view(kind).reshape(shape)
    return np.array(tensor["list"], kind).reshape(shape)


def encode(array: Any) -> Any:
    """The opposite of `decode`: lists where a reader can read them, bytes where rounding would matter."""
    if isinstance(array, list):
        return [encode(each) for each in array]
    name = dtype_name(array.dtype)
    tensor: dict[str, Any] = {"dtype": name, "shape": list(array.shape)}
    flat = array.reshape(-1)
    if name == "string":
        try:
            tensor["list"] = [value.decode() for value in flat.tolist()]
        except UnicodeDecodeError:
            tensor |= {"encoding": "latin-1", "list": [value.decode("latin-1") for value in flat.tolist()]}
    elif array.dtype.names:
        tensor["list"] = flat.view(array.dtype[0]).tolist()
    elif array.dtype.kind in "iub":
        tensor["list"] = flat.tolist()
    elif name == "float8_e5m2":
        tensor["list"] = flat.astype(np.float32).astype(int).tolist()
    else:
        tensor["b64"] = base64.b64encode(np.ascontiguousarray(flat).tobytes()).decode()
    return tensor


def snake_case(op: str) -> str:
    """SparseSegmentSqrtNGradV2 → sparse_segment_sqrt_n_grad_v2; the two forward forms share one function."""
    words = re.findall(r"SqrtN|[A-Z][a-z]+|V2", op.removesuffix("WithNumSegments"))
    return "_".join("sqrt_n" if word == "SqrtN" else word.lower() for word in words)


def read_lines() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the cases as they are written."""
    header, *cases = (json.loads(line) for line in FILE.read_text().splitlines())
    return header, cases


def as_case(line: dict[str, Any]) -> Case:
    return Case(
        id=line["id"],
        op=line["op"],
        tags=line["tags"],
        args={name: decode(tensor) for name, tensor in line["args"].items()},
        attrs=line.get("attrs", {}),
        cmp=line.get("cmp", "bits"),
        out={name: decode(tensor) for name, tensor in line["out"].items()} if "out" in line else None,
        error=line["error"]["class"] if "error" in line else None,
        undefined=line.get("undefined"),
    )


def load() -> list[Case]:
    return [as_case(line) for line in read_lines()[1]]


# ---------------------------------------------------------------- comparing

# Where TensorFlow flushes subnormals to zero, the results may differ by this much.
FLUSHED = {"float32": 1.2e-38, "bfloat16": 1.2e-38, "float64": 2.3e-308}
APPROXIMATE = {"float32": 1e-6, "float64": 1e-6, "float16": 2e-3, "bfloat16": 2e-3}


def parts(array: Array) -> Array:
    """Complex numbers as pairs of real ones, so that each part is compared on its own."""
    array = np.ascontiguousarray(array).reshape(-1)
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def words(array: Array) -> Array:
    """The bytes of each element, one row an element."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def assert_same(expected: Array, actual: Any, cmp: str = "bits", terms: int = 1) -> None:
    """Same dtype, same shape, same values: `bits`, or `nan`, `ftz`, `approx`, each looser than the last.

    `terms` says how many numbers one sum may hold: each of them may have been flushed.
    """
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if expected.size == 0:
        return
    if expected.dtype.kind == "O":
        assert actual.tolist() == expected.tolist()
        return
    want, got = parts(expected), parts(actual)
    same = (words(want) == words(got)).all(axis=1)
    if cmp != "bits" and is_float(want):
        wide_want, wide_got = want.astype(np.float64), got.astype(np.float64)
        same |= np.isnan(wide_want) & np.isnan(wide_got)
        with np.errstate(invalid="ignore"):  # inf - inf, where the bits have already answered
            distance = np.abs(wide_want - wide_got)
        if cmp in ("ftz", "approx"):
            same |= distance <= terms * FLUSHED.get(dtype_name(want.dtype), 0.0)
        if cmp == "approx":
            same |= distance <= APPROXIMATE[dtype_name(want.dtype)] * np.abs(wide_want)
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, (
        f"{wrong.size} of {same.size} differ ({cmp}); at {wrong[:5].tolist()} "
        f"expected {want[wrong[:5]].tolist()}, got {got[wrong[:5]].tolist()}"
    )
