"""The layer beside `torch.nn.EmbeddingBag`: equal where that one works, and what it adds."""

from typing import Any

import numpy as np
import pytest
from bag_cases import FLOATS, ROWS, WIDTH, assert_equal, batch, pair, table, train

import rowgrad
from optional import framework

torch = framework("torch")

from rowgrad.torch import EmbeddingBag  # noqa: E402

# Drop-in


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("ids", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("sparse", [True, False])
def test_offsets(mode: str, ids: Any, dtype: Any, sparse: bool) -> None:
    theirs, _ = pair(dtype, mode=mode, sparse=sparse and mode != "max")
    ours = EmbeddingBag(ROWS, WIDTH, mode=mode, sparse=sparse, _weight=table(dtype))
    for expected, actual in zip(train(theirs, *batch(ids)), train(ours, *batch(ids)), strict=True):
        assert_equal(expected, actual)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_matrix_of_ids(mode: str) -> None:
    theirs, ours = pair(mode=mode, sparse=False)
    ids = torch.tensor(np.random.default_rng(5).integers(0, ROWS, (4, 6)))
    for expected, actual in zip(train(theirs, ids), train(ours, ids), strict=True):
        assert_equal(expected, actual)
    assert torch.equal(ours(ids.t().contiguous().t()), ours(ids))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [0, 3, -1])
def test_padding(mode: str, padding: int) -> None:
    theirs, ours = pair(mode=mode, sparse=False, padding_idx=padding)
    ids, offsets = batch()
    ids[9:12] = padding % ROWS  # one bag begins with padding
    ids[0:4] = padding % ROWS  # one bag has nothing else
    for expected, actual in zip(train(theirs, ids, offsets), train(ours, ids, offsets), strict=True):
        assert_equal(expected, actual)
    matrix = torch.tensor([[1, padding % ROWS], [padding % ROWS, padding % ROWS]])
    assert_equal(theirs(matrix), ours(matrix))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_last_offset(mode: str) -> None:
    theirs, ours = pair(mode=mode, sparse=False, include_last_offset=True)
    for expected, actual in zip(train(theirs, *batch()), train(ours, *batch()), strict=True):
        assert_equal(expected, actual)


@pytest.mark.parametrize("padding", [None, 7])
def test_the_last_bag_reaches_to_the_last_id(padding: int | None) -> None:
    """As PyTorch's test_embeddingbag_include_last_offset says."""
    bag = EmbeddingBag(ROWS, WIDTH, include_last_offset=True, padding_idx=padding)
    expected = torch.stack([bag.weight[0:3].mean(0), bag.weight[3]])
    for last in (3, 4):
        assert_equal(expected, bag(torch.arange(4), torch.tensor([0, 3, last])))


@pytest.mark.parametrize("sparse", [True, False])
def test_weights_of_a_sum(sparse: bool) -> None:
    theirs, ours = pair(mode="sum", sparse=sparse)
    ids, offsets = batch()
    weights = torch.rand(20)
    their_weights, our_weights = (weights.clone().requires_grad_() for _ in range(2))
    expected, actual = train(theirs, ids, offsets, their_weights), train(ours, ids, offsets, our_weights)
    assert_equal(expected[0], actual[0])
    assert_equal(expected[1], actual[1])
    assert_equal(their_weights.grad, our_weights.grad)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0])
def test_max_norm(norm: float) -> None:
    theirs, ours = pair(mode="sum", sparse=False, max_norm=1.0, norm_type=norm)
    for expected, actual in zip(train(theirs, *batch()), train(ours, *batch()), strict=True):
        assert_equal(expected, actual)
    assert_equal(theirs.weight.detach(), ours.weight.detach())


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_by_frequency(mode: str, sparse: bool) -> None:
    """As documented; PyTorch takes the count of another row where a row before it repeats."""
    plain, _ = pair(mode=mode, sparse=False)
    ours = EmbeddingBag(ROWS, WIDTH, combiner=mode, sparse=sparse, scale_grad_by_freq=True, _weight=table())
    (pooled, grad), (actual, scaled) = train(plain, *batch()), train(ours, *batch())
    assert_equal(pooled, actual)
    counts = torch.bincount(batch()[0], minlength=ROWS)
    assert counts.max() > 1
    assert_equal(grad / counts.clamp(min=1)[:, None], scaled)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_nothing_to_look_up(mode: str) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    theirs, ours = pair(mode=mode, sparse=False)
    for offsets in (torch.zeros(3, dtype=torch.int64), nothing):
        for expected, actual in zip(train(theirs, nothing, offsets), train(ours, nothing, offsets), strict=True):
            assert_equal(expected, actual)
    assert torch.equal(ours(torch.zeros(3, 0, dtype=torch.int64)), torch.zeros(3, WIDTH))
    assert ours(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, WIDTH)


