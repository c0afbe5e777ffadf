"""From sparse tensors to dense ones: write the entries into a dense array, multiply a sparse matrix by a dense one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rowgrad import _kernels as kernels
from rowgrad._ops import checks
from rowgrad._ops.broadcasting import ask, fresh, listed, of_rank, sizes
from rowgrad._ops.catalogue import OPERATORS, Attribute, Example, Operator, declare
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape, Size, same_size
from rowgrad._ops.weighted_sum import Entries
from rowgrad._ops.weighted_sum import _sum as weighted_sum
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import COMPLEX, FLOATS, IDS, PLAIN, Array
from rowgrad._runtime.memory import allocate, check_room, is_nontemporal
from rowgrad._runtime.threads import Workers
from rowgrad.errors import InvalidArgumentError, RowgradError

BLOCK = 1 << 18  # elements of products that are made and summed together: few enough to stay in the cache

# SparseToDense


def _dense_shape(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    indices, entries = shapes.get("sparse_indices"), shapes.get("sparse_values")
    _at_most("sparse_indices", indices, 2, "a scalar, a vector or a matrix")
    _at_most("sparse_values", entries, 1, "a scalar or a vector")
    of_rank("default_value", shapes.get("default_value"), 0)
    output = sizes("output_shape", shapes, values)
    if indices is None:
        return {"dense": output}
    rank = indices[1] if len(indices) == 2 else 1
    if output is not None and same_size(rank, len(output)) is False:
        raise InvalidArgumentError(
            f"output_shape has {len(output)} elements, but an index has {rank}; there must be one for each dimension.",
            code="length-mismatch",
            argument="output_shape",
            value=len(output),
        )
    count = indices[0] if indices else 1
    if entries and same_size(entries[0], count) is False:
        raise InvalidArgumentError(
            f"sparse_values has length {entries[0]}, but there are {count} indices. Pass one for each, or a scalar.",
            code="length-mismatch",
            argument="sparse_values",
            value=entries[0],
        )
    return {"dense": output if output is not None else (None,) * rank if isinstance(rank, int) else None}


def _at_most(name: str, shape: Shape | None, rank: int, what: str) -> None:
    if shape is not None and len(shape) > rank:
        raise InvalidArgumentError(
            f"{name} has shape {listed(shape)}; it must be {what}. Reshape it.",
            code="wrong-rank",
            argument=name,
            value=shape,
        )


def _to_dense(sparse_indices: Array, output_shape: Array, sparse_values: Array, default_value: Array, *,
              validate_indices: bool = True) -> Array:  # fmt: skip
    inputs = {"sparse_indices": sparse_indices, "output_shape": output_shape, "sparse_values": sparse_values,
              "default_value": default_value}  # fmt: skip
    shape = ask(_dense_shape, inputs)
    indices = sparse_indices.reshape(-1, len(shape)) if sparse_indices.ndim < 2 else sparse_indices
    _check_bounds("sparse_indices", indices, shape, "output_shape", sparse_indices.ndim)
    flat = np.zeros(indices.shape[0], np.int64)
    for axis, size in enumerate(shape):
        flat = flat * size + indices[:, axis]
    if validate_indices:
        _check_order(indices, flat, sparse_indices.ndim)
    is_text = sparse_values.dtype.kind in "USOT"
    dtype = np.result_type(sparse_values.dtype, default_value.dtype) if is_text else sparse_values.dtype
    dense = fresh(shape, dtype, "output_shape")
    dense[...] = default_value
    dense.reshape(-1)[flat] = sparse_values  # of entries for the same place the last one stays, as in TensorFlow
    return dense


def _check_bounds(name: str, indices: Array, shape: tuple[int, ...], limits: str, rank: int = 2) -> None:
    """Every index must lie within `shape`; `rank` is that of the argument as the caller has it."""
    wrong = (indices < 0) | (indices >= np.array(shape, np.int64))
    if not wrong.any():
        return
    entry, axis = divmod(int(wrong.argmax()), indices.shape[1])
    position: tuple[int, ...] = (entry, axis)[:rank]
    error = checks.out_of_range(
        name, position, int(indices[entry, axis]), shape[axis], f"{limits}[{axis}]", "index-out-of-range",
        f"Drop the entry, or raise {limits}.",
    )  # fmt: skip
    error.position = position if rank == 2 else entry if rank == 1 else None
    error.message = error.message.replace(f"{name}[]", name)
    raise error


def _check_order(indices: Array, flat: Array, rank: int) -> None:
    """The indices must ascend, as the rows of a sparse tensor do, and none may occur twice."""
    falls = flat[1:] <= flat[:-1]
    if not falls.any():
        return
    entry = int(falls.argmax()) + 1
    index, before = indices[entry].tolist(), indices[entry - 1].tolist()
    if rank < 2:
        (index,), (before,) = index, before
    repeated = bool(flat[entry] == flat[entry - 1])
    what = "the same as the one before it" if repeated else f"which belongs before {before}"
    raise InvalidArgumentError(
        f"sparse_indices[{entry}] is {index}, {what}; indices must ascend, and none may occur twice. Sort them, or set "
        "validate_indices=False.",
        code="repeated-index" if repeated else "unsorted-indices",
        argument="sparse_indices",
        position=entry,
        value=tuple(index) if rank == 2 else index,
    )


# SparseTensorDenseMatMul


def _product_shape(
    shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    count, rank = of_rank("a_indices", shapes.get("a_indices"), 2)
    (length,) = of_rank("a_values", shapes.get("a_values"), 1)
    found_shape = sizes("a_shape", shapes, values)
    a_shape: Shape = (None, None) if found_shape is None else found_shape
    if same_size(rank, 2) is False:
        raise _bad_size(
            "a_indices", rank, f"the rows of a_indices have {rank} elements; each must have 2, row and column."
        )
    if same_size(length, count) is False:
        raise checks.different_lengths("a_values", length, "a_indices", count)
    if len(a_shape) != 2:
        what = f"a_shape has {len(a_shape)} elements; a matrix has 2, the numbers of rows and columns."
        raise _bad_size("a_shape", len(a_shape), what)
    rows, inner = a_shape[::-1] if attributes.get("adjoint_a") else a_shape
    b = of_rank("b", shapes.get("b"), 2)
    b_inner, columns = b[::-1] if attributes.get("adjoint_b") else b
    if same_size(inner, b_inner) is False:
        raise _unfit(inner, b, attributes)
    return {"product": (rows, columns)}


def _bad_size(argument: str, size: Size, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(what, code="length-mismatch", argument=argument, value=size)


def _unfit(inner: Size, b: Shape, attributes: Mapping[str, Any]) -> InvalidArgumentError:
    columns, rows = (
        ("rows" if attributes.get("adjoint_a") else "columns"),
        "columns" if attributes.get("adjoint_b") else "rows",
    )
    return InvalidArgumentError(
        f"b has shape {listed(b)}, but a has {inner} {columns}, and b must have as many {rows}. Transpose one of them, "
        "with adjoint_a or adjoint_b.",
        code="shape-mismatch",
        argument="b",
        value=b,
    )


def _product_sizes(a_indices: Array, a_values: Array, a_shape: Array, b: Array, adjoint_a: bool,
                   adjoint_b: bool) -> tuple[int, ...]:  # fmt: skip
    """The shape of the product; the rule of shapes, which takes longer, tells what is wrong."""
    if a_indices.ndim == b.ndim == 2 and a_indices.shape[1] == 2 and a_values.shape == a_indices.shape[:1]:
        sizes = a_shape.tolist()
        if a_shape.shape == (2,) and min(sizes) >= 0 and sizes[not adjoint_a] == b.shape[adjoint_b]:
            return sizes[adjoint_a], b.shape[not adjoint_b]
    inputs = {"a_indices": a_indices, "a_values": a_values, "a_shape": a_shape, "b": b}
    return tuple(ask(_product_shape, inputs, adjoint_a=adjoint_a, adjoint_b=adjoint_b))


def _multiply(a_indices: Array, a_values: Array, a_shape: Array, b: Array, *, adjoint_a: bool = False,
              adjoint_b: bool = False) -> Array:  # fmt: skip
    shape = _product_sizes(a_indices, a_values, a_shape, b, adjoint_a, adjoint_b)
    is_float = dtypes.name_of(b.dtype) in FLOATS and b.size > 0
    if is_float and a_values.size and not adjoint_b:
        product = _multiply_in_order(a_indices, a_values, b, shape, int(adjoint_a))
        if product is not None:
            return product
    if not is_float or not a_values.size:
        a_indices = a_indices.copy()  # NumPy reads them again after they were checked
        _check_bounds("a_indices", a_indices, tuple(a_shape.tolist()), "a_shape")
    rows, columns = (np.ascontiguousarray(a_indices[:, axis]) for axis in (int(adjoint_a), int(not adjoint_a)))
    if adjoint_a:
        a_values = a_values.conj()
    if adjoint_b:
        check_room(b.nbytes, "b")
        b = np.ascontiguousarray(b.T.conj())
    if is_float:

        def bad(_: int) -> RowgradError:
            _check_bounds("a_indices", a_indices, tuple(a_shape.tolist()), "a_shape")
            return checks.changed("a_indices")

        entries = Entries(rows, columns, a_values, shape[0], "a_shape", bad)
        return weighted_sum(b, entries, compact=False)  # type: ignore[no-any-return]
    product = allocate(shape, b.dtype, argument="a_shape", zero=True)
    # As many columns at a time as fit into the cache; each sum is made in the order of the entries.
    step = max(1, BLOCK // max(rows.size, 1))
    for start in range(0, shape[1] if rows.size else 0, step):
        window = slice(start, start + step)
        product[:, window] = OPERATORS["UnsortedSegmentSum"].compute(
            _products(a_values[:, None], b[columns, window]), rows, shape[0]
        )
    return product


def _multiply_in_order(indices: Array, weights: Array, b: Array, shape: tuple[int, ...], side: int) -> Array | None:
    """The product, if all entries are in range and ordered by row, as they mostly are; else None."""
    stored, sums, _ = dtypes.summing(b.dtype)
    product = allocate(shape, b.dtype, argument="a_shape")
    workers = Workers(indices.nbytes + weights.size * shape[1] * sums.itemsize)
    lanes = kernels.lanes.lanes_for(sums, shape[1])
    wide = None if shape[1] == kernels.lanes.lane_count(lanes) else True
    last_row = min(int(indices[-1, side]), shape[0] - 1)
    whole = last_row >= 0 and workers.run(
        kernels.sparse_product.multiply, indices.reshape(-1), side or None, weights.astype(sums, copy=False),
        b.reshape(-1).view(stored), shape[0], b.shape[0], shape[1], wide, lanes, product.reshape(-1).view(stored),
        is_nontemporal(product, shape[1] * product.itemsize), last_row, np.empty(workers.chunks, np.int64),
    )  # fmt: skip
    return product if whole else None


def _products(left: Array, right: Array) -> Array:
    """Elementwise products; of complex numbers by the plain formula, without NumPy's fused operations."""
    with np.errstate(all="ignore"):
        if right.dtype.kind != "c":
            return left * right
        found = np.empty(np.broadcast_shapes(left.shape, right.shape), right.dtype)
        found.real = left.real * right.real - left.imag * right.imag
        found.imag = left.real * right.imag + left.imag * right.real
    return found


