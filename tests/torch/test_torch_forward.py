"""Derivatives forward: `jvp`, `jacfwd`, `hessian` and `torch.autograd.forward_ad` of operators and layers."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from optional import framework

torch = framework("torch")
sys.path.insert(0, str(Path(__file__).parent))

from tensor_cases import DIFFERENTIABLE, example, overload, wanted  # noqa: E402
from torch.autograd import forward_ad, gradcheck  # noqa: E402

import rowgrad.torch as rt  # noqa: E402
from rowgrad import optim  # noqa: E402
from rowgrad.errors import OutOfRangeError  # noqa: E402

# PyTorch's own modules use what they deprecate.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

IDS = torch.tensor([0, 3, 3, 1, 0])
BAGS = torch.tensor([0, 0, 1, 3, 3])


def drawn(*shape: int, seed: int = 1, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pooled(data: Any) -> Any:
    return rt.sparse_segment_mean(data, IDS, BAGS, 4)


def called(name: str) -> tuple[list[Any], Any]:
    """The arguments of the worked example that can change, and the fractions that they give."""
    values, attributes = example(name, floats=torch.float64)
    leaves, replaced = wanted(values)

    def results(*tensors: Any) -> tuple[Any, ...]:
        found = overload(name)(*replaced(*tensors), **attributes)
        return tuple(x for x in (found if isinstance(found, tuple) else (found,)) if x.is_floating_point())

    return leaves, results


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_forward_are_those_of_differences(name: str) -> None:
    leaves, results = called(name)
    assert gradcheck(results, leaves, check_forward_ad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivatives_are_the_same_in_any_order(name: str) -> None:
    """Forward over backward, forward over forward and backward over forward, beside backward over backward."""
    leaves, results = called(name)

    def loss(*tensors: Any) -> Any:
        return sum(torch.sin(x).sum() for x in results(*tensors))

    leaves = [leaf.detach() for leaf in leaves]
    jacfwd, jacrev = torch.func.jacfwd, torch.func.jacrev
    every = tuple(range(len(leaves)))
    expected = jacrev(jacrev(loss, every), every)(*leaves)
    for outer, inner in ((jacfwd, jacrev), (jacfwd, jacfwd), (jacrev, jacfwd)):
        torch.testing.assert_close(outer(inner(loss, every), every)(*leaves), expected)


def test_a_sum_changes_by_the_sum_of_the_changes_to_the_bit() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        data, change = drawn(5, 3, dtype=dtype), drawn(5, 3, seed=2, dtype=dtype)
        value, tangent = torch.func.jvp(pooled, (data,), (change,))
        assert torch.equal(value, pooled(data)) and torch.equal(tangent, pooled(change))
        assert tangent.dtype == dtype


def test_the_exact_hessian() -> None:
    """Of |x|² over bags of one id each: 2 for each time that a row is taken."""
    ids, bags = torch.tensor([0, 2, 2]), torch.tensor([0, 1, 2])
    hessian = torch.func.hessian(lambda x: rt.sparse_segment_sum(x, ids, bags, 3).square().sum())(drawn(3, 1))
    assert torch.equal(hessian.squeeze(), torch.diag(torch.tensor([2.0, 0.0, 4.0], dtype=torch.float64)))


def test_a_batch_of_directions() -> None:
    data, changes = drawn(5, 2), drawn(7, 5, 2, seed=2)
    found = torch.func.vmap(lambda change: torch.func.jvp(pooled, (data,), (change,))[1])(changes)
    assert torch.equal(found, torch.stack([pooled(change) for change in changes]))
    both = torch.func.vmap(lambda data, change: torch.func.jvp(pooled, (data,), (change,))[1])(changes, changes)
    assert torch.equal(both, found)


def test_dual_tensors() -> None:
    data, change = drawn(5, 2).requires_grad_(), drawn(5, 2, seed=2)
    with forward_ad.dual_level():
        result = pooled(forward_ad.make_dual(data, change)) ** 2
        value, tangent = forward_ad.unpack_dual(result)
        assert torch.equal(tangent, 2 * pooled(data) * pooled(change))
        (back,) = torch.autograd.grad(tangent.sum(), data)
    assert torch.allclose(back, torch.func.grad(lambda x: (2 * pooled(x) * pooled(change)).sum())(data))
    assert value.requires_grad


def test_what_does_not_change_has_no_tangent() -> None:
    weights, data = drawn(5), drawn(5, 2)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(pooled(data)).tangent is None
        with torch.no_grad():
            dual = forward_ad.make_dual(weights, torch.ones_like(weights))
            result = rt.sparse_segment_weighted_sum(data, dual, IDS, BAGS, 4)
        assert torch.equal(forward_ad.unpack_dual(result).tangent, rt.sparse_segment_sum(data, IDS, BAGS, 4))


def test_nothing_and_nan() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    value, tangent = torch.func.jvp(lambda x: rt.sparse_segment_sum(x, none, none, 2), (drawn(0, 3),), (drawn(0, 3),))
    assert torch.equal(tangent, torch.zeros(2, 3, dtype=torch.float64)) and torch.equal(value, tangent)
    change = torch.zeros(5, 2, dtype=torch.float64)
    change[1] = torch.nan  # taken by the last bag only
    _, tangent = torch.func.jvp(pooled, (torch.full((5, 2), torch.nan).double(),), (change,))
    assert tangent.isnan().any(1).tolist() == [False, False, False, True]


def test_a_bad_id_is_told() -> None:
    with pytest.raises(OutOfRangeError, match="indices"):
        torch.func.jvp(lambda x: rt.sparse_segment_sum(x, IDS + 9, BAGS, 4), (drawn(5, 2),), (drawn(5, 2),))


def test_in_other_threads() -> None:
    data, changes = drawn(5, 2), [drawn(5, 2, seed=i) for i in range(20)]
    with ThreadPoolExecutor(4) as pool:
        # The levels of forward_ad are the process's, so each thread takes its turn; kernels run where they are called.
        found = [pool.submit(torch.func.jvp, pooled, (data,), (change,)).result()[1] for change in changes]
    assert all(torch.equal(one, pooled(change)) for one, change in zip(found, changes, strict=True))


def bag(**settings: Any) -> Any:
    return rt.EmbeddingBag(5, 2, _weight=drawn(5, 2), **settings)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("form", ["matrix", "offsets", "segment_ids"])
def test_layers(combiner: str, sparse: bool, form: str) -> None:
    layer = bag(combiner=combiner, sparse=sparse)
    given = {"matrix": (IDS[:4].reshape(2, 2),), "offsets": (IDS, torch.tensor([0, 2, 2])),
             "segment_ids": (IDS,)}[form]  # fmt: skip
    named = {"segment_ids": BAGS, "num_bags": 4} if form == "segment_ids" else {}
    table, change = layer.weight.detach().clone(), drawn(5, 2, seed=2)

    def run(weight: Any) -> Any:
        return torch.func.functional_call(layer, {"weight": weight}, given, named)

    eps = 1e-6
    expected = (run(table + eps * change) - run(table - eps * change)) / (2 * eps)
    value, tangent = torch.func.jvp(run, (table,), (change,))
    torch.testing.assert_close(tangent, expected.detach(), rtol=1e-6, atol=1e-8)
    assert torch.equal(value, layer(*given, **named))
    with forward_ad.dual_level():  # as PyTorch's tutorial has it
        del layer.weight
        layer.weight = forward_ad.make_dual(table, change)
        assert torch.equal(forward_ad.unpack_dual(layer(*given, **named)).tangent, tangent)


def test_layers_with_weights_that_change() -> None:
    layer, weights = bag(combiner="mean", sparse=False), drawn(5).abs() + 0.1
    offsets = torch.tensor([0, 2, 2])
    assert gradcheck(lambda w: layer(IDS, offsets, w), weights.requires_grad_(), check_forward_ad=True)
    hessian = torch.func.hessian(lambda w: layer(IDS, offsets, w).square().sum())(weights.detach())
    exact = torch.autograd.functional.hessian(lambda w: layer(IDS, offsets, w).square().sum(), weights.detach())
    torch.testing.assert_close(hessian, exact)


def test_a_hessian_of_a_layer() -> None:
    layer = bag(combiner="mean", sparse=False)

    def loss(weight: Any) -> Any:
        return torch.func.functional_call(layer, {"weight": weight}, (IDS, torch.tensor([0, 2, 2]))).pow(3).sum()

    table = layer.weight.detach()
    torch.testing.assert_close(torch.func.hessian(loss)(table), torch.autograd.functional.hessian(loss, table))


def test_a_layer_beside_what_changes() -> None:
    """The table does not change, and its gradient stays sparse."""
    layer = bag(combiner="sum", sparse=True)
    with forward_ad.dual_level():
        result = layer(IDS, torch.tensor([0, 2])) * forward_ad.make_dual(drawn(2), torch.ones(2, dtype=torch.float64))
        assert torch.equal(forward_ad.unpack_dual(result).tangent, layer(IDS, torch.tensor([0, 2])))
    result.sum().backward()
    assert layer.weight.grad.is_sparse


def test_a_fused_optimizer_has_no_derivative_forward() -> None:
    layer = bag(combiner="sum", fused_optimizer=optim.SGD(lr=0.1))
    table = layer.weight.detach()
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward"):
        del layer.weight
        layer.weight = forward_ad.make_dual(table, table).requires_grad_()
        layer(IDS, torch.tensor([0, 2]))


def test_compiled() -> None:
    def change(data: Any, by: Any) -> Any:
        return torch.func.jvp(pooled, (data,), (by,))[1]

    def change_of_dual(data: Any, by: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(pooled(forward_ad.make_dual(data, by))).tangent

    for function in (change, change_of_dual):
        found = torch.compile(function, fullgraph=True, backend="aot_eager")(drawn(5, 2), drawn(5, 2, seed=2))
        assert torch.equal(found, pooled(drawn(5, 2, seed=2)))
    torch._dynamo.reset()
