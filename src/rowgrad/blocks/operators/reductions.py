"""Sums over dimensions: ReduceSum, ReduceMean, Softmax and LogSoftmax, MatMul.

Half and bfloat16 are summed in float32 and rounded once, where TensorFlow rounds more often.
"""

from functools import partial
from math import prod
from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import Known, Result, ask, distinct_axes, fresh, listed, of_rank
from rowgrad._ops.catalogue import Attribute, Example, Operator, Rule
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import same_size
from rowgrad._runtime.dtypes import FLOATS, IDS, NUMBERS, Array
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import NARROW, REAL_ONLY, TOO_LARGE, WRONG_TYPE, wide
from rowgrad.errors import InvalidArgumentError


def _reduce(mean: bool, input: Array, axis: Array, *, keep_dims: bool = False) -> Array:
    shape = ask(_reduced, {"input": input, "axis": axis}, keep_dims=keep_dims)
    axes = distinct_axes("axis", axis, input.ndim)
    whole = input.dtype.kind in "iu"
    sums: Any = np.float32 if input.dtype in NARROW else input.dtype
    if mean and whole:
        sums = np.uint64 if input.dtype.kind == "u" else np.int64
    count = prod(input.shape[axis] for axis in axes)
    with np.errstate(all="ignore"):
        total = np.asarray(np.add.reduce(input, axis=axes, dtype=sums)).reshape(shape)
        if mean and not whole:
            total = total / total.dtype.type(count)
        elif mean:
            divisor = total.dtype.type(max(count, 1))
            total = (total - np.fmod(total, divisor)) // divisor
        return np.asarray(total).astype(input.dtype, copy=False)


def _reduced(shapes: Known, values: Known, attributes: Known) -> Result:
    before, axis = shapes.get("input"), shapes.get("axis")
    if axis is not None and len(axis) > 1:
        of_rank("axis", axis, 1)
    if before is None:
        return {"output": None}
    keep = attributes.get("keep_dims", False)
    if "axis" in values:
        axes = distinct_axes("axis", values["axis"], len(before))
        kept = ((1 if d in axes else size) for d, size in enumerate(before) if keep or d not in axes)
        return {"output": tuple(kept)}
    if keep:
        return {"output": (None,) * len(before)}
    count = 1 if axis == () else axis[0] if axis else None
    return {"output": (None,) * max(len(before) - count, 0) if isinstance(count, int) else None}


