"""Collections of tables beside single layers, PyTorch's and rowgrad's: what they give, and their gradients."""

import copy
import io
import pickle
from typing import Any

import pytest
from collection_cases import (
    BATCH,
    FEATURES,
    TABLES,
    assert_same_state,
    batch,
    collection,
    layers,
    one_by_one,
    rows,
    tables_of,
    upstream,
)

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, RowOptimizer  # noqa: E402

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 4e-2}
INTEGERS = [torch.int64, torch.int32]


def dense(grad: Any) -> Any:
    return grad.to_dense() if grad.is_sparse else grad


# Values and gradients


# Each type meets each setting, and each two settings meet; all four together are not needed.
@pytest.mark.parametrize(
    ("dtype", "ids", "sparse", "weighted"),
    [(dtype, INTEGERS[(i + weighted) % 2], (i // 2 + weighted) % 2 == 0, weighted)
     for i, dtype in enumerate(FLOATS) for weighted in (True, False)], ids=str,
)  # fmt: skip
def test_bit_for_bit_the_layers(dtype: Any, ids: Any, sparse: bool, weighted: bool) -> None:
    module = collection(dtype, sparse=sparse, is_weighted=weighted)
    bags = layers(module, sparse=sparse)
    for seed in (0, 1):
        features = batch(seed, ids, weighted)
        pooled, expected = module(features), one_by_one(bags, module, features)
        assert pooled.keys() == FEATURES and pooled.length_per_key() == [5, 3, 3, 4]
        assert pooled.values().dtype == dtype and torch.equal(pooled.values(), expected)
        assert torch.equal(pooled["c"], expected[:, 8:11])
        for output in (pooled.values(), expected):
            output.backward(upstream(output))
        for name, bag in module.embedding_bags.items():
            assert torch.equal(dense(bag.weight.grad), dense(bags[name].weight.grad))
            bag.weight.grad = bags[name].weight.grad = None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("ids", INTEGERS, ids=str)
def test_pytorch_agrees(dtype: Any, ids: Any) -> None:
    module = collection(dtype, TABLES[:2], sparse=True)
    features = batch(1, ids).permute([0, 1, 2])
    pooled = module(features)
    pooled.values().backward(upstream(pooled.values()))
    begin = 0
    for config in module.embedding_bag_configs():
        bag = module.embedding_bags[config.name]
        weight = bag.weight.detach().double().requires_grad_()
        for name in config.feature_names:
            jagged = features[name]
            theirs = torch.nn.functional.embedding_bag(
                jagged.values(), weight, jagged.offsets(), mode=config.pooling, include_last_offset=True
            )
            grad = upstream(pooled.values())[:, begin : begin + config.embedding_dim].double()
            begin += config.embedding_dim
            theirs.backward(grad)
            torch.testing.assert_close(pooled[name].double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        grads = bag.weight.grad
        assert grads.is_sparse
        torch.testing.assert_close(grads.to_dense().double(), weight.grad, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_of_weights(sparse: bool) -> None:
    module = collection(torch.float64, sparse=sparse, is_weighted=True)
    features = batch(2)
    weights = torch.rand(features.values().shape, dtype=torch.float64)
    found = []
    for compute in (module, lambda given: one_by_one(layers(module, sparse=sparse), module, given)):
        own = weights.clone().requires_grad_()
        pooled = compute(KeyedJaggedTensor(FEATURES, features.values(), own, lengths=features.lengths()))
        pooled = pooled if isinstance(pooled, torch.Tensor) else pooled.values()
        pooled.backward(upstream(pooled))
        found.append(own.grad)
    assert found[0].abs().mean() > 0.1
    assert torch.equal(*found)


def test_gradients_of_any_order() -> None:
    module = collection(torch.float64, sparse=False, is_weighted=True)
    features = batch(3, size=2)
    weights = torch.rand(features.values().shape, dtype=torch.float64) + 0.5
    names = [f"embedding_bags.{name}.weight" for name in module.embedding_bags]

    def pooled(weights: Any, *tables: Any) -> Any:
        given = KeyedJaggedTensor(FEATURES, features.values(), weights, lengths=features.lengths())
        return torch.func.functional_call(module, dict(zip(names, tables, strict=True)), (given,)).values()

    inputs = (weights.requires_grad_(), *(bag.weight.detach().clone().requires_grad_()
                                          for bag in module.embedding_bags.values()))  # fmt: skip
    assert torch.autograd.gradcheck(pooled, inputs)
    assert torch.autograd.gradgradcheck(pooled, inputs)


def test_a_table_of_two_features_gets_both_gradients_at_once() -> None:
    """In one sparse gradient, and in the order of the features."""
    module = collection()
    features = KeyedJaggedTensor(FEATURES, torch.tensor([0, 6, 2, 6, 1]), lengths=torch.tensor([1, 1, 2, 1]))
    pooled = module(features)
    pooled["b"].sum().backward(retain_graph=True)
    pooled["c"].mul(3).sum().backward()
    single = module.embedding_bags["t1"].weight.grad
    module.embedding_bags["t1"].weight.grad = None
    pooled = module(features)
    (pooled["b"].sum() + pooled["c"].mul(3).sum()).backward()
    grad = module.embedding_bags["t1"].weight.grad
    assert grad.is_coalesced() and grad.indices().tolist() == [[2, 6]]
    assert grad.values().tolist() == [[1.5] * 3, [1 + 1.5] * 3]
    assert torch.equal(single.to_dense(), grad.to_dense())


@pytest.mark.parametrize("make", [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.0),
    lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
    lambda parameters: RowOptimizer(parameters, optim.RowWiseAdagrad(lr=0.1)),
], ids=["SGD", "SparseAdam", "RowOptimizer"])  # fmt: skip
def test_optimizers_outside(make: Any) -> None:
    module = collection()
    bags = torch.nn.ModuleDict(layers(module))
    first, second = make(list(module.parameters())), make(list(bags.parameters()))
    for seed in range(3):
        module(batch(seed)).values().square().sum().backward()
        one_by_one(bags, module, batch(seed)).square().sum().backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    for name, bag in module.embedding_bags.items():
        assert torch.equal(bag.weight, bags[name].weight)
        assert not torch.equal(bag.weight, collection().embedding_bags[name].weight)


# Small and odd


def test_nothing_to_look_up() -> None:
    module = collection(sparse=False)
    nothing = torch.zeros(0, dtype=torch.int64)
    empty = module.pool(nothing, torch.zeros(4 * 3 + 1, dtype=torch.int64))
    assert empty.shape == (3, 15) and not empty.any()
    empty.sum().backward()
    assert all(not bag.weight.grad.any() for bag in module.embedding_bags.values())
    nobody = module.pool(nothing, torch.tensor([0]))
    assert nobody.shape == (0, 15)
    nobody.sum().backward()
    assert module(KeyedJaggedTensor(FEATURES, nothing, lengths=nothing)).values().shape == (0, 15)


def test_one_table() -> None:
    module = collection(tables=TABLES[:1])
    ids = torch.tensor([[3, 3], [0, 11]])
    pooled = module({"a": ids})
    weight = module.embedding_bags["t0"].weight
    torch.testing.assert_close(pooled.values(), weight[ids].sum(1))
    assert pooled.keys() == ["a"]
    assert module.pool(ids.reshape(-1), torch.tensor([0, 2, 4])).shape == (2, 5)


def test_the_plain_form() -> None:
    module = collection()
    features = batch(1, weighted=True)
    assert module.feature_names() == FEATURES
    assert torch.equal(module.pool(features.values(), features.offsets()), module(features).values())
    weighted = collection(is_weighted=True)
    expected = weighted(features).values()
    pooled = module.pool(features.values(), features.offsets(), features.weights())
    assert torch.equal(pooled, expected) and not torch.equal(pooled, module(features).values())
    # Memory with holes, and types that differ.
    spread = [
        torch.stack([each, each], 1)[:, 0] for each in (features.values(), features.offsets(), features.weights())
    ]
    assert not any(each.is_contiguous() for each in spread)
    assert torch.equal(module.pool(*spread), expected)
    assert torch.equal(module.pool(features.values().int(), features.offsets(), features.weights()), expected)
    assert torch.equal(module.pool(features.values(), features.offsets().int(), features.weights()), expected)


def test_tables_of_different_types() -> None:
    """They give the type that they promote to, and each table has gradients of its own type."""
    for types, result in [
        ((torch.float16, torch.bfloat16), torch.float32),
        ((torch.float16, torch.float32), torch.float32),
        ((torch.bfloat16, torch.float64), torch.float64),
        ((torch.bfloat16, torch.bfloat16), torch.bfloat16),
    ]:
        module = EmbeddingBagCollection(
            [EmbeddingBagConfig(f"t{i}", 4, 2, data_type=dtype) for i, dtype in enumerate(types)]
        )
        pooled = module({"t0": torch.tensor([[1, 1]]), "t1": torch.tensor([[2, 3]])})
        assert pooled.values().dtype == result
        pooled.values().sum().backward()
        for bag, dtype in zip(module.embedding_bags.values(), types, strict=True):
            single = bag(torch.tensor([[1, 1]]) if bag is module.embedding_bags["t0"] else torch.tensor([[2, 3]]))
            name = "t0" if bag is module.embedding_bags["t0"] else "t1"
            assert torch.equal(pooled[name], single.to(result))
            assert bag.weight.grad.dtype == dtype


def test_features_of_several_tables() -> None:
    """TorchRec's keys: feature@table where two tables have a feature."""
    tables = [("x", 12, 2, ["a", "b"], "sum"), ("y", 7, 3, ["b"], "sum")]
    module = collection(tables=tables)
    pooled = module(batch(1))
    assert pooled.keys() == ["a", "b@x", "b@y"] and pooled.length_per_key() == [2, 2, 3]
    own = batch(1)["b"]
    for key, name in (("b@x", "x"), ("b@y", "y")):
        assert torch.equal(pooled[key], module.embedding_bags[name](own.values(), own.offsets()))


# As a module


def test_new_tables() -> None:
    torch.manual_seed(3)
    module = EmbeddingBagCollection([
        EmbeddingBagConfig("usual", 500, 4),
        EmbeddingBagConfig("between", 500, 4, weight_init_min=2.0, weight_init_max=3.0),
        EmbeddingBagConfig("own", 500, 4, init_fn=lambda weight: weight.fill_(7.0)),
    ])  # fmt: skip
    usual, between, own = (bag.weight.detach() for bag in module.embedding_bags.values())
    assert usual.abs().max() <= 0.5 and usual.max() > 0.45 and usual.min() < -0.45
    assert between.min() >= 2 and between.max() <= 3 and between.std() > 0.1
    assert bool((own == 7).all())
    before = tables_of(module)
    module.reset_parameters()
    assert not torch.equal(before["usual"], module.embedding_bags["usual"].weight)
    assert torch.equal(before["own"], module.embedding_bags["own"].weight)


def test_names_and_state_are_torchrecs() -> None:
    module = collection()
    assert list(module.state_dict()) == [f"embedding_bags.{name}.weight" for name in ("t0", "t1", "t2")]
    assert module.embedding_bags["t1"].weight.shape == (7, 3)
    assert [config.name for config in module.embedding_bag_configs()] == ["t0", "t1", "t2"]
    assert (module.is_weighted(), module.device) == (False, torch.device("cpu"))
    positional = EmbeddingBagCollection(module.embedding_bag_configs(), True, torch.device("cpu"))
    assert positional.is_weighted()
    positional.load_state_dict(module.state_dict())
    assert_same_state(module, positional)


@pytest.mark.parametrize("settings", [{}, {"sparse": False}, {"fused_optimizer": optim.Adam(lr=0.1)}], ids=str)
def test_copies_go_on(settings: Any) -> None:
    module = collection(**settings)
    module(batch(0)).values().square().sum().backward()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    loaded = collection(**settings)
    loaded.load_state_dict(torch.load(file))
    for other in (loaded, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same_state(module, other)
        reference = copy.deepcopy(module)
        for each in (reference, other):
            each.zero_grad()
            each(batch(1)).values().square().sum().backward()
        assert_same_state(reference, other)
        for name, bag in reference.embedding_bags.items():
            if not settings.get("fused_optimizer"):
                assert torch.equal(dense(bag.weight.grad), dense(other.embedding_bags[name].weight.grad))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_casts(dtype: Any) -> None:
    module = collection(fused_optimizer=optim.Adagrad(lr=0.1)).to(dtype)
    assert module(batch(1)).values().dtype == dtype
    module(batch(1)).values().sum().backward()
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    assert {bag.fused_state["sum"].dtype for bag in module.embedding_bags.values()} == {kept}
    assert {bag.weight.dtype for bag in module.embedding_bags.values()} == {dtype}


def test_tables_without_memory() -> None:
    configs = [EmbeddingBagConfig(*table) for table in TABLES]
    module = EmbeddingBagCollection(configs, device="meta", fused_optimizer=optim.Adam(lr=0.1))
    assert all(array.is_meta for array in module.state_dict().values())
    module.reset_parameters()  # has nothing to do
    module = module.to_empty(device="cpu")
    for array in module.state_dict().values():
        array.fill_(3)
    module.reset_parameters()
    for bag in module.embedding_bags.values():
        assert bag.weight.abs().max() < 1
        assert not any(array.any() for array in bag.fused_state.values())


# From PyTorch


@pytest.mark.parametrize("named", [True, False])
def test_from_torch(named: bool) -> None:
    modules = [torch.nn.EmbeddingBag(count, width, mode=mode, sparse=True)
               for count, width, mode in ((12, 5, "sum"), (7, 3, "mean"))]  # fmt: skip
    optimizer = torch.optim.SGD([module.weight for module in modules], lr=0.5)
    given = {"users": modules[0], "products": modules[1]} if named else modules
    names = ["users", "products"] if named else ["t0", "t1"]
    module = EmbeddingBagCollection.from_torch(given)
    assert [bag.weight is each.weight for bag, each in zip(module.embedding_bags.values(), modules, strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert (module.feature_names(), module.sparse) == (names, True)
    ids = [torch.tensor([[1, 2], [3, 3]]), torch.tensor([[0], [6]])]
    pooled = module(dict(zip(names, ids, strict=True)))
    torch.testing.assert_close(pooled.values(), torch.cat([each(i) for each, i in zip(modules, ids, strict=True)], 1))
    before = [each.weight.detach().clone() for each in modules]
    pooled.values().sum().backward()
    optimizer.step()
    before[0][[1, 2]] -= 0.5
    before[0][3] -= 1
    before[1][[0, 6]] -= 0.5
    for each, expected in zip(modules, before, strict=True):
        torch.testing.assert_close(each.weight.detach(), expected)


def test_from_torch_with_settings() -> None:
    modules = {"x": torch.nn.EmbeddingBag(6, 2, mode="sum").eval(), "y": torch.nn.EmbeddingBag(6, 2).eval()}
    modules["y"].weight.requires_grad_(False)
    module = EmbeddingBagCollection.from_torch(
        modules, feature_names={"x": ["p", "q"]}, fused_optimizer={"x": optim.SGD(lr=1.0), "y": None}
    )
    assert (module.feature_names(), module.training, module.sparse) == (["p", "q", "y"], False, False)
    before = tables_of(module)
    ids = torch.tensor([[1]])
    module({"p": ids, "q": ids + 1, "y": ids}).values().sum().backward()
    changed = (modules["x"].weight != before["x"]).any(1).nonzero().flatten().tolist()
    assert changed == [1, 2] and torch.equal(modules["y"].weight, before["y"])


def test_from_containers_of_pytorch() -> None:
    layers = {"x": torch.nn.EmbeddingBag(6, 2, mode="sum"), "y": torch.nn.EmbeddingBag(5, 3, mode="sum")}
    assert list(EmbeddingBagCollection.from_torch(torch.nn.ModuleDict(layers)).embedding_bags) == ["x", "y"]
    module = EmbeddingBagCollection.from_torch(torch.nn.ModuleList(layers.values()))
    assert module.embedding_bags["t1"].weight is layers["y"].weight
    with pytest.raises(rowgrad.DTypeError, match="modules is a EmbeddingBag; pass a list"):
        EmbeddingBagCollection.from_torch(layers["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("layer", "message"), [
    (lambda: torch.nn.EmbeddingBag(6, 2, max_norm=1.0), "max_norm=1.0, which a collection does not have"),
    (lambda: torch.nn.EmbeddingBag(6, 2, padding_idx=1), "padding_idx=1, which"),
    (lambda: torch.nn.EmbeddingBag(6, 2, mode="max"), "max"),
    (lambda: torch.nn.Embedding(6, 2), "is a Embedding; from_torch takes layers of torch.nn.EmbeddingBag"),
    (lambda: torch.nn.EmbeddingBag(6, 2, sparse=True), "some of the modules are sparse"),
])  # fmt: skip
def test_from_torch_refuses(layer: Any, message: str) -> None:
    with pytest.raises(rowgrad.RowgradError, match=message):
        EmbeddingBagCollection.from_torch([torch.nn.EmbeddingBag(6, 2), layer()])


# Compiled and transformed


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_whole(dynamic: bool, weighted: bool) -> None:
    torch.compiler.reset()
    module = collection(sparse=False, is_weighted=weighted)
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for seed, size in ((1, BATCH), (2, BATCH + 3)):
        features = batch(seed, weighted=weighted, size=size)
        for given in (features, features.permute([3, 1, 0, 2])):
            grads = []
            for way in (compiled, module):
                pooled = way(given)
                assert pooled.keys() == FEATURES
                pooled.values().backward(upstream(pooled.values()))
                grads.append([bag.weight.grad for bag in module.embedding_bags.values()])
                module.zero_grad()
            assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))
            assert torch.equal(compiled(given).values(), module(given).values())
    torch.compiler.reset()


def test_exported() -> None:
    module = collection(sparse=False)
    features = batch(1)
    exported = torch.export.export(module, (features,)).module()
    pooled = exported(features)
    assert pooled.keys() == FEATURES and torch.equal(pooled.values(), module(features).values())
    examples, ids = torch.export.Dim("examples", min=2), torch.export.Dim("ids")
    plain = torch.export.export(Plain(module), (features.values(), features.offsets()),
                                dynamic_shapes=({0: ids}, {0: 4 * examples + 1})).module()  # fmt: skip
    for size in (BATCH, 3, 11):
        other = batch(2, size=size)
        assert torch.equal(plain(other.values(), other.offsets()), module(other).values())


class Plain(torch.nn.Module):
    """The plain form as a module."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: Any, offsets: Any) -> Any:
        return self.module.pool(values, offsets)


def test_functional_training() -> None:
    module = collection(sparse=True)
    features = batch(1)
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def loss(parameters: Any) -> Any:
        return torch.func.functional_call(module, parameters, (features,)).values().square().sum()

    grads = torch.func.grad(loss)(parameters)
    module(features).values().square().sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(grads[name], parameter.grad.to_dense())


def test_vmap_over_tables() -> None:
    module = collection(sparse=False)
    features = batch(1)
    tables = {name: torch.stack([each.detach(), 2 * each.detach()]) for name, each in module.named_parameters()}

    def pooled(parameters: Any) -> Any:
        return torch.func.functional_call(module, parameters, (features,)).values()

    once = module(features).values()
    torch.testing.assert_close(torch.func.vmap(pooled)(tables), torch.stack([once, 2 * once]))


@pytest.mark.parametrize("settings", [{"sparse": True}, {"sparse": False}, {"fused_optimizer": optim.Adagrad(lr=0.1)}],
                         ids=str)  # fmt: skip
def test_other_devices_compute_the_same(settings: Any) -> None:
    module, same = collection(**settings), collection(**settings)
    with rowgrad.torch.portable():
        pooled = module(batch(1))
        pooled.values().square().sum().backward()
    expected = same(batch(1))
    expected.values().square().sum().backward()
    torch.testing.assert_close(pooled.values(), expected.values())
    for name, bag in module.embedding_bags.items():
        torch.testing.assert_close(bag.weight, same.embedding_bags[name].weight)
        if "fused_optimizer" not in settings:
            torch.testing.assert_close(dense(bag.weight.grad), dense(same.embedding_bags[name].weight.grad))


def test_autocast_leaves_tables_alone() -> None:
    module = collection()
    with torch.autocast("cpu", torch.bfloat16):
        pooled = module(batch(1)).values()
    assert pooled.dtype == torch.float32
    assert torch.equal(pooled, module(batch(1)).values())


@pytest.mark.usefixtures("many_chunks")
def test_threads_change_nothing() -> None:
    found = []
    for threads in (1, 3):
        rowgrad.set_num_threads(threads)
        module = collection(fused_optimizer=optim.Adam(lr=0.1))
        for seed in range(3):
            module(batch(seed, size=40)).values().square().sum().backward()
        found.append(module)
    assert_same_state(*found)


def test_rows_are_as_made() -> None:
    """The helper of these tests fills the tables as it says."""
    assert torch.equal(collection().embedding_bags["t1"].weight, rows(1, 7, 3, torch.float32))


def test_combiners_may_be_changed() -> None:
    tables = [EmbeddingBagConfig(name=name, num_embeddings=5, embedding_dim=4, feature_names=[name], pooling="sum")
              for name in "ab"]  # fmt: skip
    collection = EmbeddingBagCollection(tables=tables)
    values, offsets = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 4])
    summed = collection.pool(values, offsets)
    collection.embedding_bags["a"].mode = "mean"
    assert torch.equal(collection.pool(values, offsets), summed / torch.tensor([2.0] * 4 + [1.0] * 4))
