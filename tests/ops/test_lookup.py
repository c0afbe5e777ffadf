"""The embedding look-ups: TensorFlow's recorded answers for NumPy, PyTorch and JAX tables, their gradients, errors."""

from typing import Any

import numpy as np
import pytest

import golden
import rowgrad
from golden import Case, assert_same
from optional import framework
from rowgrad._runtime import arrays

CASES = [case for case in golden.load() if case.op.startswith("nn.")]
TABLE = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]], np.float32)
IDS = (np.array([[0, 0], [0, 1], [2, 0]]), np.array([1, 3, 0]), np.array([4, 2]))


def look_up(case: Case, params: Any, give: Any) -> Any:
    ids = tuple(give(case.args[name]) for name in ("ids_indices", "ids_values", "ids_shape"))
    weights = (ids[0], give(case.args["weights"]), ids[2]) if "weights" in case.args else None
    return getattr(rowgrad, case.op.removeprefix("nn."))(params, ids, weights, **case.attrs)


def upstream(output: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """1, 2, 3, …, as when the answers were recorded."""
    return np.arange(1, output.size + 1).reshape(output.shape).astype(output.dtype)


def test_there_are_cases() -> None:
    assert len(CASES) == 17
    assert {case.attrs["combiner"] for case in CASES} == {"sum", "mean", "sqrtn"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_numpy(case: Case) -> None:
    assert case.out is not None
    assert_same(case.out["output"], look_up(case, case.args["params"], lambda array: array), case.cmp, case.terms)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_torch_and_its_gradient(case: Case) -> None:
    framework("torch")
    assert case.out is not None
    params = arrays.TORCH.hand_back(case.args["params"].copy()).requires_grad_()
    output = look_up(case, params, arrays.TORCH.hand_back)
    assert_same(case.out["output"], arrays.adopt(output.detach()), case.cmp, case.terms)
    output.backward(arrays.TORCH.hand_back(upstream(case.out["output"])))
    assert_same(case.out["d_params"], arrays.adopt(params.grad), case.cmp, case.terms)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_jax_and_its_gradient(case: Case) -> None:
    jax = framework("jax")
    assert case.out is not None
    give = jax.numpy.asarray
    output, back = jax.vjp(lambda params: look_up(case, params, give), give(case.args["params"]))
    assert_same(case.out["output"], np.asarray(output), case.cmp, case.terms)
    (d_params,) = back(give(upstream(case.out["output"])))
    assert_same(case.out["d_params"], np.asarray(d_params), case.cmp, case.terms)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("default", [None, 2])
def test_gradients_of_weights(combiner: str, default: int | None) -> None:
    torch = framework("torch")
    weights = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64, requires_grad=True)
    table = torch.tensor(TABLE, dtype=torch.float64, requires_grad=True)
    ids = tuple(map(torch.tensor, IDS))

    def pooled(table: Any, weights: Any) -> Any:
        return rowgrad.safe_embedding_lookup_sparse(table, ids, (ids[0], weights, ids[2]), combiner, default)

    assert torch.autograd.gradcheck(pooled, (table, weights))
    assert torch.autograd.gradgradcheck(pooled, (table, weights))


def test_jax_gradients_of_weights() -> None:
    jax, torch = framework("jax"), framework("torch")

    def pooled(table: Any, weights: Any) -> Any:
        return rowgrad.safe_embedding_lookup_sparse(table, IDS, (IDS[0], weights, IDS[2]), "mean", 2)

    values = np.array([0.5, 2.0, 1.5], np.float32)
    grads = jax.grad(lambda *args: (pooled(*args) ** 2).sum(), argnums=(0, 1))(*map(jax.numpy.asarray, (TABLE, values)))
    expected = [torch.tensor(array, requires_grad=True) for array in (TABLE, values)]
    (pooled(*expected) ** 2).sum().backward()
    for ours, theirs in zip(grads, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_rows_end_with_the_last_id() -> None:
    assert rowgrad.embedding_lookup_sparse(TABLE, IDS).tolist() == [[3, 30], [0, 0], [1, 10]]
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, IDS).tolist() == [[3, 30], [0, 0], [1, 10], [0, 0]]


def test_an_object_with_the_attributes_will_do() -> None:
    class Sparse:
        indices, values, dense_shape = IDS

    assert rowgrad.embedding_lookup_sparse(TABLE, Sparse(), combiner="sum").tolist() == [[6, 60], [0, 0], [1, 10]]


def test_higher_ranks_keep_their_shape() -> None:
    ids = ([[0, 1, 0], [1, 0, 1], [1, 0, 2]], [1, 2, -5], [2, 2, 3])
    pooled = rowgrad.safe_embedding_lookup_sparse(TABLE, ids, default_id=0)
    assert pooled.tolist() == [[[1, 10], [2, 20]], [[3, 30], [1, 10]]]


def test_unsorted_ids_are_only_safe_in_the_safe_one() -> None:
    ids = (IDS[0][::-1], IDS[1][::-1], IDS[2])
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, ids).tolist() == [[3, 30], [0, 0], [1, 10], [0, 0]]
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"decrease|smaller than"):
        rowgrad.embedding_lookup_sparse(TABLE, ids)


