"""The forms that bags come in: the last offset, and jagged tensors, the same in eager, compiled and exported code."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402

ROWS, WIDTH = 12, 3
IDS = torch.tensor([1, 2, 3, 4])


def layer(**settings: Any) -> Any:
    weight = torch.tensor(np.random.default_rng(7).normal(size=(ROWS, WIDTH)))
    return EmbeddingBag(ROWS, WIDTH, _weight=weight, sparse=settings.pop("sparse", False), **settings)


def jagged(*rows: Any, dtype: Any = torch.int64) -> Any:
    return torch.nested.nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def ways(module: Any, *inputs: Any) -> list[Any]:
    """The layer itself, compiled, and, for tensors that are not nested, exported with sizes that may change."""
    torch.compiler.reset()
    found = [module, torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")]
    if not inputs[0].is_nested:
        free = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
        found.append(torch.export.export(module, inputs, dynamic_shapes=free).module())
    return found


# The last offset


@pytest.mark.parametrize("padding", [None, 11])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_bag_reaches_to_the_last_id(mode: str, padding: int | None) -> None:
    """The values of PyTorch's test_embeddingbag_include_last_offset, and of its float64 kernels."""
    ours = layer(mode=mode, include_last_offset=True, padding_idx=padding)
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, mode=mode, include_last_offset=True, padding_idx=padding,
                                   _weight=ours.weight.detach())  # fmt: skip
    for offsets in ([0, 3, 3], [0, 3, 4], [0, 1, 2], [0, 0, 0]):
        expected = theirs(IDS, torch.tensor(offsets))
        torch.testing.assert_close(ours(IDS, torch.tensor(offsets)), expected)
        torch.testing.assert_close(ours(IDS.int(), torch.tensor(offsets).int()), expected)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
def test_the_last_offset_means_the_same_everywhere(combiner: str) -> None:
    module = layer(combiner=combiner, include_last_offset=True)
    plain = layer(combiner=combiner)
    for way in ways(module, IDS, torch.tensor([0, 1, 4])):
        for offsets in ([0, 1, 2], [0, 1, 4], [0, 1, 1, 3]):
            assert torch.equal(way(IDS, torch.tensor(offsets)), plain(IDS, torch.tensor(offsets[:-1])))
        with pytest.raises(rowgrad.OutOfRangeError, match=r"offsets\[2\] is 99; allowed: 0 to 4"):
            way(IDS, torch.tensor([0, 1, 99]))
        with pytest.raises(rowgrad.InvalidArgumentError, match=r"offsets\[2\] is 1, smaller than 2"):
            way(IDS, torch.tensor([0, 2, 1]))


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_ids_behind_the_last_offset(sparse: bool) -> None:
    module, plain = layer(include_last_offset=True, sparse=sparse), layer()
    module(IDS, torch.tensor([0, 1, 2])).sum().backward()
    plain(IDS, torch.tensor([0, 1])).sum().backward()
    assert torch.equal(module.weight.grad.to_dense(), plain.weight.grad)


@pytest.mark.parametrize(("ids", "offsets"), [([1, 2], [0]), ([1], []), ([], [])])
def test_ids_without_a_bag_are_refused(ids: list[int], offsets: list[int]) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="with include_last_offset"):
        layer(include_last_offset=True)(*(torch.tensor(x, dtype=torch.int64) for x in (ids, offsets)))


def test_no_bag_at_all() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    assert layer(include_last_offset=True)(nothing, torch.tensor([0])).shape == (0, WIDTH)


# Jagged tensors


@pytest.mark.parametrize("ids", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("combiner", ["sum", "mean", "max"])
def test_jagged_ids(combiner: str, sparse: bool, ids: Any) -> None:
    ours = layer(mode=combiner, sparse=sparse)
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, mode=combiner, _weight=ours.weight.detach().clone())
    bags = jagged([1, 2, 2], [], [3], [], dtype=ids)
    pooled, expected = ours(bags), theirs(bags)
    torch.testing.assert_close(pooled, expected)
    pooled.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.weight.grad.to_dense(), theirs.weight.grad)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("padding", [None, 2])
def test_jagged_weights(combiner: str, padding: int | None) -> None:
    module = layer(combiner=combiner, padding_idx=padding)
    bags = jagged([1, 2, 2], [], [3])
    ours, theirs = (torch.tensor([0.5, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    pooled = module(bags, None, torch.nested.nested_tensor_from_jagged(ours, bags.offsets()))
    expected = module(bags.values(), bags.offsets()[:-1], theirs)
    assert torch.equal(pooled, expected)
    pooled.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
    apart = jagged([0.5, 2.0, 3.0], [], [4.0], dtype=torch.float64)
    assert torch.equal(module(bags, per_sample_weights=apart), expected)


def test_jagged_rows_with_holes_between_them() -> None:
    matrix = torch.arange(12).reshape(3, 4)
    places = torch.tensor([1, 0, 2]), torch.tensor([2, 0, 2])
    bags = torch.nested.narrow(matrix, 1, *places, layout=torch.jagged)
    weights = torch.nested.narrow(matrix.double() + 1, 1, *places, layout=torch.jagged)
    whole = layer()
    assert torch.equal(whole(bags), whole(jagged([1, 2], [], [10, 11])))
    assert torch.equal(
        whole(bags, None, weights),
        whole(jagged([1, 2], [], [10, 11]), None, jagged([2.0, 3.0], [], [11.0, 12.0], dtype=torch.float64)),
    )


def test_jagged_ids_compiled() -> None:
    module, bags = layer(), jagged([1, 2, 2], [], [3])
    weights = torch.nested.nested_tensor_from_jagged(torch.rand(4, dtype=torch.float64), bags.offsets())
    for way in ways(module, bags):
        assert torch.equal(way(bags), module(bags.values(), bags.offsets()[:-1]))
        assert torch.equal(way(bags, None, weights), module(bags, None, weights))
        with pytest.raises(rowgrad.OutOfRangeError, match="segment_ids"):  # an id that belongs to no row
            way(torch.nested.nested_tensor_from_jagged(IDS, torch.tensor([0, 1, 2])))


def test_wrong_jagged_tensors() -> None:
    bags = jagged([1, 2], [3])
    for inputs, message in [
        ((bags, torch.tensor([0])), "offsets is given, but input is nested"),
        ((bags, None, torch.ones(3)), "per_sample_weights is not nested"),
        ((bags, None, jagged([1.0], [1.0, 1.0], dtype=torch.float64)), "not as long as those of input"),
        ((torch.nested.nested_tensor([torch.ones(2, 2).long()], layout=torch.jagged),), "3 dimensions"),
    ]:
        with pytest.raises(rowgrad.InvalidArgumentError, match=message):
            layer()(*inputs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_strided_nested_tensors_are_refused() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"layout=torch\.jagged"):
        layer()(torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3])]))