def test_settings_and_tables_go_both_ways() -> None:
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", padding_idx=2, include_last_offset=True, sparse=True)
    ours = EmbeddingBag.from_torch(theirs)
    assert ours.weight is theirs.weight
    assert (ours.combiner, ours.padding_idx, ours.include_last_offset, ours.sparse) == ("sum", 2, True, True)
    other = EmbeddingBag(ROWS, WIDTH)
    other.load_state_dict(theirs.state_dict())
    assert torch.equal(other.weight, theirs.weight)
    back = torch.nn.EmbeddingBag(ROWS, WIDTH)
    back.load_state_dict(other.state_dict())
    assert torch.equal(back.weight, theirs.weight)
    frozen = EmbeddingBag.from_pretrained(table(), combiner="sum")
    assert not frozen.weight.requires_grad
    assert not EmbeddingBag.from_torch(torch.nn.EmbeddingBag.from_pretrained(table())).weight.requires_grad
    assert (
        repr(EmbeddingBag(3, 2, combiner="sum", padding_idx=1)) == "EmbeddingBag(3, 2, combiner='sum', padding_idx=1)"
    )


def test_it_is_a_layer_of_pytorch() -> None:
    """By type, by the order of its arguments and by its attributes, which is what libraries look at."""
    names = ("num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse",
             "include_last_offset", "padding_idx")  # fmt: skip
    given = (ROWS, WIDTH, 1.5, 1.0, True, "sum", False, table(torch.float64), True, -2, "cpu", torch.float64)
    theirs, ours = torch.nn.EmbeddingBag(*given), EmbeddingBag(*given)
    assert isinstance(ours, torch.nn.EmbeddingBag)
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert (ours.combiner, ours.weight.dtype) == ("sum", torch.float64)
    assert (EmbeddingBag(3, 2).mode, EmbeddingBag(3, 2, combiner="sqrtn").mode) == ("mean", "sqrtn")
    assert EmbeddingBag(3, 2).sparse
    pretrained = (table(), False, 1.5, 1.0, False, "max", False, True, -2)
    theirs, ours = (cls.from_pretrained(*pretrained) for cls in (torch.nn.EmbeddingBag, EmbeddingBag))
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert ours.weight.requires_grad


def test_an_optimizer_made_before_trains_the_layer() -> None:
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", _weight=table())
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    ours = EmbeddingBag.from_torch(theirs)
    ours(torch.tensor([[1, 2, 2]])).sum().backward()
    optimizer.step()
    expected = table()
    expected[1] -= 0.5
    expected[2] -= 1
    assert_equal(expected, ours.weight.detach())
    assert_equal(expected, theirs.weight.detach())
    frozen = torch.nn.EmbeddingBag.from_pretrained(table()).eval()
    ours = EmbeddingBag.from_torch(frozen, combiner="sqrtn")
    assert ours.weight is frozen.weight and not ours.weight.requires_grad and not ours.training


class Repeating(torch.autograd.Function):
    """Its gradient has the rows that it is given, which repeat."""

    @staticmethod
    def forward(ctx: Any, weight: Any, rows: Any) -> Any:
        ctx.rows, ctx.shape = rows, weight.shape
        return weight.sum()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ones = torch.ones(ctx.rows.shape[1], ctx.shape[1])
        return torch.sparse_coo_tensor(ctx.rows, ones, ctx.shape, check_invariants=False), None


def test_a_gradient_that_lies_where_one_was_is_not_taken_for_it() -> None:
    """Another layer with the same table makes gradients too, and they must not be marked as coalesced."""
    layer = EmbeddingBag(ROWS, WIDTH, combiner="sum")
    layer(torch.arange(8)[None]).sum().backward()
    assert layer.weight.grad.is_coalesced()
    memory = layer.weight.grad._indices()
    layer.weight.grad = None
    Repeating.apply(layer.weight, memory.zero_()).backward()
    assert_equal(torch.full((1, WIDTH), 8.0), layer.weight.grad.coalesce().values())


