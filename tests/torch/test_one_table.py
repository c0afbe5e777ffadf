"""Small batches for one table take a short way to the kernels: the same bits as the operators, and the same errors."""

from itertools import product

import numpy as np
import pytest
import torch

import rowgrad
from rowgrad import _kernels as kernels
from rowgrad.errors import RowgradError
from rowgrad.torch import EmbeddingBag, _warm
from rowgrad.torch._one_table import OneTable

ROWS = 50


def bags_of(ids, width, dtype, combiner="sum"):
    """A layer, ids that repeat in bags of 0 to 4, and a gradient."""
    torch.manual_seed(width)
    layer = EmbeddingBag(ROWS, width, combiner=combiner, sparse=True, dtype=dtype)
    lengths = torch.randint(0, 5, (20,))
    values = torch.randint(0, ROWS, (int(lengths.sum()),)).to(ids)
    offsets = (lengths.cumsum(0) - lengths).to(ids)
    return layer, values, offsets, lengths, torch.randn(20, width).to(dtype)


@pytest.mark.parametrize(
    ("combiner", "width"), [*product(["sum"], [1, 8, 24, 40, 48, 56, 64, 100]), *product(["mean", "sqrtn"], [8, 40])]
)
def test_the_short_way_gives_the_bits_of_the_operators(combiner, width):
    for dtype, ids in ((torch.float32, torch.int64), (torch.float32, torch.int32), (torch.bfloat16, torch.int64)):
        layer, values, offsets, lengths, grad = bags_of(ids, width, dtype, combiner)
        for _ in range(2):  # the second call goes to the machine code itself
            layer.weight.grad = None
            pooled = layer(values, offsets)
            pooled.backward(grad)
        assert isinstance(layer._tables.alone, OneTable)
        assert layer._tables.alone._pool.keys() == layer._tables.alone._gradient.keys() == {ids}
        found, layer.weight.grad = layer.weight.grad, None
        segments = torch.repeat_interleave(torch.arange(20), lengths)
        expected = layer(values, segment_ids=segments, num_bags=20)
        expected.backward(grad)
        with torch.no_grad():
            assert torch.equal(layer(values, offsets), expected)
        assert torch.equal(pooled, expected)
        assert found.is_coalesced()
        assert torch.equal(found.indices(), layer.weight.grad._indices())
        assert torch.equal(found.values(), layer.weight.grad._values())


