"""What PyTorch does with operators: compile them, batch them, differentiate them as functions, cast them."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import rowgrad
from optional import framework, missing

torch = framework("torch")
sys.path.insert(0, str(Path(__file__).parent))

from tensor_cases import example, overload, wanted  # noqa: E402

import rowgrad.torch as rt  # noqa: E402

IDS = torch.tensor([0, 3, 3, 1, 0])
BAGS = torch.tensor([0, 0, 1, 3, 3])


def table(dtype: Any = torch.float64, *, grad: bool = False, batch: tuple[int, ...] = ()) -> Any:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(*batch, 5, 2, generator=generator, dtype=dtype).requires_grad_(grad)


def loss(data: Any, ids: Any, bags: Any, count: Any = 4) -> Any:
    return rt.sparse_segment_mean(data, ids, bags, count).square().sum()


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(dynamic: bool) -> None:
    """Forward and backward in one graph; with dynamic shapes one program serves batches of any size."""
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for repeats in (1, 2, 3):
        data, expected = table(grad=True), table(grad=True)
        ids, bags = IDS.repeat(repeats), BAGS.repeat(repeats).sort().values
        compiled(data, ids, bags).backward()
        loss(expected, ids, bags).backward()
        assert torch.equal(data.grad, expected.grad)
    torch._dynamo.reset()


def test_compiled_with_a_count_that_changes() -> None:
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (4, 7, 9):
        assert torch.equal(compiled(table(), IDS, BAGS, count), loss(table(), IDS, BAGS, count))
    torch._dynamo.reset()


def test_compiled_with_sizes_only_a_run_can_tell() -> None:
    """The rows of a compact gradient, and of a pooling whose last id says how many there are."""

    def work(data: Any, ids: Any, bags: Any) -> Any:
        pooled = rt.sparse_segment_sum(data, ids, bags)
        compact = rt.sparse_segment_sum_grad_v2(pooled.square(), ids, bags, 5)
        return compact.output.sum() + compact.sorted_unique_indices.sum()

    data, expected = table(grad=True), table(grad=True)
    torch.compile(work, fullgraph=True, backend="aot_eager")(data, IDS, BAGS).backward()
    work(expected, IDS, BAGS).backward()
    assert torch.equal(data.grad, expected.grad)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "name", ["SparseFillEmptyRows", "RaggedFillEmptyRows", "SparseSlice", "SparseConcat", "SparseSplitPart"]
)
def test_compiled_with_whole_numbers_first(name: str) -> None:
    """The operators whose gradient opcheck cannot compile."""
    values, attributes = example(name, floats=torch.float64)
    leaves, _ = wanted(values)

    def work() -> Any:
        return overload(name)(*values, **attributes)[1].square().sum()

    found = torch.autograd.grad(torch.compile(work, fullgraph=True, backend="aot_eager")(), leaves)
    for one, other in zip(found, torch.autograd.grad(work(), leaves), strict=True):
        assert torch.equal(one, other)
    torch._dynamo.reset()


def step(data: Any, ids: Any, bags: Any) -> Any:
    return data - 0.1 * torch.func.grad(loss)(data, ids, bags)


def test_a_functional_training_step_compiled() -> None:
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(table(), IDS, BAGS), step(table(), IDS, BAGS))
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # PyTorch's own modules use what they deprecate
def test_compiled_by_inductor() -> None:
    if not shutil.which("g++"):
        missing("no C++ compiler")
    data, expected = table(torch.float32, grad=True), table(torch.float32, grad=True)
    torch.compile(loss, fullgraph=True)(data, IDS, BAGS).backward()
    loss(expected, IDS, BAGS).backward()
    torch.testing.assert_close(data.grad, expected.grad)
    torch._dynamo.reset()


def test_grad_and_jacobians_as_functions() -> None:
    data = table(grad=True)
    (expected,) = torch.autograd.grad(loss(data, IDS, BAGS), data)
    assert torch.equal(torch.func.grad(loss)(table(), IDS, BAGS), expected)
    jacobian = torch.func.jacrev(lambda x: rt.sparse_segment_sum(x, IDS, BAGS, 4))(table())
    assert torch.equal(jacobian.sum((0, 1)), torch.tensor([[2.0], [1.0], [0.0], [2.0], [0.0]]).double().expand(5, 2))
    hessian = torch.func.jacrev(torch.func.grad(loss))(table(), IDS, BAGS)
    torch.testing.assert_close(hessian, torch.autograd.functional.hessian(lambda x: loss(x, IDS, BAGS), table()))


@pytest.mark.parametrize("at", [0, 1, 2, -1])
def test_a_batch_of_tables_is_one_call(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pool = rowgrad._ops.OPERATORS["SparseSegmentMeanWithNumSegments"]
    monkeypatch.setattr(type(pool), "__call__", counted(type(pool).__call__, calls))
    data = table(batch=(3,))
    found = torch.func.vmap(lambda x: rt.sparse_segment_mean(x, IDS, BAGS, 4), in_dims=at)(data.movedim(0, at))
    assert len(calls) == 1
    for one, other in zip(found, data, strict=True):
        assert torch.equal(one, rt.sparse_segment_mean(other, IDS, BAGS, 4))


def counted(call: Any, calls: list[Any]) -> Any:
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return call(*args, **kwargs)

    return counting


def test_a_batch_of_ids_is_a_loop() -> None:
    data, ids = table(), torch.stack([IDS, IDS.flip(0)])
    found = torch.func.vmap(lambda x: rt.sparse_segment_mean(data, x, BAGS, 4))(ids)
    for one, other in zip(found, ids, strict=True):
        assert torch.equal(one, rt.sparse_segment_mean(data, other, BAGS, 4))


def test_gradients_of_a_batch() -> None:
    data = table(batch=(3,))
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None, None))(data, IDS, BAGS)
    for one, other in zip(found, data, strict=True):
        assert torch.equal(one, torch.func.grad(loss)(other, IDS, BAGS))


def test_a_batch_of_maxima() -> None:
    """Several results with columns, and a gradient whose ids are batched too."""
    data = table(batch=(3,))
    largest = torch.func.vmap(lambda x: tuple(rt.sparse_segment_max(x, IDS, BAGS, 4)))(data)
    squares = torch.func.grad(lambda x: rt.sparse_segment_max(x, IDS, BAGS, 4).output.square().sum())
    grads = torch.func.vmap(squares)(data)
    for i, other in enumerate(data):
        expected = rt.sparse_segment_max(other, IDS, BAGS, 4)
        assert torch.equal(largest[0][i], expected.output)
        assert torch.equal(largest[1][i], expected.chosen)
        torch.testing.assert_close(grads[i].sum(0), 2 * expected.output.sum(0))
    with pytest.raises(rowgrad.InvalidArgumentError, match="cannot be stacked"):
        torch.func.vmap(lambda g, c: tuple(rt.sparse_segment_max_grad_v2(g, c, 5)))(*largest)


def test_a_batch_whose_results_differ_in_size() -> None:
    data = table()
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"the size of output .* Batch only the values") as caught:
        torch.func.vmap(lambda ids: tuple(rt.sparse_segment_sum_grad_v2(data[:4], ids, BAGS, 5)))(IDS.repeat(2, 1))
    assert caught.value.code == "not-batchable"
    with pytest.raises(rowgrad.InvalidArgumentError, match="Pass num_segments"):
        torch.func.vmap(lambda bags: rt.sparse_segment_sum(data, IDS, bags))(BAGS.repeat(2, 1))
    compact = torch.func.vmap(lambda grad: tuple(rt.sparse_segment_sum_grad_v2(grad, IDS, BAGS, 5)), out_dims=(0, None))
    assert compact(table(batch=(2,))[:, :4])[0].shape == (2, 3, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(dtype: Any) -> None:
    """Sums are made in float32 already, and ids stay whole numbers: results have the type of the table."""
    data = table(dtype, grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = rt.sparse_segment_mean(data, IDS, BAGS, 4)
        after = torch.nn.functional.linear(pooled, torch.ones(3, 2))
    assert pooled.dtype == dtype
    assert after.dtype == torch.bfloat16
    assert torch.equal(pooled, rt.sparse_segment_mean(data, IDS, BAGS, 4))
    after.sum().backward()
    assert data.grad.dtype == dtype


def test_deterministic_algorithms() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        data = table(grad=True)
        loss(data, IDS, BAGS).backward()
        with rt.portable():
            again = table(grad=True)
            loss(again, IDS, BAGS).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(data.grad, again.grad)


def test_a_batch_of_lists() -> None:
    """One of the tensors of a list is batched, the others are the same for all elements."""
    indices, shapes = [torch.tensor([[0, 2], [1, 0]]), torch.tensor([[0, 1]])], torch.tensor([[2, 3], [2, 2]])
    batch, same = torch.arange(6.0).reshape(3, 2), torch.tensor([9.0])

    def joined(values: Any) -> Any:
        return rt.sparse_concat(indices, [values, same], list(shapes), concat_dim=1).output_values

    expected = torch.stack([joined(values) for values in batch])
    assert torch.equal(torch.func.vmap(joined)(batch), expected)


def test_lists_of_what_is_no_tensor() -> None:
    found = rt.sparse_concat([[[0]], [[1]]], [torch.ones(1), [2.0]], [[2], [2]], concat_dim=0)
    assert found.output_values.tolist() == [1.0, 2.0]
    assert found.output_shape.tolist() == [4]
    with pytest.raises(rowgrad.InvalidArgumentError, match="SparseConcat: values must be a list of one or more"):
        rt.sparse_concat([[[0]]], torch.ones(1), [[2]], concat_dim=0)


def test_attributes_that_must_be_given() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="SparseConcat: concat_dim is missing"):
        rt.sparse_concat([[[0]]], [torch.ones(1)], [[2]])