# What it adds


def dense_pool(weight: Any, ids: Any, segments: Any, bags: int, weights: Any, combiner: str) -> Any:
    """The formula, in PyTorch's own words."""
    rows = weight[ids] * weights[:, None]
    total = torch.zeros(bags, weight.shape[1], dtype=weight.dtype).index_add(0, segments, rows)
    amount = weights if combiner == "mean" else weights * weights
    sums = torch.zeros(bags, dtype=weight.dtype).index_add(0, segments, amount)
    if combiner == "sum":
        return total
    sums = torch.where(sums == 0, 1, sums)
    return total / (sums if combiner == "mean" else sums.sqrt())[:, None]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_combiners_and_weights(combiner: str, sparse: bool, weighted: bool) -> None:
    ids, segments = batch()[0], torch.tensor([1] * 4 + [2] * 5 + [4] * 11)
    weights = torch.rand(20, dtype=torch.float64) + 0.1 if weighted else torch.ones(20, dtype=torch.float64)
    layer = EmbeddingBag(ROWS, WIDTH, combiner=combiner, sparse=sparse, _weight=table(torch.float64))
    ours, theirs = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    pooled, grad = train(layer, ids, None, ours if weighted else None, segment_ids=segments, num_bags=6)
    weight = table(torch.float64).requires_grad_()
    expected = dense_pool(weight, ids, segments, 6, theirs, combiner)
    torch.manual_seed(1)
    expected.backward(torch.randn(expected.shape).to(expected.dtype))
    assert_equal(expected.detach(), pooled)
    assert_equal(weight.grad, grad)
    if weighted:
        assert_equal(theirs.grad, ours.grad)