def test_a_row_that_is_filled_with_zeros_reads_no_row_of_the_table() -> None:
    table = np.full((4, 2), np.nan, np.float32)
    assert rowgrad.safe_embedding_lookup_sparse(table, ([[1, 0]], [-1], [2, 1])).tolist() == [[0, 0], [0, 0]]


def test_weights_that_add_up_to_nothing() -> None:
    weights = (IDS[0], np.array([1.0, -1.0, 1.0], np.float32), IDS[2])
    assert rowgrad.embedding_lookup_sparse(TABLE, IDS, weights, "mean").tolist() == [[0, 0], [0, 0], [1, 10]]
    weights = (IDS[0], np.array([0.0, -1.0, 2.0], np.float32), IDS[2])  # not above 0: dropped
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, IDS, weights, "mean")[0].tolist() == [0, 0]
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, IDS, weights, "sum")[0].tolist() == [-4, -40]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_weights_take_the_type_of_the_sums(kind: str) -> None:
    """As in TensorFlow: of a table of float64, weights of float32 are widened before anything is divided."""
    give = np.asarray if kind == "numpy" else framework("torch").tensor
    table, weights = give(TABLE.astype(np.float64)), (IDS[0], give(np.array([0.1, 0.2, 0.3], np.float32)), IDS[2])
    pooled = np.asarray(rowgrad.embedding_lookup_sparse(table, IDS, weights, "mean"))
    wide = weights[1].astype(np.float64) if kind == "numpy" else weights[1].double().numpy()
    assert pooled.dtype == np.float64
    assert pooled[0, 0] == pytest.approx((wide[0] * 2 + wide[1] * 4) / (wide[0] + wide[1]), rel=1e-15)


def test_no_ids_at_all() -> None:
    nothing = (np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.array([2, 0]))
    assert rowgrad.embedding_lookup_sparse(TABLE, nothing).shape == (0, 2)
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, nothing).tolist() == [[0, 0], [0, 0]]
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, nothing, default_id=3).tolist() == [[4, 40], [4, 40]]
    assert rowgrad.safe_embedding_lookup_sparse(TABLE, ([], [], [0, 3])).shape == (0, 2)


@pytest.mark.parametrize(("ids", "message"), [
    (([[0, 0]], [4], [1, 1]), r"indices\[0\] is 4"),
    (([[0, 0]], [1, 2], [1, 1]), "sp_ids.values has length 2"),
    (([[0, 0]], [1], [1]), "sp_ids.dense_shape has length 1"),
    (([0], [1], [1]), "sp_ids.indices has shape"),
    (([[0, 0]], [1], [1, -1]), r"sp_ids.dense_shape\[1\] is -1"),
    (([[5, 0]], [1], [1, 1]), r"sp_ids.indices\[0, 0\] is 5"),
    ("ids", "must be a sparse tensor"),
])  # fmt: skip
def test_bad_ids(ids: Any, message: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match=message):
        rowgrad.safe_embedding_lookup_sparse(TABLE, ids)


def test_bad_settings() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="one of mean, sqrtn, sum"):
        rowgrad.embedding_lookup_sparse(TABLE, IDS, combiner="max")
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"sp_weights\.values has length 1"):
        rowgrad.embedding_lookup_sparse(TABLE, IDS, (IDS[0], np.ones(1, np.float32), IDS[2]))
    with pytest.raises(rowgrad.DTypeError):
        rowgrad.embedding_lookup_sparse(TABLE, (IDS[0], IDS[1] * 1.5, IDS[2]))
    with pytest.raises(rowgrad.OutOfRangeError):
        rowgrad.safe_embedding_lookup_sparse(TABLE, IDS, default_id=9)
    with pytest.raises(rowgrad.OutOfRangeError):
        rowgrad.safe_embedding_lookup_sparse(TABLE, IDS, default_id=-1)