@pytest.mark.parametrize("rows", [3, 5000, 1 << 21])
@pytest.mark.parametrize("lengths", [1, 7, "any"])
@pytest.mark.parametrize("size", [15, 64, 700, 6000])
def test_any_number_of_threads_gives_the_bits_of_the_operators(size, lengths, rows):
    random = np.random.default_rng(size)
    ids = random.integers(0, rows, size)
    bags = np.sort(random.integers(0, size, size)) if lengths == "any" else np.arange(size) // lengths
    offsets = np.searchsorted(bags, np.arange(bags[-1] + 1))
    grad = random.standard_normal((len(offsets), 40)).astype(np.float32)
    expected = rowgrad.sparse_segment_sum_grad_v2(grad, ids, bags, rows)
    one, most = np.ones(1, np.float32), min(size, rows)
    lanes = kernels.lanes.lanes_for_rows(one.dtype, 40)
    for threads in (1, 2, 5, 100):
        words = np.empty(2 * size * threads + 8 * (threads + 1), np.int64)
        places, sums = np.empty(most, np.int64), np.empty((most, 40), np.float32)

        def run(ids, offsets, threads=threads, words=words, places=places, sums=sums):
            return kernels.tables_alone.gradient(
                0, threads, ids[:0], lanes, None, one[:0], rows, 40, 0, one.ctypes.data, ids.ctypes.data, size,
                offsets.ctypes.data, True, len(offsets), grad.ctypes.data, 40, places.ctypes.data,
                sums.ctypes.data, words.ctypes.data)  # fmt: skip

        count = run(ids, offsets)
        assert places[:count].tolist() == expected.sorted_unique_indices.tolist()
        assert np.array_equal(sums[:count].view(np.int32), expected.output.view(np.int32))
        for array, position, value in ((ids, size - 1, rows), (ids, 0, -1), (offsets, -1, size + 1), (offsets, -1, -1)):
            wrong = array.copy()
            wrong[position] = value
            assert run(wrong, offsets) == -1 if array is ids else len(offsets) == 1 or run(ids, wrong) == -1


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("bags", [1, 600, 6000])
def test_large_batches_give_the_bits_of_the_operators(bags, combiner):
    layer = EmbeddingBag(2000, 40, combiner=combiner, sparse=True)
    values, offsets, grad = torch.randint(0, 2000, (6000,)), torch.arange(0, 6000, 6000 // bags), torch.randn(bags, 40)
    layer(values, offsets).backward(grad)
    assert layer._tables.alone._gradient
    found, layer.weight.grad = layer.weight.grad, None
    layer(values, segment_ids=torch.arange(6000) // (6000 // bags)).backward(grad)
    assert found.is_coalesced()
    assert torch.equal(found.indices(), layer.weight.grad.indices())
    assert torch.equal(found.values(), layer.weight.grad.values())


def test_a_bad_id_is_named_also_when_machine_code_is_called():
    layer, values, offsets, _, grad = bags_of(torch.int64, 8, torch.float32)
    layer(values, offsets).backward(grad)
    for position, bad in ((0, ROWS), (3, -1)):
        wrong = values.clone()
        wrong[position] = bad
        for context in (torch.enable_grad(), torch.no_grad()):
            with context, pytest.raises(RowgradError, match=str(bad)):
                layer(wrong, offsets)


def test_ids_that_become_bad_before_the_backward_pass_are_refused():
    layer, values, offsets, _, grad = bags_of(torch.int64, 8, torch.float32)
    before = layer.weight.detach().clone()
    pooled = layer(values, offsets)
    values.numpy()[0] = ROWS + 7  # PyTorch does not see this change
    with pytest.raises(RowgradError, match="changed"):
        pooled.backward(grad)
    assert layer.weight.grad is None and torch.equal(layer.weight, before)


@pytest.mark.parametrize("rows", [ROWS, 2 * ROWS])
def test_a_table_that_is_replaced_has_a_short_way_of_its_own(rows):
    layer, values, offsets, lengths, grad = bags_of(torch.int64, 8, torch.float32)
    layer(values, offsets).backward(grad)
    pooled, first, weight = layer(values, offsets), layer._tables.alone, layer.weight
    layer.weight = torch.nn.Parameter(torch.ones(rows, 8))
    with torch.no_grad():
        assert torch.equal(layer(values, offsets), lengths[:, None].expand(20, 8).float())
    assert layer._tables.alone is not first
    before = weight.grad.to_dense()
    pooled.backward(grad)  # of the layer as it was
    assert torch.equal(weight.grad.to_dense(), 2 * before) and layer.weight.grad is None


def test_gradients_of_gradients_take_the_operators():
    layer, values, offsets, _, grad = bags_of(torch.int64, 8, torch.float64)
    grad.requires_grad_()
    (found,) = torch.autograd.grad(layer(values, offsets), layer.weight, grad, create_graph=True)
    found.to_dense().square().sum().backward()
    dense = torch.zeros(ROWS, 8, dtype=torch.float64)
    ends = [*offsets.tolist()[1:], len(values)]
    for bag, (begin, end) in enumerate(zip(offsets.tolist(), ends, strict=True)):
        for row in values[begin:end].tolist():
            dense[row] += grad.detach()[bag]
    expected = torch.stack([2 * dense[values[begin:end]].sum(0)
                            for begin, end in zip(offsets.tolist(), ends, strict=True)])  # fmt: skip
    torch.testing.assert_close(grad.grad, expected)


def of_another_type(weight: torch.Tensor) -> torch.Tensor:
    """As many numbers in the same memory, where their type was changed."""
    return weight.flatten().view(torch.bfloat16)[: weight.numel()].view(weight.shape)


@pytest.mark.parametrize("change", [torch.t, lambda weight: weight.view(4, 16), of_another_type])
def test_a_table_that_changes_where_it_lies_is_looked_at_again(change):
    layer = EmbeddingBag(8, 8, combiner="sum")
    values, offsets = torch.tensor([1, 3, 3, 0]), torch.tensor([0, 3])
    layer(values, offsets).sum().backward()
    layer.weight.grad = None
    layer.weight.data = change(layer.weight.data)
    pooled = layer(values, offsets)
    rows = layer.weight.detach()
    assert torch.equal(pooled, torch.stack([rows[1] + rows[3] + rows[3], rows[0]]))
    pooled.sum().backward()
    assert layer.weight.grad.to_dense().shape == rows.shape
    assert layer.weight.grad.to_dense()[3].tolist() == [2] * rows.shape[1]


@pytest.mark.parametrize("bags", [2, 5000])
def test_a_combiner_may_be_changed(bags):
    layer = EmbeddingBag(8, 64, combiner="sum")
    values, offsets = torch.arange(2 * bags) % 8, torch.arange(0, 2 * bags, 2)
    summed = layer(values, offsets)
    layer.mode = "mean"
    assert torch.equal(layer(values, offsets), summed / 2)


def test_offsets_that_are_a_sparse_tensor_are_refused():
    layer, values, offsets, _, _ = bags_of(torch.int64, 8, torch.float32)
    layer(values, offsets)
    with pytest.raises(RowgradError, match="dense"):
        layer(values, offsets.to_sparse())


def test_batches_of_any_size_are_warmed():
    for _, task in _warm.tasks([24], []):
        task()
    before = {name: len(kernel.signatures) for name, kernel in kernels.compile.KERNELS.items()}
    layer = EmbeddingBag(100, 24, combiner="sum", sparse=True)
    for size in (1, 500, 50_000):
        layer(torch.zeros(size, dtype=torch.int64), torch.arange(size)).sum().backward()
    assert before == {name: len(kernel.signatures) for name, kernel in kernels.compile.KERNELS.items()}


@pytest.mark.parametrize("bags", [2, 5000])
@pytest.mark.parametrize("first", ["sum", "mean"])
def test_gradients_are_those_of_the_combiner_of_the_forward_pass(bags, first):
    layer = EmbeddingBag(8, 64, combiner=first)
    values, offsets = torch.arange(2 * bags) % 8, torch.arange(0, 2 * bags, 2)
    pooled = layer(values, offsets)
    pooled.sum().backward()
    expected, layer.weight.grad = layer.weight.grad.to_dense(), None
    pooled = layer(values, offsets)
    layer.mode = "mean" if first == "sum" else "sum"
    layer(values, offsets)
    pooled.sum().backward()
    assert torch.equal(layer.weight.grad.to_dense(), expected)


@pytest.mark.parametrize("width", [8, 33, 40, 64, 100])
def test_large_results_of_any_width(width):
    layer = EmbeddingBag(1000, width, combiner="sum")
    bags = (9 << 20) // (4 * width)  # more than are written by non-temporal stores, which need rows of whole lines
    values, offsets = torch.arange(2 * bags) % 1000, torch.arange(0, 2 * bags, 2)
    with torch.no_grad():
        pairs = layer.weight[values].view(bags, 2, width)
        assert torch.equal(layer(values, offsets), pairs[:, 0] + pairs[:, 1])