def test_weights_that_add_up_to_nothing_give_nothing() -> None:
    weights = torch.tensor([1.0, -1.0, 0.0, 0.0], requires_grad=True)
    layer = EmbeddingBag(ROWS, WIDTH, combiner="mean", _weight=table())
    pooled = layer(torch.tensor([[1, 2], [3, 4]]), None, weights.reshape(2, 2))
    assert torch.equal(pooled, torch.zeros(2, WIDTH))
    pooled.sum().backward()
    assert torch.isfinite(weights.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_of_half_tables_are_not_rounded(combiner: str, dtype: Any) -> None:
    ids, weights = torch.arange(ROWS).repeat(4).reshape(1, -1), torch.rand(1, 4 * ROWS)
    layer = EmbeddingBag(ROWS, WIDTH, combiner=combiner, _weight=table(dtype))
    pooled = layer(ids, None, weights)
    segments = torch.zeros(4 * ROWS, dtype=torch.int64)
    exact = dense_pool(table(dtype).double(), ids[0], segments, 1, weights[0].double(), combiner)
    assert_equal(exact.to(dtype), pooled)
    assert (pooled.double() - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


def test_a_hot_row_of_bfloat16() -> None:
    layer = EmbeddingBag(3, 2, combiner="sum", dtype=torch.bfloat16)
    layer(torch.zeros(4096, 1, dtype=torch.int64)).backward(torch.ones(4096, 2, dtype=torch.bfloat16))
    assert layer.weight.grad.values().tolist() == [[4096.0, 4096.0]]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
def test_the_gradient_is_coalesced(combiner: str) -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner=combiner)
    layer(*batch()).sum().backward()
    grad = layer.weight.grad
    assert grad.is_sparse and grad.is_coalesced()
    rows = grad.indices()[0]
    assert torch.equal(rows, rows.unique())
    torch.sparse_coo_tensor(grad.indices(), grad.values(), grad.shape, check_invariants=True)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyTorch, about its own optimizers
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.SparseAdam(p, lr=0.1),
], ids=["SGD", "Adagrad", "SparseAdam"])  # fmt: skip
def test_optimizers_of_pytorch_take_it(combiner: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [EmbeddingBag(ROWS, WIDTH, combiner=combiner, sparse=True, _weight=table()) for _ in range(2)]
    optimizers = [make(layer.parameters()) for layer in layers]
    for _ in range(3):
        for layer in layers:
            layer.weight.grad = None
            layer(*batch()).square().sum().backward()
        # The other gets the gradient as one that has to be sorted first.
        grad = layers[1].weight.grad
        layers[1].weight.grad = torch.sparse_coo_tensor(grad.indices().flip(1), grad.values().flip(0), grad.shape,
                                                         check_invariants=True)  # fmt: skip
        for optimizer in optimizers:
            optimizer.step()
    assert_equal(layers[1].weight.detach(), layers[0].weight.detach())


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_gradients(combiner: str, sparse: bool) -> None:
    ids, offsets = batch()
    layer = EmbeddingBag(ROWS, WIDTH, combiner=combiner, sparse=sparse, dtype=torch.float64)

    def pooled(weight: Any, weights: Any = None) -> Any:
        return torch.func.functional_call(layer, {"weight": weight}, (ids, offsets, weights))

    weight = table(torch.float64).requires_grad_()
    if sparse:
        # How the loss's gradient changes with the pooled rows' own gradient: through the sparse tensor and back.
        out = pooled(weight)
        d_out = torch.randn(out.shape, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(out, weight, d_out, create_graph=True)
        (second,) = torch.autograd.grad(grad.to_dense().square().sum(), d_out)
        dense = EmbeddingBag(ROWS, WIDTH, combiner=combiner, sparse=False, dtype=torch.float64)
        out = torch.func.functional_call(dense, {"weight": weight}, (ids, offsets))
        (grad,) = torch.autograd.grad(out, weight, d_out, create_graph=True)
        (expected,) = torch.autograd.grad(grad.square().sum(), d_out)
        assert_equal(expected, second)
        return
    assert torch.autograd.gradcheck(pooled, (weight,))
    assert torch.autograd.gradgradcheck(pooled, (weight,))
    if combiner != "max":
        weights = (torch.rand(20, dtype=torch.float64) + 0.5).requires_grad_()
        assert torch.autograd.gradcheck(pooled, (weight, weights))
        assert torch.autograd.gradgradcheck(pooled, (weight, weights))


# What is refused


@pytest.mark.parametrize(("inputs", "message"), [
    (([1, 2], [0, 3]), r"offsets\[1\] is 3"),
    (([1, 2], [1]), r"offsets\[0\] is 1; the first bag begins at entry 0"),
    (([1, 2, 3], [0, 2, 1]), r"offsets\[2\] is 1, smaller than 2"),
    (([1, 2], [0, -1]), r"offsets\[1\] is -1"),
    (([1, ROWS], [0]), rf"indices\[1\] is {ROWS}"),
    (([-1], [0]), r"indices\[0\] is -1"),
    (([1, 2], []), "offsets is empty"),
    (([[1]], [0]), "input is a matrix"),
    (([[[1]]], None), "input has 3 dimensions"),
    (([1], None), "needs either offsets"),
    (([1], [[0]]), "offsets has shape"),
])  # fmt: skip
def test_bad_bags(inputs: Any, message: str) -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="sum")
    ids, offsets = inputs
    with pytest.raises(rowgrad.InvalidArgumentError, match=message):
        layer(torch.tensor(ids), None if offsets is None else torch.tensor(offsets, dtype=torch.int64))


def test_bad_arguments() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="max")
    ids = torch.tensor([[1, 2]])
    with pytest.raises(rowgrad.InvalidArgumentError, match="cannot be used with the combiner max"):
        layer(ids, None, torch.ones(1, 2))
    with pytest.raises(rowgrad.InvalidArgumentError, match="per_sample_weights has shape"):
        layer(ids, None, torch.ones(2, 1))
    with pytest.raises(rowgrad.DTypeError, match="input is float32"):
        layer(torch.ones(1, 2))
    with pytest.raises(rowgrad.DTypeError, match="list"):
        layer([[1, 2]])
    for settings, message in [
        ({"combiner": "median"}, "one of sum, mean, sqrtn, max"),
        ({"combiner": "sum", "mode": "mean"}, "two names of one setting"),
        ({"padding_idx": ROWS}, "padding_idx"),
        ({"scale_grad_by_freq": True, "combiner": "max"}, "scale_grad_by_freq"),
        ({"_weight": torch.ones(2, 2)}, "_weight has shape"),
    ]:
        with pytest.raises(rowgrad.InvalidArgumentError, match=message):
            EmbeddingBag(ROWS, WIDTH, **settings)
    with pytest.raises(rowgrad.InvalidArgumentError, match="num_embeddings"):
        EmbeddingBag(-1, 2)