# Declarations


def _as_matrix(op: Any, sparse_indices: Any, output_shape: Any) -> Any:
    """The indices as a matrix, whichever way they came."""
    return op.Reshape(sparse_indices, op.Concat([[-1], op.Shape(output_shape)], 0))


def _to_values(op: Any, d_dense: Any, sparse_indices: Any, output_shape: Any, sparse_values: Any) -> Any:
    """A scalar that stood for all values gets the sum of what flows to them."""
    found = op.GatherNd(d_dense, _as_matrix(op, sparse_indices, output_shape))
    axes = op.BroadcastGradientArgs(
        op.Shape(sparse_values), op.Slice(op.Shape(_as_matrix(op, sparse_indices, output_shape)), [0], [1])
    ).r0
    return op.Reshape(op.ReduceSum(found, axes), op.Shape(sparse_values))


def _to_default(op: Any, d_dense: Any, sparse_indices: Any, default_value: Any, validate_indices: Any) -> Any:
    """The default is wherever no value was written."""
    zero, one = op.ZerosLike(default_value), op.OnesLike(default_value)
    is_default = op.SparseToDense(sparse_indices, op.Shape(d_dense), zero, one, validate_indices=validate_indices)
    return op.ReduceSum(op.Reshape(op.Mul(d_dense, is_default), [-1]), [0])


