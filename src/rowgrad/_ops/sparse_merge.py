"""Two sparse tensors, entry by entry: their sum, the larger and the smaller of both, and the gradients.

Indices ascend, as those of most sparse tensors do. They are merged in one pass, which pairs the entries that meet.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.catalogue import Attribute, Example, Operator, Rule, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.results import ChosenEntries, OrderedEntries, SparseSum, SumGradient
from rowgrad._ops.sparse_groups import check_entries, outside
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import FLOATS, NUMBERS, REALS, Array
from rowgrad._runtime.memory import POOLED, allocate, place, scratch
from rowgrad._runtime.threads import Workers
from rowgrad.errors import DTypeError, InvalidArgumentError

INT64 = np.dtype(np.int64)
LARGER, SMALLER = 1, 2
ALONE = Workers(0)
PACKET = 32  # bytes that TensorFlow compares side by side


def _check(a: tuple[Array, Array, Array], b: tuple[Array, Array, Array]) -> int:
    """Both must be sparse tensors of one shape; tells their rank."""
    for name, (indices, values, shape) in (("a", a), ("b", b)):
        check_entries(f"{name}_values", values, indices, shape, f"{name}_")
    shape, other = a[2].tolist(), b[2].tolist()
    if shape != other:
        raise InvalidArgumentError(
            f"b_shape is {other}, but a_shape is {shape}; they must be equal. Broadcast or slice one of them.",
            code="shape-mismatch",
            argument="b_shape",
            value=tuple(other),
        )
    if not shape:
        raise InvalidArgumentError(
            "a_shape is []; the tensors must have one dimension or more. Reshape them.",
            code="wrong-rank",
            argument="a_shape",
            value=(),
        )
    return len(shape)


class Pairs(NamedTuple):
    """The entries of two tensors that make each entry of their union: so many, by chunks of `workers`."""

    workers: Workers
    size: int
    cuts: Array
    lefts: Array
    rights: Array


def _pairs(a_indices: Array, b_indices: Array, workers: Workers) -> Pairs:
    a_size, b_size = len(a_indices), len(b_indices)
    kind = np.int32 if a_size + b_size < 2**31 else np.int64
    room = scratch(2 * (a_size + b_size), kind)
    lefts, rights = room[: a_size + b_size], room[a_size + b_size :]
    cuts = np.empty(4 * (workers.chunks + 1), np.int64)
    size = workers.run(
        kernels.sparse_merge.pair, a_indices.reshape(-1), a_size, b_indices.reshape(-1), b_size, _columns(a_indices),
        lefts, rights, cuts,
    )  # fmt: skip
    return Pairs(workers, int(size), cuts, lefts, rights)


def _threads(a_indices: Array, b_indices: Array) -> Workers:
    return Workers((len(a_indices) + len(b_indices)) * (8 * a_indices.shape[1] + 40))


def _columns(indices: Array) -> int | None:
    """How many columns there are; None for two, which most have, as a constant for kernels."""
    return None if indices.shape[1] == 2 else indices.shape[1]


def _some(array: Array) -> Array:
    """`array`, or, if it has no rows, a row that is never used: kernels read one before they know."""
    return array if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)


def _signed(array: Array) -> Array:
    """Sums of unsigned integers have the bits of signed ones."""
    return array.view(f"i{array.itemsize}") if array.dtype.kind == "u" else array


def _add(a_indices: Array, a_values: Array, a_shape: Array, b_indices: Array, b_values: Array, b_shape: Array,
         thresh: Array) -> SparseSum:  # fmt: skip
    rank = _check((a_indices, a_values, a_shape), (b_indices, b_values, b_shape))
    dtype, a_size, b_size = a_values.dtype, a_values.size, b_values.size
    limit = _limit(np.asarray(thresh), dtype)
    workers = _threads(a_indices, b_indices)
    stored, sums, parts = dtypes.summing(dtype)
    if dtype.kind == "u":  # magnitudes are compared, so that these stay what they are
        stored = sums = dtype
    is_short = True if sums.kind == "i" and sums.itemsize < 4 else None
    columns, most = _columns(a_indices), a_size + b_size
    if not a_size or not b_size:
        a_indices, a_values, b_indices, b_values = map(_some, (a_indices, a_values, b_indices, b_values))
    given = (a_indices.ravel(), a_size, b_indices.ravel(), b_size, columns, a_values.view(stored),
             b_values.view(stored), _lanes(sums, parts), sums.type(limit), is_short)  # fmt: skip
    if workers.chunks > 1:
        indices, totals = scratch(most * rank, INT64), scratch(most, dtype)
        cuts = np.empty(4 * (workers.chunks + 1), INT64)
        kept = workers.run(kernels.sparse_merge.add, *given, indices, totals.view(stored), cuts)
        if kept >= 0:
            found, values = allocate((kept, rank), INT64), allocate((kept,), dtype)
            words, width = dtypes.as_words(totals)
            workers.run(kernels.sparse_merge.take_sum, cuts, rank, indices, words, width, found.reshape(-1),
                        dtypes.as_words(values)[0])  # fmt: skip
            return SparseSum(found, values, a_shape.copy())
    # Chunks know nothing of entries that belong elsewhere: where indices fall, one thread does it all.
    new: Any = np.empty if most * rank * 8 < POOLED else allocate
    indices, values = new((most, rank), INT64), new((most,), dtype)
    kept = ALONE.run(kernels.sparse_merge.add, *given, indices.ravel(), values.view(stored), np.empty(8, INT64),
                     key=(dtype, columns is None))  # fmt: skip
    return SparseSum(indices[:kept], values[:kept], a_shape.copy())


def _limit(thresh: Array, dtype: "np.dtype[Any]") -> Any:
    """The threshold in the real type of the values."""
    checks.rank("thresh", thresh, 0)
    if thresh.dtype is dtype:
        return thresh[()]
    real = np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
    with np.errstate(all="ignore"):
        limit = thresh.astype(real)
    if thresh.dtype.kind == "f" and real.kind in "iu" and float(limit) != float(thresh):
        raise DTypeError(
            f"thresh is {thresh[()]}, which {dtypes.name_of(real)}, that of the values, cannot hold. Round it first.",
            code="wrong-dtype",
            argument="thresh",
            value=float(thresh),
        )
    return limit[()]


@cache
def _lanes(sums: "np.dtype[Any]", parts: int) -> Array:
    """One number: a lane for each of its parts."""
    return np.empty((0,) * parts, sums)


def _check_matching(a_indices: Array, b_indices: Array, sum_indices: Array) -> None:
    for name, indices in (("a_indices", a_indices), ("b_indices", b_indices), ("sum_indices", sum_indices)):
        checks.rank(name, indices, 2)
        checks.same_width(name, indices.shape[1], "a_indices", a_indices.shape[1])


def _matches(a_indices: Array, b_indices: Array, sum_indices: Array) -> tuple[Array, Array]:
    """Which entry of the sum each entry of both tensors is part of, or -1."""
    found = np.empty(len(a_indices), np.int64), np.empty(len(b_indices), np.int64)
    kernels.sparse_merge.match_sum(
        a_indices.reshape(-1), len(a_indices), b_indices.reshape(-1), len(b_indices), sum_indices.reshape(-1),
        len(sum_indices), _columns(a_indices), *found,
    )  # fmt: skip
    return found


def _add_grad(backprop_val_grad: Array, a_indices: Array, b_indices: Array, sum_indices: Array) -> SumGradient:
    grads, rank = backprop_val_grad, a_indices.shape[1:]
    if not (
        grads.shape == sum_indices.shape[:1]
        and len(rank) == 1
        and rank == b_indices.shape[1:] == sum_indices.shape[1:]
    ):  # fmt: skip
        checks.rank("backprop_val_grad", grads, 1)
        _check_matching(a_indices, b_indices, sum_indices)
        checks.same_length("backprop_val_grad", grads.size, "sum_indices", len(sum_indices))
    workers, kind = _threads(a_indices, b_indices), grads.dtype
    make = np.empty if workers.chunks == 1 else allocate
    a_size, b_size, (word, width) = len(a_indices), len(b_indices), dtypes.WORDS[kind.itemsize]
    results = make((a_size,), kind), make((b_size,), kind)
    columns, words = _columns(a_indices), grads.view(word)
    outputs = results[0].view(word), results[1].view(word)
    if not workers.run(
        kernels.sparse_merge.take_grads, a_indices.ravel(), a_size, b_indices.ravel(), b_size, sum_indices.ravel(),
        grads.size, columns, words, None if width == 1 else width, *outputs,
        np.empty(5 * (workers.chunks + 1), INT64), key=(columns is None, kind.itemsize),
    ):  # fmt: skip
        for each, output in zip(_matches(a_indices, b_indices, sum_indices), outputs, strict=True):
            workers.run(kernels.sparse_merge.take_matches, each, words, width, output)
    return SumGradient(*results)


def _add_grad_grad(a_grad: Array, b_grad: Array, a_indices: Array, b_indices: Array, sum_indices: Array, *,
                   out: Array | None = None) -> Array:  # fmt: skip
    checks.rank("a_grad", a_grad, 1)
    checks.rank("b_grad", b_grad, 1)
    _check_matching(a_indices, b_indices, sum_indices)
    matches = _matches(a_indices, b_indices, sum_indices)
    checks.same_length("a_grad", a_grad.size, "a_indices", len(a_indices))
    checks.same_length("b_grad", b_grad.size, "b_indices", len(b_indices))
    output = place(out, (len(sum_indices),), a_grad.dtype, argument="sum_indices", zero=True)
    stored, sums, parts = dtypes.summing(_signed(a_grad).dtype)
    for each, grad in zip(matches, (a_grad, b_grad), strict=True):
        kernels.sparse_merge.add_matches(each, grad.view(stored), _lanes(sums, parts), output.view(stored))
    return output


def _choose(kind: int, a_indices: Array, a_values: Array, a_shape: Array, b_indices: Array, b_values: Array,
            b_shape: Array) -> OrderedEntries:  # fmt: skip
    rank = _check((a_indices, a_values, a_shape), (b_indices, b_values, b_shape))
    workers = _threads(a_indices, b_indices)
    stored, sums, _ = dtypes.summing(a_values.dtype)
    packet = PACKET // a_values.itemsize if a_values.dtype in (np.float32, np.float64) else 0
    if workers.chunks == 1 and a_values.size and b_values.size:
        most = a_values.size + b_values.size
        room, indices = np.empty(2 * most, np.int32), np.empty((most, rank), np.int64)
        values = np.empty(most, a_values.dtype)
        size = kernels.sparse_merge.choose_small(
            a_indices.reshape(-1), a_values.size, b_indices.reshape(-1), b_values.size, _columns(a_indices), a_shape,
            a_values.view(stored), b_values.view(stored), _lanes(sums, 1), kind, packet, room, indices.reshape(-1),
            values.view(stored),
        )  # fmt: skip
        if size < 0:
            name, found = ("a", a_indices) if size == -1 else ("b", b_indices)
            raise outside(f"{name}_indices", found, a_shape.tolist(), range(rank), f"{name}_shape")
        return OrderedEntries(indices[:size], values[:size])
    for name, found in (("a", a_indices), ("b", b_indices)):
        _check_bounds(f"{name}_indices", found, a_shape, f"{name}_shape")
    workers, size, *pairs = _pairs(a_indices, b_indices, workers)
    indices, values = allocate((size, rank), np.int64), allocate((size,), a_values.dtype)
    workers.run(
        kernels.sparse_merge.choose_pairs, *pairs, _some(a_indices).reshape(-1), _some(b_indices).reshape(-1),
        _columns(a_indices), _some(a_values).view(stored), _some(b_values).view(stored), _lanes(sums, 1), kind,
        size // packet * packet if packet else 0, indices.reshape(-1), values.view(stored),
    )  # fmt: skip
    return OrderedEntries(indices, values)


def _check_bounds(name: str, indices: Array, shape: Array, shape_name: str) -> None:
    entries, rank = indices.shape
    workers = Workers(indices.nbytes)
    places, bad = scratch(entries, np.int64), np.empty(workers.chunks, np.int64)
    if workers.run(kernels.sparse_reduce.locate, indices.reshape(-1), rank, np.zeros(rank, np.int64),
                   np.maximum(shape, 0), places, bad):  # fmt: skip
        raise outside(name, indices, shape.tolist(), range(rank), shape_name)


def _chosen(a_indices: Array, a_values: Array, b_indices: Array, b_values: Array, *,
            largest: bool = True) -> ChosenEntries:  # fmt: skip
    for name, indices, values in (("a", a_indices, a_values), ("b", b_indices, b_values)):
        checks.rank(f"{name}_indices", indices, 2)
        checks.rank(f"{name}_values", values, 1)
        checks.same_length(f"{name}_values", values.size, f"{name}_indices", len(indices))
    checks.same_width("b_indices", b_indices.shape[1], "a_indices", a_indices.shape[1])
    _, size, _, lefts, rights = _pairs(a_indices, b_indices, Workers(0))
    stored, sums, _ = dtypes.summing(a_values.dtype)
    results = ChosenEntries(allocate(a_values.shape, a_values.dtype), allocate(b_values.shape, a_values.dtype))
    kernels.sparse_merge.mark_chosen(
        size, lefts, rights, a_values.view(stored), b_values.view(stored), _lanes(sums, 1),
        LARGER if largest else SMALLER, np.ones(1, a_values.dtype).view(stored), *(r.view(stored) for r in results),
    )  # fmt: skip
    return results


# Declarations

WRONG_TYPE = "DTypeError: a type that is not listed"
NO_ROOM = "OutOfMemoryError: the result does not fit into memory"
COST = "O((A + B) · rank)."
UNSORTED = "Indices that do not ascend are merged as in TensorFlow; sort them first."


def _entries(name: str, letter: str) -> tuple[Pin, Pin, Pin]:
    return (
        Pin(f"{name}_indices", "int64", f"[{letter}, rank]", f"The indices of {name}, ascending."),
        Pin(f"{name}_values", "T", f"[{letter}]", f"The values of {name}."),
        Pin(f"{name}_shape", "int64", "[rank]", f"The shape of {name}."),
    )


A, B = _entries("a", "A"), _entries("b", "B")
ERRORS = (
    "InvalidArgumentError: indices are not a matrix, values or a shape not a vector, or lengths do not match",
    "InvalidArgumentError: the shapes differ, or have no dimension",
)
EXAMPLE: dict[str, Any] = {
    "a_indices": [[0, 0], [0, 2]], "a_values": [1.0, -2.0], "a_shape": [2, 3],
    "b_indices": [[0, 2], [1, 1]], "b_values": [5.0, -4.0], "b_shape": [2, 3],
}  # fmt: skip

declare(Operator(
    name="SparseAdd",
    function="sparse_add",
    family="sparse_merge",
    summary="Add two sparse tensors.",
    inputs=(*A, *B, Pin("thresh", "Treal", "[]", "A sum of two entries that is smaller, or NaN, is left out.")),
    outputs=(
        Pin("sum_indices", "int64", "[M, rank]", "The indices of the sum, ascending."),
        Pin("sum_values", "T", "[M]", "Its values."),
        Pin("sum_shape", "int64", "[rank]", "Its shape."),
    ),
    types={"T": NUMBERS, "Treal": REALS},
    formula="sum[index] = a[index] + b[index] where both have an entry; it stays if thresh ≤ |sum|\n"
    "sum[index] = a[index], or b[index], where one of them has an entry",
    errors=(*ERRORS, "InvalidArgumentError: thresh is not a scalar", NO_ROOM,
            f"{WRONG_TYPE}, or thresh is a fraction where values are integers"),
    cost=COST,
    example=Example(
        {**EXAMPLE, "thresh": 0.0},
        {"sum_indices": [[0, 0], [0, 2], [1, 1]], "sum_values": [1.0, 3.0, -4.0], "sum_shape": [2, 3]},
    ),
    compute=_add,
    gradient={
        "a_values": lambda op, d_sum_values, a_indices, b_indices, sum_indices: op.SparseAddGrad(
            d_sum_values, a_indices, b_indices, sum_indices).a_val_grad,
        "b_values": lambda op, d_sum_values, a_indices, b_indices, sum_indices: op.SparseAddGrad(
            d_sum_values, a_indices, b_indices, sum_indices).b_val_grad,
    },
    result=SparseSum,
    notes=f"{UNSORTED} TensorFlow has no kernels for half, bfloat16 and unsigned types.",
))  # fmt: skip

SUM_INDICES = Pin("sum_indices", "int64", "[M, rank]", "The indices of the sum.")
GRAD_ERRORS = (
    "InvalidArgumentError: indices are not matrices of the same width, or gradients not vectors as long as these",
    NO_ROOM,
    WRONG_TYPE,
)

declare(Operator(
    name="SparseAddGrad",
    function="sparse_add_grad",
    raw_only=True,
    family="sparse_merge",
    summary="The gradient of SparseAdd: each entry gets that of the sum that it is part of.",
    inputs=(Pin("backprop_val_grad", "T", "[M]", "The gradient of each entry of the sum."), A[0], B[0], SUM_INDICES),
    outputs=(
        Pin("a_val_grad", "T", "[A]", "The gradient of the values of a."),
        Pin("b_val_grad", "T", "[B]", "The gradient of the values of b."),
    ),
    types={"T": NUMBERS},
    formula="a_val_grad[i] = backprop_val_grad[k] where sum_indices[k] = a_indices[i], or 0 where the sum was left out",
    errors=GRAD_ERRORS,
    cost=COST,
    example=Example(
        {"backprop_val_grad": [1.0, 2.0, 3.0], "a_indices": [[0, 0], [0, 2]], "b_indices": [[0, 2], [1, 1]],
         "sum_indices": [[0, 0], [0, 2], [1, 1]]},
        {"a_val_grad": [1.0, 2.0], "b_val_grad": [2.0, 3.0]},
    ),
    compute=_add_grad,
    gradient={"backprop_val_grad": lambda op, d_a_val_grad, d_b_val_grad, a_indices, b_indices, sum_indices: (
        op.SparseAddGradGrad(d_a_val_grad, d_b_val_grad, a_indices, b_indices, sum_indices))},
    result=SumGradient,
))  # fmt: skip

declare(Operator(
    name="SparseAddGradGrad",
    function="sparse_add_grad_grad",
    raw_only=True,
    family="sparse_merge",
    summary="The gradient of SparseAddGrad: the values of two tensors, added where a sum has an entry.",
    inputs=(
        Pin("a_grad", "T", "[A]", "The upstream gradient of the gradient of a."),
        Pin("b_grad", "T", "[B]", "The upstream gradient of the gradient of b."),
        A[0], B[0], SUM_INDICES,
    ),
    outputs=(Pin("output", "T", "[M]", "The gradient of each gradient of the sum."),),
    types={"T": NUMBERS},
    formula="output[k] = a_grad[i] + b_grad[j] where a_indices[i] = b_indices[j] = sum_indices[k]",
    errors=GRAD_ERRORS,
    cost=COST,
    example=Example(
        {"a_grad": [1.0, 2.0], "b_grad": [5.0, 7.0], "a_indices": [[0, 0], [0, 2]], "b_indices": [[0, 2], [1, 1]],
         "sum_indices": [[0, 0], [0, 2], [1, 1]]},
        {"output": [1.0, 7.0, 7.0]},
    ),
    compute=_add_grad_grad,
    options=("out",),
    gradient={
        "a_grad": lambda op, d_output, a_indices, b_indices, sum_indices: op.SparseAddGrad(
            d_output, a_indices, b_indices, sum_indices).a_val_grad,
        "b_grad": lambda op, d_output, a_indices, b_indices, sum_indices: op.SparseAddGrad(
            d_output, a_indices, b_indices, sum_indices).b_val_grad,
    },
    in_tensorflow=False,
))  # fmt: skip


def _chosen_rule(largest: bool, name: str) -> Rule:
    if name == "a":
        return lambda op, d_output_values, output_indices, a_indices, a_values, b_indices, b_values: op.Mul(
            op.SparseAddGrad(d_output_values, a_indices, b_indices, output_indices).a_val_grad,
            op.SparseSparseChosen(a_indices, a_values, b_indices, b_values, largest=largest).a_chosen,
        )
    return lambda op, d_output_values, output_indices, a_indices, a_values, b_indices, b_values: op.Mul(
        op.SparseAddGrad(d_output_values, a_indices, b_indices, output_indices).b_val_grad,
        op.SparseSparseChosen(a_indices, a_values, b_indices, b_values, largest=largest).b_chosen,
    )


def _declare_choice(name: str, word: str, kind: int, values: list[float]) -> None:
    declare(Operator(
        name=f"SparseSparse{name}",
        function=f"sparse_sparse_{name.lower()}",
        family="sparse_merge",
        summary=f"The {word} of two sparse tensors, entry by entry; where one has no entry, it is 0.",
        inputs=(*A, *B),
        outputs=(
            Pin("output_indices", "int64", "[M, rank]", "The indices of both, ascending."),
            Pin("output_values", "T", "[M]", f"The {word} of both values."),
        ),
        types={"T": REALS},
        formula=f"output[index] = the {word} of a[index] and b[index], for each index that one of them has an entry at",
        errors=(*ERRORS, "OutOfRangeError: an index is not within the shape", NO_ROOM, WRONG_TYPE),
        cost=COST,
        example=Example(EXAMPLE, {"output_indices": [[0, 0], [0, 2], [1, 1]], "output_values": values}),
        compute=partial(_choose, kind),
        gradient={f"{tensor}_values": _chosen_rule(kind == LARGER, tensor) for tensor in "ab"},
        result=OrderedEntries,
        notes=f"{UNSORTED} NaN is the {word} of it and anything. TensorFlow has no gradient for this operator; here "
        "that of a result flows to the value it was taken from, of equal ones to that of a.",
    ))  # fmt: skip


_declare_choice("Maximum", "larger", LARGER, [1.0, 5.0, 0.0])
_declare_choice("Minimum", "smaller", SMALLER, [0.0, -2.0, -4.0])

declare(Operator(
    name="SparseSparseChosen",
    function="sparse_sparse_chosen",
    raw_only=True,
    family="sparse_merge",
    summary="Which values of two sparse tensors are the larger, or smaller, of both: 1 for these, 0 for the others.",
    inputs=(A[0], A[1], B[0], B[1]),
    outputs=(
        Pin("a_chosen", "T", "[A]", "1 where the value of a is taken."),
        Pin("b_chosen", "T", "[B]", "1 where the value of b is taken."),
    ),
    types={"T": FLOATS},
    attributes=(Attribute("largest", True, "Whether to take the larger or the smaller."),),
    formula="a_chosen[i] = 1 if a_values[i] ≥ that of b (0 without an entry), else 0; b_chosen is 1 for the others",
    errors=(ERRORS[0].replace(", values or a shape not a vector", ", values not a vector"), NO_ROOM, WRONG_TYPE),
    cost=COST,
    example=Example(
        {name: EXAMPLE[name] for name in ("a_indices", "a_values", "b_indices", "b_values")},
        {"a_chosen": [1.0, 0.0], "b_chosen": [1.0, 0.0]},
    ),
    compute=_chosen,
    result=ChosenEntries,
    in_tensorflow=False,
))  # fmt: skip