# In company


def test_segment_ids() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="mean", _weight=table())
    ids, offsets = batch()
    segments = torch.tensor([1] * 4 + [2] * 5 + [4] * 11)
    assert torch.equal(layer(ids, segment_ids=segments, num_bags=6), layer(ids, offsets))
    assert layer(ids, segment_ids=segments).shape == (5, WIDTH)
    with pytest.raises(rowgrad.InvalidArgumentError, match="smaller than"):
        layer(ids, segment_ids=segments.flip(0), num_bags=6)


def test_autocast() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, _weight=table())
    head = torch.nn.Linear(WIDTH, 3)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = layer(*batch())
        out = head(pooled)
    assert (pooled.dtype, out.dtype) == (torch.float32, torch.bfloat16)
    out.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32


def test_deterministic_algorithms_are_accepted() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        for sparse in (True, False):
            layer = EmbeddingBag(ROWS, WIDTH, combiner="mean", sparse=sparse)
            layer(*batch(), torch.rand(20, requires_grad=True)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
def test_a_compiled_training_step(combiner: str) -> None:
    torch.compiler.reset()
    layer = EmbeddingBag(ROWS, WIDTH, combiner=combiner, sparse=False, _weight=table())
    head = torch.nn.Linear(WIDTH, 1)

    def loss(parameters: Any, ids: Any, offsets: Any) -> Any:
        pooled = torch.func.functional_call(layer, parameters, (ids, offsets))
        return head(pooled).square().mean()

    def step(parameters: Any, ids: Any, offsets: Any) -> Any:
        grads, value = torch.func.grad_and_value(loss)(parameters, ids, offsets)
        return {name: array - 0.1 * grads[name] for name, array in parameters.items()}, value

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    parameters = {"weight": table()}
    expected, value = step(parameters, *batch())
    actual, compiled_value = compiled(parameters, *batch())
    torch.testing.assert_close(actual["weight"], expected["weight"])
    torch.testing.assert_close(compiled_value, value)

    model = torch.compile(lambda *inputs: head(layer(*inputs)).square().mean(), fullgraph=True, backend="aot_eager")
    model(*batch()).backward()
    compiled_grad, layer.weight.grad = layer.weight.grad, None
    head(layer(*batch())).square().mean().backward()
    torch.testing.assert_close(compiled_grad, layer.weight.grad)


def test_vmap_over_tables() -> None:
    layer = EmbeddingBag(ROWS, WIDTH, combiner="sqrtn", sparse=False)
    tables = torch.stack([table(), 2 * table()])

    def pooled(weight: Any) -> Any:
        return torch.func.functional_call(layer, {"weight": weight}, batch())

    torch.testing.assert_close(torch.func.vmap(pooled)(tables), torch.stack([pooled(each) for each in tables]))


def test_numbers_of_numpy_are_numbers() -> None:
    layer = EmbeddingBag(np.int64(5), np.int32(2), padding_idx=np.int64(-1), combiner="sum")
    assert (layer.num_embeddings, layer.embedding_dim, layer.padding_idx) == (5, 2, 4)
    ids = torch.tensor([0, 4, 1])
    assert layer(ids, segment_ids=torch.tensor([0, 0, 1]), num_bags=np.int64(3)).shape == (3, 2)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_table_that_is_computed_from_another_is_looked_up_and_gets_its_gradient(sparse):
    class Doubled(torch.nn.Module):
        def forward(self, table):
            return 2 * table

    layer = EmbeddingBag(10, 4, mode="sum", sparse=sparse)
    ids, offsets = torch.tensor([1, 2, 2]), torch.tensor([0, 1])
    before = layer(ids, offsets).detach()
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    after = layer(ids, offsets)
    assert torch.equal(after, 2 * before)
    if not sparse:
        after.sum().backward()
        assert layer.parametrizations.weight.original.grad.sum(1).tolist() == [0, 8, 16, 0, 0, 0, 0, 0, 0, 0]
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert torch.equal(layer(ids, offsets), after)
