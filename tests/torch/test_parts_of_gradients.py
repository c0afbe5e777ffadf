"""Gradients of pooled rows that are parts of wider tensors, as behind a concatenation: read where they are."""

import pytest

torch = pytest.importorskip("torch")

from rowgrad import optim  # noqa: E402
from rowgrad.torch import EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402

ROWS, WIDTHS = 50, (16, 24)


def _layer(kind):
    torch.manual_seed(0)
    optimizer = optim.Adagrad(0.1) if "fused" in kind else None
    if "collection" in kind:
        tables = [EmbeddingBagConfig(f"t{i}", ROWS, width, [f"f{i}"]) for i, width in enumerate(WIDTHS)]
        return EmbeddingBagCollection(tables=tables, fused_optimizer=optimizer, sparse=optimizer is None)
    mode = "mean" if "mean" in kind else "sum"
    if optimizer is None:
        return EmbeddingBag(ROWS, sum(WIDTHS), mode=mode, sparse=True)
    return EmbeddingBag(ROWS, sum(WIDTHS), mode=mode, fused_optimizer=optimizer)


def _changed(kind, bags, grad):
    """What a backward pass by `grad` leaves: gradients, or tables."""
    layer = _layer(kind)
    torch.manual_seed(bags)
    if "collection" in kind:
        values, offsets = torch.randint(0, ROWS, (6 * bags,)), torch.arange(0, 6 * bags + 1, 3)
        pooled = layer.pool(values, offsets)
    else:
        pooled = layer(torch.randint(0, ROWS, (3 * bags,)), torch.arange(0, 3 * bags, 3))
    pooled.backward(grad)
    return [weight if weight.grad is None else weight.grad.to_dense() for weight in layer.parameters()]


def _parts(bags):
    """Gradients by how they lie in memory."""
    columns = sum(WIDTHS)
    torch.manual_seed(1)
    yield "part of each row", torch.randn(bags, columns + 13)[:, 7 : 7 + columns]
    yield "every second row", torch.randn(2 * bags, columns)[::2]
    yield "columns", torch.randn(columns, bags).T
    yield "one row for all", torch.randn(1, columns).expand(bags, columns)
    yield "rows that overlap", torch.randn(bags + columns).as_strided((bags, columns), (1, 1))
    yield "one number for all", torch.randn(1, 1).expand(bags, columns)


@pytest.mark.parametrize("bags", [1, 2, 9, 700])
@pytest.mark.parametrize("kind", ["sparse", "fused", "sparse mean", "fused mean", "sparse collection",
                                  "fused collection"])  # fmt: skip
def test_a_part_of_a_gradient_gives_what_a_copy_gives(kind, bags):
    for how, part in _parts(bags):
        copy = part.clone(memory_format=torch.contiguous_format)
        for found, expected in zip(_changed(kind, bags, part), _changed(kind, bags, copy), strict=True):
            assert torch.equal(found, expected), how


def test_behind_a_concatenation():
    kind, bags = "fused collection", 30
    layer, copy = _layer(kind), _layer(kind)
    values, offsets = torch.randint(0, ROWS, (6 * bags,)), torch.arange(0, 6 * bags + 1, 3)
    dense, factor = torch.randn(bags, 5), torch.randn(bags, 5 + sum(WIDTHS))
    (torch.cat([dense, layer.pool(values, offsets)], 1) * factor).sum().backward()
    (copy.pool(values, offsets) * factor[:, 5:]).sum().backward()
    for name, weight in layer.named_parameters():
        assert torch.equal(weight, copy.get_parameter(name))
