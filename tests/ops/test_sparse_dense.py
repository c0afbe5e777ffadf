"""Sparse tensors made dense, and multiplied, against plain loops."""

import ml_dtypes
import numpy as np
import pytest
from gradient_check import backward

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks import Page, Session, raw_ops
from rowgrad.blocks.operators import OPERATORS

RNG = np.random.default_rng(7)
TO_DENSE, MATMUL = OPERATORS["SparseToDense"], OPERATORS["SparseTensorDenseMatMul"]
FLAGS = [(a, b) for a in (False, True) for b in (False, True)]


@pytest.mark.parametrize("name", TO_DENSE.types["T"])
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_to_dense_of_every_type(name, id_dtype):
    if name == "string":
        values, default = np.array(["a", "bcd"]), np.array("??")
    else:
        values, default = np.array([1, 0]).astype(NUMPY[name]), np.array(1).astype(NUMPY[name])
    dense = raw_ops.SparseToDense(np.array([[0, 1], [1, 0]], id_dtype), np.array([2, 2], id_dtype), values, default)
    assert dense.tolist() == [[default.tolist(), values[0].tolist()], [values[1].tolist(), default.tolist()]]
    assert dense.dtype == values.dtype


@pytest.mark.parametrize(
    ("indices", "shape", "values", "expected"),
    [
        (2, [4], 5.0, [0, 0, 5, 0]),
        ([1, 3], [4], [5.0, 6.0], [0, 5, 0, 6]),
        ([1, 3], [4], 5.0, [0, 5, 0, 5]),
        ([[1], [3]], [4], [5.0, 6.0], [0, 5, 0, 6]),
        ([[0, 1, 0]], [1, 2, 2], [7.0], [[[0, 0], [7, 0]]]),
        (np.empty((0, 2), np.int32), [1, 2], np.empty(0, np.float32), [[0, 0]]),
        (np.empty((0, 2), np.int32), [0, 2], np.empty(0, np.float32), np.empty((0, 2)).tolist()),
        (np.empty((1, 0), np.int32), np.empty(0, np.int32), [5.0], 5.0),
    ],
)
def test_indices_of_every_form(indices, shape, values, expected):
    assert raw_ops.SparseToDense(indices, shape, values, 0.0).tolist() == expected


def test_unsorted_and_repeated_indices_where_they_are_not_validated():
    dense = raw_ops.SparseToDense([3, 1, 3], [4], [1.0, 2.0, 3.0], 0.0, validate_indices=False)
    assert dense.tolist() == [0, 2, 0, 3]


@pytest.mark.parametrize(
    ("inputs", "argument", "code", "position"),
    [
        (([[[0]]], [3], 1.0, 0.0), "sparse_indices", "wrong-rank", None),
        (([0], 3, 1.0, 0.0), "output_shape", "wrong-rank", None),
        (([0], [3], [[1.0]], 0.0), "sparse_values", "wrong-rank", None),
        (([0], [3], 1.0, [0.0]), "default_value", "wrong-rank", None),
        (([[0, 1]], [3], 1.0, 0.0), "output_shape", "length-mismatch", None),
        ((0, [3, 3], 1.0, 0.0), "output_shape", "length-mismatch", None),
        (([0, 1], [3], [1.0], 0.0), "sparse_values", "length-mismatch", None),
        (([0], [-3], 1.0, 0.0), "output_shape", "negative-size", 0),
        (([0, 1, 1], [3], 1.0, 0.0), "sparse_indices", "repeated-index", 2),
        (([0, 2, 1], [3], 1.0, 0.0), "sparse_indices", "unsorted-indices", 2),
        (([[1, 0], [0, 1]], [2, 2], 1.0, 0.0), "sparse_indices", "unsorted-indices", 1),
        ((3, [3], 1.0, 0.0), "sparse_indices", "index-out-of-range", None),
        (([0, -1], [3], 1.0, 0.0), "sparse_indices", "index-out-of-range", 1),
        (([[0, 0], [1, 2]], [2, 2], 1.0, 0.0), "sparse_indices", "index-out-of-range", (1, 1)),
    ],
)
def test_to_dense_names_what_is_wrong(inputs, argument, code, position):
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.SparseToDense(*inputs)
    error = info.value
    assert (error.argument, error.code, error.position) == (argument, code, position)
    assert isinstance(error, rowgrad.OutOfRangeError) == (code == "index-out-of-range")