declare(Operator(
    name="SparseToDense",
    function="sparse_to_dense",
    family="sparse_dense",
    summary="Write the entries of a sparse tensor into a dense one.",
    inputs=(
        Pin("sparse_indices", "Tindices", "[...]", "The index of each entry, [N, rank]; or [N], or a single one, into "
            "a vector."),
        Pin("output_shape", "Tindices", "[rank]", "The shape of the dense tensor."),
        Pin("sparse_values", "T", "[...]", "The value of each entry, [N]; or one for all."),
        Pin("default_value", "T", "[]", "The value of all other elements."),
    ),
    outputs=(Pin("dense", "T", "[...]", "The dense tensor, of shape output_shape."),),
    types={"T": PLAIN, "Tindices": IDS},
    attributes=(
        Attribute("validate_indices", True, "Whether to reject indices that do not ascend, or occur twice."),
    ),
    formula="dense[sparse_indices[i]] = sparse_values[i]   (sparse_values, where that is one for all)\n"
    "dense = default_value everywhere else",
    errors=(
        "InvalidArgumentError: sparse_indices has more than 2 dimensions, sparse_values more than 1, output_shape is "
        "not a vector, or default_value not a scalar",
        "InvalidArgumentError: output_shape and the width of sparse_indices, or sparse_values and the number of "
        "indices, differ in length",
        "InvalidArgumentError: a size is negative, or there are too many dimensions for NumPy",
        "InvalidArgumentError: the indices do not ascend or one occurs twice, unless validate_indices is False",
        "OutOfRangeError: an index is not within output_shape",
        "OutOfMemoryError: the result does not fit into memory",
        "DTypeError: a type that is not listed",
    ),
    cost="O(size of the result + N · rank).",
    example=Example(
        {"sparse_indices": [[0, 1], [2, 0]], "output_shape": [3, 2], "sparse_values": [5.0, 7.0],
         "default_value": 1.0},
        {"dense": [[1.0, 5.0], [1.0, 1.0], [7.0, 1.0]]},
    ),
    compute=_to_dense,
    shape_rule=_dense_shape,
    gradient={"sparse_values": _to_values, "default_value": _to_default},
    notes="If an index occurs more than once, the last value is used; like TensorFlow's, the gradient ignores this: "
    "each of these values gets the gradient of that element.",
))  # fmt: skip


