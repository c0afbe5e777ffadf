"""`rowgrad.sparse`: the same results for every kind of array, gradients, conversions, printing, checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import sparse
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError

A = [[0, 1], [1, 2], [2, 0]], [5.0, -3.0, 7.0], [3, 3]
B = [[0, 1], [1, 1], [2, 2]], [1.0, -2.0, 4.0], [3, 3]
DENSE = np.arange(9, dtype=np.float32).reshape(3, 3)
Make = Callable[[Any], Any]


def tensor(make: Make, parts: Any, dtype: Any = np.float32) -> rowgrad.SparseTensor:
    indices, values, shape = parts
    return rowgrad.SparseTensor(np.array(indices), make(np.array(values, dtype)), shape)


def plain(result: Any) -> Any:
    """Nested lists of everything that a function gives."""
    if isinstance(result, rowgrad.SparseTensor):
        return [plain(result.indices), plain(result.values), list(result.dense_shape)]
    if isinstance(result, list | tuple):
        return [plain(item) for item in result]
    return np.asarray(result).tolist()


CALLS: dict[str, tuple[Callable[[Any, Any, Any, Make], Any], Any]] = {
    "add": (lambda a, b, d, m: sparse.add(a, b), [[[0, 1], [1, 1], [1, 2], [2, 0], [2, 2]], [6, -2, -3, 7, 4], [3, 3]]),
    "add a threshold": (
        lambda a, b, d, m: sparse.add(a, b, 6.5),
        [[[1, 1], [1, 2], [2, 0], [2, 2]], [-2, -3, 7, 4], [3, 3]],
    ),
    "add dense": (lambda a, b, d, m: sparse.add(d, a), [[0, 6, 2], [3, 4, 2], [13, 7, 8]]),
    "maximum": (lambda a, b, d, m: sparse.maximum(a, b).values, [5, 0, 0, 7, 4]),
    "minimum": (lambda a, b, d, m: sparse.minimum(a, b).values, [1, -2, -3, 0, 0]),
    "reduce_sum": (lambda a, b, d, m: sparse.reduce_sum(a, -1), [5, -3, 7]),
    "reduce_sum of all": (lambda a, b, d, m: sparse.reduce_sum(a), 9),
    "reduce_sum, sparse": (
        lambda a, b, d, m: sparse.reduce_sum(b, 0, keepdims=True, output_is_sparse=True),
        [[[0, 1], [0, 2]], [-1, 4], [1, 3]],
    ),
    "reduce_max": (lambda a, b, d, m: sparse.reduce_max(b, [0], keepdims=True), [[0, 1, 4]]),
    "softmax": (lambda a, b, d, m: sparse.softmax(a).values, [1, 1, 1]),
    "sparse_dense_matmul": (
        lambda a, b, d, m: sparse.sparse_dense_matmul(a, d),
        [[15, 20, 25], [-18, -21, -24], [0, 7, 14]],
    ),
    "sparse_dense_matmul, transposed": (
        lambda a, b, d, m: sparse.sparse_dense_matmul(a, d, adjoint_a=True, adjoint_b=True),
        [[14, 35, 56], [0, 15, 30], [-3, -12, -21]],
    ),
    "dense first": (lambda a, b, d, m: sparse.sparse_dense_matmul(d, a), [[14, 0, -3], [35, 15, -12], [56, 30, -21]]),
    "sampled_addmm": (
        lambda a, b, d, m: sparse.sampled_addmm(a.indices, a.values, a.dense_shape, d, d, beta=2.0, alpha=0.5).values,
        [19, 27, 48.5],
    ),
    "reorder": (
        lambda a, b, d, m: sparse.reorder(tensor(m, ([[1, 0], [0, 1]], [1.0, 2.0], [2, 2]))),
        [[[0, 1], [1, 0]], [2, 1], [2, 2]],
    ),
    "reshape": (lambda a, b, d, m: sparse.reshape(a, [9]), [[[1], [5], [6]], [5, -3, 7], [9]]),
    "transpose": (lambda a, b, d, m: sparse.transpose(a), [[[0, 2], [1, 0], [2, 1]], [7, 5, -3], [3, 3]]),
    "transpose by perm": (
        lambda a, b, d, m: sparse.transpose(a, [0, 1]),
        [[[0, 1], [1, 2], [2, 0]], [5, -3, 7], [3, 3]],
    ),
    "expand_dims": (
        lambda a, b, d, m: sparse.expand_dims(a, 1),
        [[[0, 0, 1], [1, 0, 2], [2, 0, 0]], [5, -3, 7], [3, 1, 3]],
    ),
    "reset_shape": (lambda a, b, d, m: list(sparse.reset_shape(b).dense_shape), [3, 3]),
    "reset_shape to larger": (lambda a, b, d, m: list(sparse.reset_shape(b, [5, 4]).dense_shape), [5, 4]),
    "retain": (
        lambda a, b, d, m: sparse.retain(a, np.array([True, False, True])),
        [[[0, 1], [2, 0]], [5, 7], [3, 3]],
    ),
    "slice": (lambda a, b, d, m: sparse.slice(a, [1, 0], [2, 3]), [[[0, 2], [1, 0]], [-3, 7], [2, 3]]),
    "split": (
        lambda a, b, d, m: sparse.split(a, 2, 0),
        [[[[0, 1], [1, 2]], [5, -3], [2, 3]], [[[0, 0]], [7], [1, 3]]],
    ),
    "concat": (
        lambda a, b, d, m: sparse.concat(-1, [a, b]),
        [[[0, 1], [0, 4], [1, 2], [1, 4], [2, 0], [2, 5]], [5, 1, -3, -2, 7, 4], [3, 6]],
    ),
    "concat of other lengths": (
        lambda a, b, d, m: sparse.concat(0, [a, sparse.reset_shape(b, [3, 5])], expand_nonconcat_dims=True).dense_shape,
        [6, 5],
    ),
    "fill_empty_rows": (
        lambda a, b, d, m: sparse.fill_empty_rows(sparse.slice(a, [1, 0], [2, 2]), 9.0),
        [[[[0, 0], [1, 0]], [9, 7], [2, 2]], [True, False]],
    ),
    "map_values": (lambda a, b, d, m: sparse.map_values(lambda x, y: x * y, a, a).values, [25, 9, 49]),
    "to_dense": (lambda a, b, d, m: sparse.to_dense(a), [[0, 5, 0], [0, 0, -3], [7, 0, 0]]),
    "to_dense with a default": (lambda a, b, d, m: a.to_dense(1.5), [[1.5, 5, 1.5], [1.5, 1.5, -3], [7, 1.5, 1.5]]),
    "from_dense": (lambda a, b, d, m: sparse.from_dense(sparse.to_dense(b)), [*B]),
    "to_indicator": (
        lambda a, b, d, m: sparse.to_indicator(tensor(m, ([[0, 0], [0, 1], [1, 0]], [2, 0, 1], [2, 2]), np.int32), 3),
        [[True, False, True], [False, True, False]],
    ),
    "segment_sum": (lambda a, b, d, m: sparse.segment_sum(d, [0, 2], [0, 0], 2), [[6, 8, 10], [0, 0, 0]]),
    "segment_mean": (lambda a, b, d, m: sparse.segment_mean(d, [0, 2], [0, 0]), [[3, 4, 5]]),
    "segment_sqrt_n": (lambda a, b, d, m: sparse.segment_sqrt_n(d, [0], [0]), [[0, 1, 2]]),
    "mask": (lambda a, b, d, m: sparse.mask((d, np.array([4, 5, 6])), [5]), [[[0, 1, 2], [6, 7, 8]], [4, 6]]),
}


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", CALLS)
def test_results(name: str, kind: str) -> None:
    make: Make = np.asarray
    if kind == "torch":
        make = framework("torch").from_numpy
    elif kind == "jax":
        framework("jax")
        import jax.numpy as jnp

        make = jnp.asarray
    call, expected = CALLS[name]
    found = call(tensor(make, A), tensor(make, B), make(DENSE), make)
    assert plain(found) == plain(expected)
    if isinstance(found, rowgrad.SparseTensor):
        assert type(found.values) is type(make(DENSE))


def test_every_name_of_tensorflow() -> None:
    missing = {"bincount", "cross", "cross_hashed"}  # they come with counts and hashes
    names = """SparseTensor add bincount concat cross cross_hashed expand_dims eye fill_empty_rows from_dense map_values
        mask maximum minimum reduce_max reduce_sum reorder reset_shape reshape retain sampled_addmm segment_mean
        segment_sqrt_n segment_sum slice softmax sparse_dense_matmul split to_dense to_indicator transpose"""
    assert set(names.split()) - missing == set(sparse.__all__)


def loss(values: Any, indices: Any = A[0]) -> Any:
    """A number that every function has a part in."""
    a = rowgrad.SparseTensor(indices, values, [3, 3])
    b = sparse.concat(1, [a, sparse.softmax(a)])
    c = sparse.add(b, sparse.maximum(b, sparse.map_values(lambda x: x * x, b)))
    d = sparse.minimum(sparse.reorder(sparse.transpose(c)), sparse.transpose(b))
    product = sparse.sparse_dense_matmul(sparse.transpose(c), sparse.to_dense(a))
    parts = sparse.split(c, 2, 1)
    filled, _ = sparse.fill_empty_rows(sparse.retain(a, [True, False, True]), 2.0)
    return (
        (product * product).sum()
        + (sparse.reduce_sum(c, 1) ** 2).sum()
        + sparse.reduce_max(d, 0).sum()
        + (sparse.to_dense(parts[0]) ** 2).sum()
        + sparse.reduce_sum(sparse.slice(c, [0, 1], [2, 3]), 0, output_is_sparse=True).values.sum()
        + (sparse.add(filled, sparse.to_dense(a)) ** 2).sum()
    )


def test_gradients_in_pytorch() -> None:
    torch = framework("torch")
    values = torch.tensor([0.5, -0.3, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, values)
    assert torch.autograd.gradgradcheck(loss, values)


def test_gradients_in_jax() -> None:
    jax = framework("jax")
    torch = framework("torch")
    import jax.numpy as jnp

    values = torch.tensor([0.5, -0.3, 0.7], dtype=torch.float64, requires_grad=True)
    loss(values).backward()
    with jax.enable_x64(True):
        found = jax.grad(loss)(jnp.array([0.5, -0.3, 0.7]))
    np.testing.assert_allclose(np.asarray(found), values.grad.numpy(), rtol=1e-12)


def test_jit_in_jax() -> None:
    jax = framework("jax")
    import jax.numpy as jnp

    @jax.jit
    def total(values: Any) -> Any:
        sp = rowgrad.SparseTensor(np.array(A[0]), values, (3, 3))
        return sparse.reduce_sum(sparse.softmax(sp), 1) + sparse.to_dense(sp).sum(axis=1)

    assert total(jnp.array([5.0, -3.0, 7.0])).tolist() == [6, -2, 8]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_what_other_libraries_have() -> None:
    torch, jax = framework("torch"), framework("jax")
    framework("scipy")
    from jax.experimental import sparse as jax_sparse
    from scipy.sparse import coo_matrix, csr_matrix

    dense = np.array([[0, 5, 0], [0, 0, -3], [7, 0, 0]], np.float32)
    whole = torch.from_numpy(dense)
    bcoo = jax_sparse.BCOO.fromdense(jax.numpy.asarray(dense))
    entries = (np.array(A[0]), dense[dense != 0], [3, 3])
    for given in (whole.to_sparse(), whole.to_sparse_csr(), csr_matrix(dense), coo_matrix(dense), bcoo, entries):
        assert plain(sparse.reduce_sum(given, 1)) == [5, -3, 7]
    sp = sparse.from_dense(dense)
    assert plain(sp.to_scipy().toarray()) == dense.tolist()
    assert sp.to_scipy("csr").format == "csr"
    assert plain(sp.to_torch().to_dense()) == dense.tolist()
    assert plain(sp.to_torch("csr").to_dense()) == dense.tolist()
    assert plain(sp.to_jax().todense()) == dense.tolist()
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    rowgrad.SparseTensor([[0], [2]], values, [3]).to_torch().to_dense().sum().backward()
    assert plain(values.grad) == [1, 1]


def test_printing() -> None:
    many = rowgrad.SparseTensor(np.arange(100)[:, None], np.arange(100.0), [100])
    lines = str(many).splitlines()
    assert lines[0] == "SparseTensor of shape [100], 100 entries of float64"
    assert lines[1:4] == ["index   | value", "[0]     | 0.0", "[1]     | 1.0"]
    assert lines[6] == "…       | …"
    assert lines[-1] == "[99]    | 99.0"
    assert repr(many) == "SparseTensor(dense_shape=[100], entries=100, dtype=float64)"
    assert str(rowgrad.SparseTensor(np.empty((0, 2), int), [], [2, 2])).startswith(
        "SparseTensor of shape [2, 2], 0 entries"
    )


def test_checks() -> None:
    tensor(np.asarray, A).check()
    with pytest.raises(InvalidArgumentError, match="the same as the one before it"):
        rowgrad.SparseTensor([[0], [0]], [1.0, 2.0], [2]).check()
    with pytest.raises(OutOfRangeError, match=r"indices\[1, 0\] is 2;"):
        rowgrad.SparseTensor([[0], [2]], [1.0, 2.0], [2]).check()
    with pytest.raises(InvalidArgumentError, match="values has length 1, but indices has 2"):
        rowgrad.SparseTensor([[0], [1]], [1.0], [2])
    with pytest.raises(InvalidArgumentError, match="dense_shape has length 2"):
        rowgrad.SparseTensor([[0], [1]], [1.0, 2.0], [2, 2])
    with pytest.raises(DTypeError, match="it must be a sparse tensor"):
        sparse.reorder(np.ones((2, 2)))
    with pytest.raises(OutOfRangeError, match=r"values\[0\] is 5; allowed: 0 to 2"):
        sparse.to_indicator(rowgrad.SparseTensor([[0, 0]], [5], [1, 1]), 3)
    with pytest.raises(InvalidArgumentError, match="perm is"):
        sparse.transpose(tensor(np.asarray, A), [0, 0])
    with pytest.raises(InvalidArgumentError, match="smaller than"):
        sparse.reset_shape(tensor(np.asarray, A), [2, 3])
    with pytest.raises(InvalidArgumentError, match="do not have the same indices"):
        sparse.map_values(np.add, tensor(np.asarray, A), tensor(np.asarray, B))