def test_out_of_range_is_refused_without_validation_too():
    with pytest.raises(rowgrad.OutOfRangeError):
        raw_ops.SparseToDense([4], [3], 1.0, 0.0, validate_indices=False)


def test_what_does_not_fit_into_memory():
    with pytest.raises(rowgrad.OutOfMemoryError) as info:
        raw_ops.SparseToDense([[0, 0]], np.array([2**40, 2**40]), 1.0, 0.0)
    assert info.value.argument == "output_shape"
    with pytest.raises(rowgrad.OutOfMemoryError) as info:
        raw_ops.SparseTensorDenseMatMul([[0, 0]], [1.0], np.array([2**60, 1]), [[1.0, 2.0]])
    assert info.value.argument == "a_shape"


def entries(rows, columns, count, dtype):
    indices = np.stack([RNG.integers(0, rows, count), RNG.integers(0, columns, count)], axis=1)
    values = RNG.integers(-4, 5, count).astype(dtype)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.integers(-4, 5, count).astype(dtype)
    return indices, values.astype(dtype)


def multiply(indices, values, shape, b, adjoint_a, adjoint_b):
    """The same on dense matrices, in as many digits as there are."""
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    a = np.zeros(shape, wide)
    for (row, column), value in zip(indices, values.astype(wide), strict=True):
        a[row, column] += value
    b = b.astype(wide)
    return (a.conj().T if adjoint_a else a) @ (b.conj().T if adjoint_b else b)


@pytest.mark.parametrize("name", MATMUL.types["T"])
@pytest.mark.parametrize(("adjoint_a", "adjoint_b"), FLAGS)
@pytest.mark.parametrize("id_dtype", [np.int32, np.int64])
def test_product_of_every_type(name, adjoint_a, adjoint_b, id_dtype):
    """Small whole numbers, so that every type gives the exact product."""
    dtype = NUMPY[name]
    indices, values = entries(5, 7, 30, dtype)
    inner = 5 if adjoint_a else 7
    _, b = entries(1, 1, inner * 3, dtype)
    b = b.reshape((3, inner) if adjoint_b else (inner, 3))
    product = raw_ops.SparseTensorDenseMatMul(
        indices.astype(id_dtype), values, [5, 7], b, adjoint_a=adjoint_a, adjoint_b=adjoint_b
    )
    assert product.dtype == dtype
    wanted = multiply(indices, values, (5, 7), b, adjoint_a, adjoint_b)
    np.testing.assert_array_equal(product.astype(wanted.dtype), wanted)


@pytest.mark.parametrize("columns", [1, 3, 300])
def test_products_of_more_than_one_block(columns):
    indices, values = entries(50, 400, 3000 if columns > 3 else 400_000, np.float64)
    b = RNG.standard_normal((400, columns))
    product = raw_ops.SparseTensorDenseMatMul(indices, values, [50, 400], b)
    np.testing.assert_allclose(product, multiply(indices, values, (50, 400), b, False, False), rtol=1e-9, atol=1e-9)


def test_half_is_summed_in_float32():
    indices = np.stack([np.zeros(4096, np.int64), np.arange(4096)], axis=1)
    ones = np.ones(4096, ml_dtypes.bfloat16)
    product = raw_ops.SparseTensorDenseMatMul(indices, ones, [1, 4096], ones[:, None])
    assert product.astype(float).tolist() == [[4096.0]]