def _places(op: Any, a_indices: Any, adjoint_a: Any) -> tuple[Any, Any]:
    """The row of each entry in the product, and its row in b."""
    by_axis = op.Transpose(a_indices, [1, 0])
    return op.Gather(by_axis, 1 if adjoint_a else 0), op.Gather(by_axis, 0 if adjoint_a else 1)


def _to_entries(op: Any, d_product: Any, a_indices: Any, b: Any, adjoint_a: Any, adjoint_b: Any, T: Any) -> Any:
    """Each entry gets the dot product of its row of the gradient and its row of b."""
    rows, columns = _places(op, a_indices, adjoint_a)
    return op.RowDot(d_product, op.Transpose(b, [1, 0]) if adjoint_b else b, rows, columns, out_type=T)


def _to_b(op: Any, d_product: Any, a_indices: Any, a_values: Any, b: Any, adjoint_a: Any, adjoint_b: Any) -> Any:
    """The product of the transposed matrix and the gradient, in the order of the entries."""
    rows, columns = _places(op, a_indices, adjoint_a)
    size = op.rows(op.Transpose(b, [1, 0]) if adjoint_b else b)
    back = op.SparseSegmentWeightedSum(d_product, a_values, rows, columns, size)
    return op.Transpose(back, [1, 0]) if adjoint_b else back


declare(Operator(
    name="SparseTensorDenseMatMul",
    function="sparse_tensor_dense_mat_mul",
    family="sparse_dense",
    summary="Multiply a sparse matrix by a dense one.",
    inputs=(
        Pin("a_indices", "Tindices", "[N, rank]", "The row and the column of each entry of a, in any order."),
        Pin("a_values", "T", "[N]", "The value of each entry; those of repeated indices are added up."),
        Pin("a_shape", "int64", "[rank]", "The numbers of rows and columns of a."),
        Pin("b", "T", "[I, C]", "The dense matrix."),
    ),
    outputs=(Pin("product", "T", "[R, C]", "The product, a dense matrix."),),
    types={"T": (*FLOATS, "int32", "int64", *COMPLEX), "Tindices": IDS},
    attributes=(
        Attribute("adjoint_a", False, "Whether a is transposed (and, if complex, conjugated) first."),
        Attribute("adjoint_b", False, "Whether b is transposed (and, if complex, conjugated) first."),
    ),
    formula="product[r, c] = Σ over i with a_indices[i] = [r, k] of a_values[i] · b[k, c]",
    errors=(
        "InvalidArgumentError: a_indices or b is not a matrix, or a_values or a_shape not a vector",
        "InvalidArgumentError: a_indices does not have 2 columns, a_shape 2 elements, or a_values one for each entry",
        "InvalidArgumentError: a_shape is negative, or does not match the shape of b",
        "OutOfRangeError: an index is not within a_shape",
        "OutOfMemoryError: the result does not fit into memory",
        "DTypeError: a type that is not listed",
    ),
    cost="O(N · (C + log N) + R · C).",
    example=Example(
        {"a_indices": [[0, 0], [0, 2], [1, 1]], "a_values": [1.0, 2.0, 3.0], "a_shape": [2, 3],
         "b": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]},
        {"product": [[11.0, 14.0], [9.0, 12.0]]},
    ),
    compute=_multiply,
    bounds_ids=True,
    shape_rule=_product_shape,
    gradient={"a_values": _to_entries, "b": _to_b},
    notes="Each sum is made in the order of the entries. Half and bfloat16 are summed in float32 and rounded once. The "
    "gradient is for real types.",
))  # fmt: skip
