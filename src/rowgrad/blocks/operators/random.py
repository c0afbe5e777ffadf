"""Random numbers that a seed decides: the same bits everywhere, TensorFlow's for uniform numbers.

The words are those of Philox (`_random`), with the key and the counter that TensorFlow makes of a seed. Normal numbers
are made of them as TensorFlow does, in float32 or float64; logarithm, sine and cosine are NumPy's.
"""

from functools import partial
from math import prod
from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import Known, Result, ask, fresh, sizes
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import IDS, Array
from rowgrad.blocks._random import philox
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE
from rowgrad.errors import InvalidArgumentError

FAMILY = "random"
CHUNK = 1 << 18  # counters at a time, so that memory stays small
SCRAMBLE = (0x3EC8F720, 0x02461E29)
LOW = 0xFFFFFFFF


def _words(seed: Array, first: int, count: int) -> Array:
    """The words of `count` counters from `first` on, uint32 [count, 4]."""
    one, other = (int(number) & 0xFFFFFFFFFFFFFFFF for number in seed.tolist())
    start = np.array([[one & LOW, one >> 32, other & LOW, other >> 32]], np.uint64)
    mixed = [int(word) for word in philox(SCRAMBLE, start)[0]]
    counters = np.empty((count, 4), np.uint64)
    places = np.arange(first, first + count, dtype=np.uint64)
    counters[:, 0], counters[:, 1] = places & np.uint64(LOW), places >> np.uint64(32)
    counters[:, 2], counters[:, 3] = mixed[2], mixed[3]
    return philox((mixed[0], mixed[1]), counters)


def _uniform32(words: Array) -> Array:
    """In [0, 1): 23 bits of each word are the fraction of a number in [1, 2)."""
    return ((words & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)).view(np.float32) - np.float32(1)


def _uniform64(words: Array) -> Array:
    """In [0, 1), of two words each: 52 bits are the fraction of a number in [1, 2)."""
    high, low = words[:, 0::2].astype(np.uint64) & np.uint64(0xFFFFF), words[:, 1::2].astype(np.uint64)
    return ((np.uint64(1023) << np.uint64(52)) | (high << np.uint64(32)) | low).view(np.float64) - 1.0


def _normal(uniform: Array, least: Any) -> Array:
    """Two normal numbers of each two uniform ones, by Box and Muller."""
    kind = uniform.dtype.type
    radius = np.sqrt(kind(-2) * np.log(np.maximum(uniform[:, 0::2], kind(least))))
    angle = (2 * np.pi * uniform[:, 1::2].astype(np.float64)).astype(kind)  # rounded once, as in TensorFlow
    both = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=2)
    return both.reshape(len(uniform), -1)


def _draw(kind: str, shape: Array, seed: Array, *, dtype: str = "float32") -> Array:
    result = fresh(ask(_shaped, {"shape": shape, "seed": seed}), dtypes.NUMPY[dtype], "shape")
    flat, at, counter = result.reshape(-1), 0, 0
    total = prod(result.shape)
    while at < total:
        words = _words(seed, counter, min(CHUNK, total - at + 8))
        counter += len(words)
        numbers = _uniform64(words) if dtype == "float64" else _uniform32(words)
        if kind != "uniform":
            numbers = _normal(numbers, 1e-7)
        found = numbers.reshape(-1)
        if kind == "truncated":
            found = found[np.abs(found) < 2]
        part = found[: total - at]
        flat[at : at + len(part)] = part
        at += len(part)
    return result


def _shaped(shapes: Known, values: Known, _: Any) -> Result:
    if shapes.get("seed") not in (None, (2,)) and shapes["seed"] != (None,):
        raise InvalidArgumentError(f"seed has shape {list(shapes['seed'])}; it must be two whole numbers.",
                                   code="wrong-shape", argument="seed", value=shapes["seed"])  # fmt: skip
    return {"output": sizes("shape", shapes, values)}


WHAT = {
    "uniform": ("StatelessRandomUniform", "Random numbers from 0 to less than 1, all equally likely.",
                "output[…] = a number in [0, 1)", True),
    "normal": ("StatelessRandomNormal", "Random numbers with mean 0 and standard deviation 1.",
               "output[…] = a standard normal number", True),
    "truncated": ("StatelessTruncatedNormal", "Standard normal numbers between −2 and 2; others are drawn again.",
                  "output[…] = a standard normal number in (−2, 2)", False),
}  # fmt: skip
EXAMPLES = {
    "uniform": [0.8440604, 0.1920453],
    "normal": [0.54411, 0.20738],
    "truncated": [0.54411, 0.20738],
}
for _kind, (_name, _summary, _formula, _is_same) in WHAT.items():
    declare(Operator(
        name=_name,
        function=None,
        family=FAMILY,
        summary=_summary,
        inputs=(
            Pin("shape", "T", "[rank]", "The shape of the result."),
            Pin("seed", "Tseed", "[2]", "The seed: two integers."),
        ),
        outputs=(Pin("output", "dtype", "[...]", "The random numbers."),),
        types={"T": IDS, "Tseed": IDS, "dtype": ("float32", "float64")},
        formula=_formula,
        errors=("InvalidArgumentError: shape is not a vector or has a negative size, or seed is not two numbers",
                WRONG_TYPE, TOO_LARGE),
        cost="O(elements of the result).",
        example=Example({"shape": [2], "seed": [1, 2]}, {"output": EXAMPLES[_kind]}),
        compute=partial(_draw, _kind),
        attributes=(Attribute("dtype", "float32", "The type of the result.", kind="dtype"),),
        shape_rule=_shaped,
        in_tensorflow=_is_same,
        notes="The same seed always gives the same numbers. "
        + ("They equal TensorFlow's, normal ones up to the rounding of logarithm, sine and cosine." if _is_same
           else "TensorFlow's operator draws other numbers.")
        + " Multiply and add to get other ranges: 0.1 · output − 0.05.",
    ))  # fmt: skip