@pytest.mark.parametrize(("rows", "columns", "count"), [(0, 3, 0), (3, 0, 0), (2, 3, 0)])
def test_empty_products(rows, columns, count):
    product = raw_ops.SparseTensorDenseMatMul(
        np.empty((count, 2), np.int64), np.empty(count, np.float32), [rows, 3], np.ones((3, columns), np.float32)
    )
    assert product.shape == (rows, columns)
    assert not product.any()


@pytest.mark.parametrize(
    ("inputs", "argument", "code", "position"),
    [
        (([0], [1.0], [2, 2], [[1.0]]), "a_indices", "wrong-rank", None),
        (([[0, 0, 0]], [1.0], [2, 2], [[1.0]]), "a_indices", "length-mismatch", None),
        (([[0, 0]], [1.0, 2.0], [2, 2], [[1.0]]), "a_values", "length-mismatch", None),
        (([[0, 0]], [[1.0]], [2, 2], [[1.0]]), "a_values", "wrong-rank", None),
        (([[0, 0]], [1.0], [2, 2, 2], [[1.0]]), "a_shape", "length-mismatch", None),
        (([[0, 0]], [1.0], [2, -2], [[1.0]]), "a_shape", "negative-size", 1),
        (([[0, 0]], [1.0], [2, 2], [1.0]), "b", "wrong-rank", None),
        (([[0, 0]], [1.0], [2, 2], [[1.0]]), "b", "shape-mismatch", None),
        (([[0, 0], [2, 0]], [1.0, 1.0], [2, 1], [[1.0]]), "a_indices", "index-out-of-range", (1, 0)),
        (([[0, -1]], [1.0], [2, 1], [[1.0]]), "a_indices", "index-out-of-range", (0, 1)),
    ],
)
def test_product_names_what_is_wrong(inputs, argument, code, position):
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.SparseTensorDenseMatMul(*inputs)
    assert (info.value.argument, info.value.code, info.value.position) == (argument, code, position)


def test_shapes_before_anything_runs():
    assert infer(TO_DENSE, {"output_shape": (3,)}, {})["dense"] == (None, None, None)
    assert infer(TO_DENSE, {"sparse_indices": ("entries", 2)}, {})["dense"] == (None, None)
    assert infer(TO_DENSE, {"output_shape": (2,)}, {"output_shape": np.array([4, 5])})["dense"] == (4, 5)
    assert infer(TO_DENSE, {}, {})["dense"] is None
    assert infer(MATMUL, {"b": (3, "width")}, {})["product"] == (None, "width")
    values = {"a_shape": np.array([4, 5])}
    assert infer(MATMUL, {"b": (3, 4)}, values, {"adjoint_a": True, "adjoint_b": True})["product"] == (5, 3)
    for operator, shapes, known, argument in [
        (TO_DENSE, {"sparse_indices": ("n", 2), "output_shape": (3,)}, {}, "output_shape"),
        (TO_DENSE, {"sparse_indices": (4, 2), "sparse_values": (5,)}, {}, "sparse_values"),
        (MATMUL, {"a_indices": ("n", 3)}, {}, "a_indices"),
        (MATMUL, {"b": (3, 4)}, values, "b"),
    ]:
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            infer(operator, shapes, known)
        assert info.value.argument == argument


# Gradients


