"""`rowgrad.sparse`: the same results for every kind of array, gradients, conversions, printing, checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import sparse
from rowgrad.errors import DTypeError, InvalidArgumentError, OutOfRangeError
from sparse_cases import CALLS, DENSE, A, B, Make, plain, tensor


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
    if isinstance(found, rowgrad.SparseTensor) and name != "cross":  # only NumPy has arrays of text
        assert type(found.values) is type(make(DENSE))


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
    with pytest.raises(OutOfRangeError, match=r"indices\[1, 0\] is 2; .*0 to 1"):
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
    with pytest.raises(InvalidArgumentError, match="have different indices"):
        sparse.map_values(np.add, tensor(np.asarray, A), tensor(np.asarray, B))


SP = rowgrad.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
HUGE = rowgrad.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2**63 - 1, 2**63 - 1])


@pytest.mark.parametrize("shape", [[2**64, 2], [-1, 2], [-(2**63), 2], [float("nan"), 2], ["a", "b"]], ids=str)
def test_shapes_that_cannot_be(shape: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="dense_shape is"):
        rowgrad.SparseTensor([[0, 0]], [1.0], shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sparse.sparse_dense_matmul([[1.0]], [[1.0]]),
        lambda: sparse.sparse_dense_matmul(SP, "x"),
        lambda: sparse.add(SP, object()),
        lambda: sparse.reshape(SP, [2.5]),
        lambda: sparse.reshape(SP, [2**64]),
        lambda: sparse.reshape(SP, SP),
        lambda: sparse.transpose(SP, [0.0, 1.0]),
        lambda: sparse.slice(SP, [0.5, 0], [1, 1]),
        lambda: sparse.reset_shape(SP, "x"),
        lambda: sparse.reduce_sum(SP, axis="x"),
        lambda: sparse.reduce_sum(SP, axis=2**70),
        lambda: sparse.expand_dims(SP, "x"),
        lambda: sparse.concat(0, SP),
        lambda: sparse.concat(0, None),
        lambda: sparse.concat(0, [HUGE, HUGE]),
        lambda: sparse.split(HUGE, 2**40, 0),
        lambda: sparse.split(SP, 1.5, 0),
        lambda: sparse.map_values(None, SP),
        lambda: sparse.mask(SP, [0]),
        lambda: sparse.to_indicator(SP, 3),
        lambda: sparse.to_indicator(rowgrad.SparseTensor([[0]], [0], [1]), "x"),
        lambda: sparse.from_dense(SP),
        lambda: sparse.eye(1.5),
        lambda: sparse.eye(2**62),
        lambda: sparse.sampled_addmm([[0, 0]], [1.0], [1, 1], [1.0], [1.0]),
        lambda: sparse.to_dense(HUGE),
    ],
)
def test_arguments_that_cannot_be(call: Any) -> None:
    with pytest.raises(rowgrad.RowgradError):
        call()


def test_entries_that_pytorch_does_not_take() -> None:
    framework("torch")
    for sp in (HUGE, rowgrad.SparseTensor([[5]], [1.0], [2]), rowgrad.SparseTensor([[0]], ["a"], [2])):
        with pytest.raises(InvalidArgumentError, match="PyTorch makes no sparse tensor"):
            sp.to_torch()
