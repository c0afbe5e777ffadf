"""A sparse tensor and a dense one: sums, products and quotients at the entries, and a dense sum."""

from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import Known, Result, of_rank
from rowgrad._ops.catalogue import Example, Operator, Rule, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.sparse_groups import check_entries, outside, sizes_of
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, IDS, NUMBERS, REALS, Array
from rowgrad._runtime.memory import LINE, buffers, is_nontemporal, place, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, OutOfRangeError

KINDS = {"Add": 0, "Mul": 1, "Div": 2, "Gather": 3}


def _signed(dtype: "np.dtype[Any]", kind: int) -> dtypes.Summing:
    """Sums and products of unsigned integers have the bits of signed ones."""
    unsigned = dtype.kind == "u" and kind != KINDS["Div"]
    return dtypes.summing(np.dtype(f"i{dtype.itemsize}") if unsigned else dtype)


def _steps(name: str, shape: Array, dense_shape: tuple[int, ...]) -> tuple[Array, Array]:
    """By dimension: how far apart the elements of a dense tensor are that broadcasts to `shape`, and its lengths."""
    return _steps_of(name, sizes_of(f"{name}_shape", shape), dense_shape)


@lru_cache(maxsize=1024)
def _steps_of(name: str, lengths: tuple[int, ...], dense_shape: tuple[int, ...]) -> tuple[Array, Array]:
    rank = len(lengths)
    given = (1,) * (rank - len(dense_shape)) + dense_shape
    if len(dense_shape) > rank or any(size not in (1, length) for size, length in zip(given, lengths, strict=True)):
        raise InvalidArgumentError(
            f"dense has shape {list(dense_shape)}, which does not broadcast to {name}_shape {list(lengths)}. Reshape "
            "it.",
            code="shape-mismatch",
            argument="dense",
            value=dense_shape,
        )
    distance, steps = 1, [0] * rank
    for axis in range(rank - 1, -1, -1):
        steps[axis] = 0 if given[axis] == 1 else distance
        distance *= given[axis]
    return np.array(steps, np.int64), np.array(lengths, np.int64)


def _ranked(indices: Array) -> int | None:
    """The number of dimensions; None for two, which most have, as a constant for kernels."""
    return None if indices.shape[1] == 2 else indices.shape[1]