def transposes(operator, inputs, names, **attributes):
    """Whether ⟨operator(x), d⟩ = ⟨x, gradient⟩ for all the inputs `names` together, in which it is linear."""
    result = getattr(raw_ops, operator.name)(**inputs, **attributes)
    flow = RNG.standard_normal(result.shape)
    gradients = backward(operator, inputs, {operator.outputs[0].name: flow}, attributes=attributes)
    for name in operator.gradient:
        assert gradients[name].shape == inputs[name].shape
    total = sum(float((inputs[name] * gradients[name]).sum()) for name in names)
    return total == pytest.approx(float((result * flow).sum()), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("indices", "shape", "values"),
    [
        (2, [4], ()),
        ([1, 3], [4], (2,)),
        ([1, 3], [4], ()),
        ([[1], [3]], [4], (2,)),
        ([[0, 1, 0], [1, 0, 1]], [2, 2, 2], (2,)),
        ([[0, 1], [1, 0]], [2, 3], ()),
        (np.empty((0, 2), np.int32), [2, 3], (0,)),
        (np.empty((0, 2), np.int32), [2, 3], ()),
    ],
)
def test_gradients_of_to_dense(indices, shape, values):
    inputs = {"sparse_indices": np.array(indices, np.int64), "output_shape": np.array(shape),
              "sparse_values": np.array(RNG.standard_normal(values)),
              "default_value": np.array(RNG.standard_normal())}  # fmt: skip
    assert transposes(TO_DENSE, inputs, ["sparse_values", "default_value"])


def test_the_gradient_of_the_default_where_indices_repeat():
    inputs = {
        "sparse_indices": [2, 0, 2],
        "output_shape": [3],
        "sparse_values": np.ones(3),
        "default_value": np.ones(()),
    }
    gradients = backward(TO_DENSE, inputs, {"dense": np.array([1.0, 2.0, 4.0])}, attributes={"validate_indices": False})
    assert gradients["default_value"] == 2.0


@pytest.mark.parametrize(("adjoint_a", "adjoint_b"), FLAGS)
@pytest.mark.parametrize("count", [0, 12])
def test_gradients_of_the_product(adjoint_a, adjoint_b, count):
    indices, _ = entries(5, 7, count, np.float64)
    inner = 5 if adjoint_a else 7
    inputs = {"a_indices": indices, "a_values": RNG.standard_normal(count), "a_shape": np.array([5, 7]),
              "b": RNG.standard_normal((3, inner) if adjoint_b else (inner, 3))}  # fmt: skip
    for name in ("a_values", "b"):
        assert transposes(MATMUL, inputs, [name], adjoint_a=adjoint_a, adjoint_b=adjoint_b)


@pytest.mark.parametrize(("adjoint_a", "adjoint_b"), FLAGS)
def test_second_gradients_of_the_product(adjoint_a, adjoint_b):
    page = Page()
    inner = 2 if adjoint_a else 3
    page.add("Const", id="a", value=[1.0, -2.0, 3.0], dtype="float64")
    page.add("Const", id="b", value=RNG.standard_normal((4, inner) if adjoint_b else (inner, 4)))
    page.add("SparseTensorDenseMatMul", id="product", a_indices=[[0, 0], [1, 2], [1, 0]], a_values="a", a_shape=[2, 3],
             b="b", adjoint_a=adjoint_a, adjoint_b=adjoint_b)  # fmt: skip
    page.add("Square", id="y", x="product")
    first = page.add_gradients("y", ["a", "b"])
    page.add("Square", id="da", x=first["a"])
    page.add("Square", id="db", x=first["b"])
    for y in ("y", "da", "db"):
        assert Session(page).check_gradients(y, ["a", "b"]).ok


def test_second_gradients_of_to_dense():
    page = Page()
    page.add("Const", id="values", value=[1.0, -2.0], dtype="float64")
    page.add("Const", id="default", value=0.5, dtype="float64")
    page.add("SparseToDense", id="dense", sparse_indices=[[0, 1], [2, 0]], output_shape=[3, 2], sparse_values="values",
             default_value="default")  # fmt: skip
    page.add("Square", id="y", x="dense")
    first = page.add_gradients("y", ["values", "default"])
    page.add("Square", id="d_values", x=first["values"])
    page.add("Square", id="d_default", x=first["default"])
    for y in ("y", "d_values", "d_default"):
        assert Session(page).check_gradients(y, ["values", "default"]).ok