def _shifted(logits: Array) -> Array:
    """The logits less the largest of each row, so that exp does not overflow."""
    logits = wide(logits)
    return logits - logits.max(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def softmax(logits: Array) -> Array:
    """In the type that sums are made in."""
    powers = np.exp(_shifted(logits))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def log_softmax(logits: Array) -> Array:
    """In the type that sums are made in."""
    shifted = _shifted(logits)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # type: ignore[no-any-return]


def _by_rows(function: Any, logits: Array) -> Array:
    ask(partial(_rows, "output"), {"logits": logits})
    result = fresh(logits.shape, logits.dtype)
    if result.size:
        with np.errstate(all="ignore"):
            np.copyto(result, function(logits), casting="same_kind")
    return result


def _rows(output: str, shapes: Known, _: Any, __: Any) -> Result:
    shape = shapes.get("logits")
    if shape == ():
        raise InvalidArgumentError(
            "logits is a scalar; it must have at least one dimension, the classes. Reshape it.",
            code="wrong-rank",
            argument="logits",
            value=(),
        )
    return {output: shape}


def _matmul(a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    shape = ask(_product, {"a": a, "b": b}, transpose_a=transpose_a, transpose_b=transpose_b)
    left, right = wide(a.T if transpose_a else a), wide(b.T if transpose_b else b)
    product = fresh(shape, left.dtype)
    with np.errstate(all="ignore"):
        np.matmul(left, right, out=product)
        return product.astype(a.dtype, copy=False)


def _product(shapes: Known, _: Any, attributes: Known) -> Result:
    a, b = (of_rank(name, shapes.get(name), 2) for name in ("a", "b"))
    rows, inner = a[::-1] if attributes.get("transpose_a") else a
    other, columns = b[::-1] if attributes.get("transpose_b") else b
    if same_size(inner, other) is False:
        raise InvalidArgumentError(
            f"a has shape {listed(a)}{_turned(attributes, 'a')} and b has {listed(b)}{_turned(attributes, 'b')}: the "
            f"columns of a are {inner}, the rows of b {other}; they must be equal. Transpose or reshape one of them.",
            code="shape-mismatch",
            argument="b",
            value=b,
        )
    return {"product": (rows, columns)}


def _turned(attributes: Known, name: str) -> str:
    return " transposed" if attributes.get(f"transpose_{name}") else ""


# Declarations

AXIS = Pin("axis", "Tidx", "[...]", "The dimensions to reduce: a scalar or a vector; negative ones count from the end.")
KEEP_DIMS = Attribute("keep_dims", False, "Whether to keep them, with size 1.")


def _spread(op: Any, gradient: Any, input: Any, axis: Any) -> Any:
    """The gradient of a result, repeated for all that went into it."""
    return op.BroadcastTo(op.Reshape(gradient, op.Shape(op.ReduceSum(input, axis, keep_dims=True))), op.Shape(input))


def _of_each(op: Any, d_output: Any, input: Any, output: Any, T: Any) -> Any:
    """The share of one element of the input; their number is exact in float64, whatever the type."""
    sizes = [op.Cast(op.Size(array, out_type="int64"), DstT="float64") for array in (input, output)]
    return op.Div(d_output, op.Cast(op.Div(*sizes), DstT=T))


GRADIENTS: dict[str, Rule] = {
    "Sum": lambda op, d_output, input, axis: _spread(op, d_output, input, axis),
    "Mean": lambda op, d_output, input, output, axis, T: _spread(
        op, _of_each(op, d_output, input, output, T), input, axis
    ),
}
NOTES = {
    "Sum": "Of nothing it is 0. Whole numbers wrap around where the type ends, as in TensorFlow.",
    "Mean": "Of nothing it is NaN, or 0 in types of whole numbers (in TensorFlow in complex ones too). That of whole "
    "numbers is rounded towards 0.",
}
FORMULAS = {"Sum": "Σ of input over the dimensions in axis", "Mean": "Σ of input over the dimensions in axis / count"}
SUMS_IN_FLOAT32 = "half and bfloat16 are summed in float32 and rounded once."

for _kind, _results in {"Sum": [3.0, 7.0], "Mean": [1.5, 3.5]}.items():
    declare(Operator(
        name=f"Reduce{_kind}",
        function=None,
        family="reductions",
        summary=f"The {_kind.lower()} over some of the dimensions.",
        inputs=(Pin("input", "T", "[...]", "Any array."), AXIS),
        outputs=(Pin("output", "T", "[...]", "The input without these dimensions."),),
        types={"T": NUMBERS, "Tidx": IDS},
        formula=f"output = {FORMULAS[_kind]}",
        errors=(
            "InvalidArgumentError: axis has more than one dimension, or names a dimension twice",
            "OutOfRangeError: an axis is not in [−rank, rank)",
            WRONG_TYPE,
            TOO_LARGE,
        ),
        cost="O(elements).",
        example=Example({"input": [[1.0, 2.0], [3.0, 4.0]], "axis": [1]}, {"output": _results}),
        compute=partial(_reduce, _kind == "Mean"),
        attributes=(KEEP_DIMS,),
        shape_rule=_reduced,
        gradient={"input": GRADIENTS[_kind]},
        notes=f"{NOTES[_kind]} {SUMS_IN_FLOAT32}",
    ))  # fmt: skip

ROWS_OF = {
    "Softmax": (
        softmax, "Convert numbers to probabilities: positive, and summing to 1 along the last dimension.",
        "softmax[…, c] = exp(logits[…, c]) / Σ over k of exp(logits[…, k])", [0.119203, 0.880797],
        lambda op, d_softmax, softmax: op.Mul(
            op.Sub(d_softmax, op.ReduceSum(op.Mul(d_softmax, softmax), [-1], keep_dims=True)), softmax
        ),
    ),
    "LogSoftmax": (
        log_softmax, "The logarithms of Softmax, exact also where that is too small for its type.",
        "logsoftmax[…, c] = logits[…, c] − log Σ over k of exp(logits[…, k])", [-2.126928, -0.126928],
        lambda op, d_logsoftmax, logsoftmax: op.Sub(
            d_logsoftmax, op.Mul(op.Exp(logsoftmax), op.ReduceSum(d_logsoftmax, [-1], keep_dims=True))
        ),
    ),
}  # fmt: skip

for _name, (_function, _summary, _formula, _example, _gradient) in ROWS_OF.items():
    declare(Operator(
        name=_name,
        function=None,
        family="reductions",
        summary=_summary,
        inputs=(Pin("logits", "T", "[..., classes]", "Any numbers."),),
        outputs=(Pin(_name.lower(), "T", "[..., classes]", "The result, of the shape of logits."),),
        types={"T": FLOATS},
        formula=_formula,
        errors=("InvalidArgumentError: logits is a scalar", WRONG_TYPE, TOO_LARGE),
        cost="O(elements).",
        example=Example({"logits": [0.0, 2.0]}, {_name.lower(): _example}),
        compute=partial(_by_rows, _function),
        shape_rule=partial(_rows, _name.lower()),
        gradient={"logits": _gradient},
        notes="The largest of each row is subtracted first, so that nothing overflows. " + SUMS_IN_FLOAT32,
    ))  # fmt: skip

declare(Operator(
    name="MatMul",
    function=None,
    family="reductions",
    summary="The product of two matrices.",
    inputs=(
        Pin("a", "T", "[m, k]", "A matrix; [k, m] with transpose_a."),
        Pin("b", "T", "[k, n]", "A matrix; [n, k] with transpose_b."),
    ),
    outputs=(Pin("product", "T", "[m, n]", "Their product."),),
    types={"T": NUMBERS},
    formula="product[i, j] = Σ over k of a[i, k] · b[k, j]",
    errors=("InvalidArgumentError: a or b is not a matrix, or their inner sizes differ", WRONG_TYPE, TOO_LARGE),
    cost="O(m · k · n), by the linear algebra library that NumPy has.",
    example=Example({"a": [[1.0, 2.0]], "b": [[3.0], [4.0]]}, {"product": [[11.0]]}),
    compute=_matmul,
    attributes=(
        Attribute("transpose_a", False, "Whether a is transposed first."),
        Attribute("transpose_b", False, "Whether b is transposed first."),
        Attribute("grad_a", False, "Has no effect here; in TensorFlow a hint that a is a gradient.", passed=False),
        Attribute("grad_b", False, "Has no effect here; in TensorFlow a hint that b is a gradient.", passed=False),
    ),
    shape_rule=_product,
    gradient={
        "a": lambda op, d_product, b, transpose_a, transpose_b: (
            op.MatMul(b, d_product, transpose_a=transpose_b, transpose_b=True)
            if transpose_a
            else op.MatMul(d_product, b, transpose_b=not transpose_b)
        ),
        "b": lambda op, d_product, a, transpose_a, transpose_b: (
            op.MatMul(d_product, a, transpose_a=True, transpose_b=transpose_a)
            if transpose_b
            else op.MatMul(a, d_product, transpose_a=not transpose_a)
        ),
    },
    notes=f"{SUMS_IN_FLOAT32} Otherwise the order of the sums, and so the last bits, are that library's. {REAL_ONLY}",
))  # fmt: skip