def _at_entries(kind: int, sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array,
                out: Array | None) -> Array:  # fmt: skip
    if not sp_shape.size:
        raise InvalidArgumentError(
            "sp_shape is []; the tensor must have one dimension or more. Reshape it.",
            code="wrong-rank",
            argument="sp_shape",
            value=(),
        )
    steps, lengths = _steps("sp", sp_shape, dense.shape)
    output = place(out, (len(sp_indices),), dense.dtype, argument="sp_indices", zero=False)
    if output.size == 0:
        return output
    if dense.size == 0:  # so that a length is 0, and no index within it
        raise outside("sp_indices", sp_indices, lengths.tolist(), range(sp_shape.size), "sp_shape")
    stored, sums, parts = _signed(dense.dtype, kind)
    workers = Workers(sp_indices.nbytes + len(sp_indices) * 3 * dense.itemsize)
    wrong = workers.run(
        kernels.sparse_cwise.combine, sp_indices.reshape(-1), _ranked(sp_indices), steps, lengths,
        sp_values.view(stored), dense.reshape(-1).view(stored), kernels.segments.kind_of(kind), _one(sums, parts),
        output.view(stored), np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    if wrong == kernels.sparse_cwise.OUTSIDE:
        raise outside("sp_indices", sp_indices, lengths.tolist(), range(sp_shape.size), "sp_shape")
    if wrong >= 0:
        raise OutOfRangeError(
            f"dense is 0 at the place of sp_indices[{wrong}], {sp_indices[wrong].tolist()}; it cannot be divided by. "
            "Drop the entry, or change dense.",
            code="division-by-zero",
            argument="dense",
            position=int(wrong),
            value=0,
        )
    return output


def _cwise(kind: int, sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array, *,
           out: Array | None = None) -> Array:  # fmt: skip
    check_entries("sp_values", sp_values, sp_indices, sp_shape, "sp_")
    return _at_entries(kind, sp_indices, sp_values, sp_shape, dense, out)


def _gather(sp_indices: Array, sp_shape: Array, dense: Array, *, out: Array | None = None) -> Array:
    values = np.empty(len(sp_indices) if sp_indices.ndim else 0, dense.dtype)
    check_entries("sp_values", values, sp_indices, sp_shape, "sp_")
    return _at_entries(KINDS["Gather"], sp_indices.astype(np.int64, copy=False), values, sp_shape, dense, out)


def _scatter(grad: Array, sp_indices: Array, sp_shape: Array, dense: Array, *, out: Array | None = None) -> Array:
    check_entries("grad", grad, sp_indices, sp_shape, "sp_")
    steps, lengths = _steps("sp", sp_shape, dense.shape)
    output = place(out, dense.shape, grad.dtype, argument="dense", zero=False)
    _add_entries("sp", sp_indices, steps, lengths, grad, None, output)
    return output


@cache
def _one(sums: "np.dtype[Any]", parts: int) -> Array:
    """What tells kernels that they work on one number at a time: a lane for each of its parts."""
    return np.empty((0,) * parts, sums)


def _add_entries(name: str, indices: Array, steps: Array, lengths: Array, values: Array, dense: Array | None,
                 output: Array) -> None:  # fmt: skip
    """Write `dense`, or zeros, plus the values of the entries."""
    if indices.size and not output.size:
        raise outside(f"{name}_indices", indices, lengths.tolist(), range(lengths.size), f"{name}_shape")
    stored, sums, parts = _signed(values.dtype, KINDS["Add"])
    workers = Workers(indices.nbytes + output.nbytes)
    given = (indices.ravel(), _ranked(indices), steps, lengths, values.view(stored),
             None if dense is None else dense.ravel().view(stored), _one(sums, parts))  # fmt: skip
    into = output.ravel().view(stored)
    if workers.chunks == 1:
        is_outside = kernels.sparse_cwise.add_few(*given, into)
    else:
        room, counts = workers.chunks * kernels.sparse_cwise.BLOCK * parts, np.empty(workers.chunks, np.int64)
        if workers.run(kernels.sparse_cwise.add_ascending, *given, buffers(room, into), into,
                       is_nontemporal(output, LINE), counts):  # fmt: skip
            return
        is_outside = workers.run(
            kernels.sparse_cwise.add_entries, *given, scratch(len(indices), np.int64), into, counts
        )
    if is_outside:
        raise outside(f"{name}_indices", indices, lengths.tolist(), range(lengths.size), f"{name}_shape")


def _dense_add(a_indices: Array, a_values: Array, a_shape: Array, b: Array, *, out: Array | None = None) -> Array:
    check_entries("a_values", a_values, a_indices, a_shape, "a_")
    sizes = a_shape.tolist()
    if sizes != [*b.shape]:
        raise InvalidArgumentError(
            f"b has shape {list(b.shape)}, but a_shape is {sizes}; they must be equal. Reshape or broadcast b.",
            code="shape-mismatch",
            argument="b",
            value=b.shape,
        )
    checks.at_least_vector("b", b)
    steps, lengths = _steps_of("a", b.shape, b.shape)
    output = place(out, b.shape, b.dtype, argument="b", zero=False)
    _add_entries("a", a_indices.astype(np.int64, copy=False), steps, lengths, a_values, b, output)
    return output


def _like(name: str, other: str) -> Any:
    def rule(shapes: Known, values: Known, attributes: Known) -> Result:
        return {name: shapes.get(other)}

    return rule


def _per_entry(shapes: Known, values: Known, attributes: Known) -> Result:
    return {"output": of_rank("sp_indices", shapes.get("sp_indices"), 2)[:1]}


# Declarations

NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
WRONG_TYPE = "DTypeError: a type that is not listed"
ERRORS = (
    "InvalidArgumentError: the indices are not a matrix, values or the shape not a vector, or lengths do not match",
    "InvalidArgumentError: dense does not broadcast to sp_shape, or sp_shape has no dimension or a negative length",
    "OutOfRangeError: an index is not within sp_shape",
)
INDICES = Pin("sp_indices", "int64", "[N, rank]", "The index of each entry, in any order.")
VALUES = Pin("sp_values", "T", "[N]", "The value of each entry.")
SHAPE = Pin("sp_shape", "int64", "[rank]", "The shape of the sparse tensor.")
DENSE = Pin("dense", "T", "[...]", "The dense tensor, which is broadcast to sp_shape.")
EXAMPLE: dict[str, Any] = {
    "sp_indices": [[0, 0], [1, 2]], "sp_values": [1.0, 6.0], "sp_shape": [2, 3], "dense": [2.0, 3.0, 4.0]
}  # fmt: skip
RULES: dict[str, dict[str, Rule]] = {
    "Add": {
        "sp_values": lambda op, d_output: op.Reshape(d_output, [-1]),
        "dense": lambda op, d_output, sp_indices, sp_shape, dense: op.SparseDenseScatter(
            d_output, sp_indices, sp_shape, dense
        ),
    },
    "Mul": {
        "sp_values": lambda op, d_output, sp_indices, sp_shape, dense: op.SparseDenseCwiseMul(
            sp_indices, d_output, sp_shape, dense
        ),
        "dense": lambda op, d_output, sp_indices, sp_values, sp_shape, dense: op.SparseDenseScatter(
            op.Mul(d_output, sp_values), sp_indices, sp_shape, dense
        ),
    },
    "Div": {
        "sp_values": lambda op, d_output, sp_indices, sp_shape, dense: op.SparseDenseCwiseDiv(
            sp_indices, d_output, sp_shape, dense
        ),
        "dense": lambda op, d_output, output, sp_indices, sp_shape, dense: op.SparseDenseScatter(
            op.SparseDenseCwiseDiv(sp_indices, op.Mul(op.Mul(d_output, output), -1.0), sp_shape, dense),
            sp_indices, sp_shape, dense,
        ),
    },
}  # fmt: skip
WORDS = {"Add": ("Add a dense tensor to", "+", [3.0, 10.0]), "Mul": ("Multiply a dense tensor with", "·", [2.0, 24.0]),
         "Div": ("Divide by a dense tensor", "/", [0.5, 1.5])}  # fmt: skip


def _declare(name: str) -> None:
    verb, sign, results = WORDS[name]
    declare(Operator(
        name=f"SparseDenseCwise{name}",
        function=f"sparse_dense_cwise_{name.lower()}",
        family="sparse_cwise",
        summary=f"{verb} the entries of a sparse tensor.",
        inputs=(INDICES, VALUES, SHAPE, DENSE),
        outputs=(Pin("output", "T", "[N]", "The new value of each entry."),),
        types={"T": REALS},
        formula=f"output[i] = sp_values[i] {sign} dense[sp_indices[i]]",
        errors=(*ERRORS, *(("OutOfRangeError: dense is 0 at an entry",) if name == "Div" else ()), NO_ROOM, WRONG_TYPE),
        cost="O(N · rank).",
        example=Example(EXAMPLE, {"output": results}),
        compute=partial(_cwise, KINDS[name]),
        shape_rule=_per_entry,
        options=("out",),
        gradient=RULES[name],
        notes="Integers are divided towards 0." if name == "Div" else
        "TensorFlow has no gradient for this operator." if name == "Add" else "",
    ))  # fmt: skip


for _name in WORDS:
    _declare(_name)

declare(Operator(
    name="SparseDenseGather",
    function="sparse_dense_gather",
    raw_only=True,
    family="sparse_cwise",
    summary="The elements of a dense tensor at the entries of a sparse one.",
    inputs=(Pin("sp_indices", "Tindices", "[N, rank]", INDICES.doc), Pin("sp_shape", "Tindices", "[rank]", SHAPE.doc),
            DENSE),
    outputs=(Pin("output", "T", "[N]", "The element at each entry."),),
    types={"T": NUMBERS, "Tindices": IDS},
    formula="output[i] = dense[sp_indices[i]]",
    errors=(*ERRORS, NO_ROOM, WRONG_TYPE),
    cost="O(N · rank).",
    example=Example({name: EXAMPLE[name] for name in ("sp_indices", "sp_shape", "dense")}, {"output": [2.0, 4.0]}),
    compute=_gather,
    shape_rule=_per_entry,
    options=("out",),
    gradient={"dense": lambda op, d_output, sp_indices, sp_shape, dense: op.SparseDenseScatter(
        d_output, sp_indices, sp_shape, dense)},
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseDenseScatter",
    function="sparse_dense_scatter",
    raw_only=True,
    family="sparse_cwise",
    summary="The gradient of SparseDenseGather: each element gets the sum of the gradients of its entries.",
    inputs=(Pin("grad", "T", "[N]", "The gradient of each entry."), *(Pin(pin.name, "Tindices", pin.shape, pin.doc)
            for pin in (INDICES, SHAPE)), Pin("dense", "T", "[...]", "The dense tensor; only its shape is used.")),
    outputs=(Pin("output", "T", "[...]", "The gradient of dense, of its shape."),),
    types={"T": (*FLOATS, *COMPLEX), "Tindices": IDS},
    formula="output[k] = Σ over i with sp_indices[i] = k (or broadcast from k) of grad[i], in the order of i",
    errors=(*ERRORS, NO_ROOM, WRONG_TYPE),
    cost="O(N · rank + size of dense); if entries do not ascend, each thread reads all of them.",
    example=Example({"grad": [5.0, 7.0], **{name: EXAMPLE[name] for name in ("sp_indices", "sp_shape", "dense")}},
                    {"output": [5.0, 0.0, 7.0]}),
    compute=_scatter,
    shape_rule=_like("output", "dense"),
    options=("out",),
    gradient={"grad": lambda op, d_output, sp_indices, sp_shape: op.SparseDenseGather(sp_indices, sp_shape, d_output)},
    in_tensorflow=False,
))  # fmt: skip

declare(Operator(
    name="SparseTensorDenseAdd",
    function="sparse_tensor_dense_add",
    family="sparse_cwise",
    summary="Add a sparse tensor to a dense one; the result is dense.",
    inputs=(
        Pin("a_indices", "Tindices", "[N, rank]", "The index of each entry, in any order."),
        Pin("a_values", "T", "[N]", "The value of each entry; those of repeated indices are added up."),
        Pin("a_shape", "Tindices", "[rank]", "The shape of the sparse tensor."),
        Pin("b", "T", "[...]", "The dense tensor, of that shape."),
    ),
    outputs=(Pin("output", "T", "[...]", "The sum."),),
    types={"T": NUMBERS, "Tindices": IDS},
    formula="output = b; then output[a_indices[i]] += a_values[i], in the order of i",
    errors=(
        ERRORS[0],
        "InvalidArgumentError: b does not have the shape a_shape, or is a scalar",
        "OutOfRangeError: an index is not within a_shape",
        NO_ROOM,
        WRONG_TYPE,
    ),
    cost="O(size of b + N · rank); if entries do not ascend, each thread reads all of them.",
    example=Example(
        {"a_indices": [[0, 0], [1, 2]], "a_values": [1.0, 6.0], "a_shape": [2, 3],
         "b": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]},
        {"output": [[2.0, 2.0, 3.0], [4.0, 5.0, 12.0]]},
    ),
    compute=_dense_add,
    shape_rule=_like("output", "b"),
    options=("out",),
    gradient={
        "a_values": lambda op, d_output, a_indices, a_shape: op.SparseDenseGather(a_indices, a_shape, d_output),
        "b": lambda op, d_output, b: op.Mul(d_output, op.OnesLike(b)),
    },
    notes="Half and bfloat16 are rounded after each addition, as in TensorFlow, which takes ranks from 1 to 5 only.",
))  # fmt: skip
