"""The forms that the features of a collection come in, and what is refused, with the place."""

from typing import Any

import pytest
from collection_cases import FEATURES, batch, collection, tables_of

import rowgrad
from optional import framework
from rowgrad import optim

torch = framework("torch")

from rowgrad.torch import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402


class TheirFeatures:
    """TorchRec's KeyedJaggedTensor by its methods, which is all that is looked at."""

    def __init__(self, keys: Any, values: Any, lengths: Any, weights: Any = None, variable: bool = False,
                 inverse: Any = None) -> None:  # fmt: skip
        self._keys, self._values, self._lengths, self._weights = keys, values, lengths, weights
        self._variable, self._inverse = variable, inverse

    def keys(self) -> Any:
        return self._keys

    def values(self) -> Any:
        return self._values

    def lengths(self) -> Any:
        return self._lengths

    def offsets(self) -> Any:
        return torch.cat([self._lengths.new_zeros(1), self._lengths.cumsum(0)]).to(self._lengths.dtype)

    def weights_or_none(self) -> Any:
        return self._weights

    def stride(self) -> int:
        return len(self._lengths) // len(self._keys)

    def variable_stride_per_key(self) -> bool:
        return self._variable

    def inverse_indices_or_none(self) -> Any:
        return self._inverse


class TheirPooling:
    """A member of TorchRec's PoolingType or DataType."""

    def __init__(self, value: str) -> None:
        self.value = self.name = value


class TheirTable:
    """TorchRec's EmbeddingBagConfig by its attributes."""

    def __init__(self, name: str, rows: int, width: int, features: list[str], pooling: str) -> None:
        self.name, self.num_embeddings, self.embedding_dim, self.feature_names = name, rows, width, features
        self.pooling, self.data_type, self.init_fn = TheirPooling(pooling), TheirPooling("FP16"), None


def matrices(seed: int = 4) -> Any:
    torch.manual_seed(seed)
    return {name: torch.randint(0, 7, (3, length)) for name, length in zip(FEATURES, (2, 1, 0, 4), strict=True)}


# Forms


@pytest.mark.parametrize("weighted", [False, True])
def test_keys_in_any_order_and_others_beside_them(weighted: bool) -> None:
    module = collection(is_weighted=weighted)
    features = batch(1, weighted=weighted)
    expected = module(features).values()
    assert torch.equal(module(features.permute([3, 0, 2, 1])).values(), expected)
    more = KeyedJaggedTensor(["x"], torch.tensor([99, -1]), torch.ones(2) if weighted else None,
                             lengths=torch.tensor([1, 0, 0, 0, 0, 1]))  # fmt: skip
    for parts in ([more, features], [features, more], [features.permute([2, 3]), more, features.permute([0, 1])]):
        assert torch.equal(module(KeyedJaggedTensor.concat(parts)).values(), expected)


def test_weights_are_used_if_the_collection_says_so() -> None:
    features = batch(1, weighted=True)
    ignoring, using = collection(), collection(is_weighted=True)
    assert torch.equal(ignoring(features).values(), ignoring(batch(1)).values())
    assert not torch.equal(using(features).values(), ignoring(features).values())
    with pytest.raises(rowgrad.InvalidArgumentError, match="features has no weights, but the collection"):
        using(batch(1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_dicts(weighted: bool, dtype: Any) -> None:
    module = collection(is_weighted=weighted)
    features = batch(1, dtype, weighted)
    expected = module(features).values()
    parts = features.to_dict()
    assert torch.equal(module(parts).values(), expected)
    tuples = {name: (part.values(), part.offsets(), *([part.weights()] if weighted else ()))
              for name, part in reversed(parts.items())}  # fmt: skip
    assert torch.equal(module({"other": None, **tuples}).values(), expected)
    if not weighted:
        nested = {name: torch.nested.nested_tensor_from_jagged(part.values(), part.offsets())
                  for name, part in parts.items()}  # fmt: skip
        assert torch.equal(module(nested).values(), expected)
        mixed = {**parts, "a": tuples["a"], "d": nested["d"]}
        assert torch.equal(module(mixed).values(), expected)


def test_matrices_of_ids() -> None:
    module = collection()
    ids = matrices()
    pooled = module(ids)
    assert pooled.values().shape == (3, 15) and not pooled["c"].any()
    for name, table in (("a", "t0"), ("b", "t1"), ("c", "t1"), ("d", "t2")):
        bag = module.embedding_bags[table]
        single = rowgrad.torch.EmbeddingBag(*bag.weight.shape, combiner=bag.combiner, _weight=bag.weight.detach())
        assert torch.equal(pooled[name], single(ids[name]))
    assert torch.equal(module({**ids, "d": ids["d"].t().contiguous().t()}).values(), pooled.values())
    assert module({name: each[:0] for name, each in ids.items()}).values().shape == (0, 15)


def test_dicts_compiled() -> None:
    torch.compiler.reset()
    module = collection(sparse=False)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for rows in (3, 2, 1):
        ids = {name: each[:rows] for name, each in matrices().items()}
        assert torch.equal(compiled(ids).values(), module(ids).values())
    tuples = {name: (part.values(), part.offsets()) for name, part in batch(1).to_dict().items()}
    assert torch.equal(compiled(tuples).values(), module(batch(1)).values())
    torch.compiler.reset()


@pytest.mark.parametrize("weighted", [False, True])
def test_features_of_torchrec(weighted: bool) -> None:
    module = collection(is_weighted=weighted)
    own = batch(1, torch.int32, weighted)
    theirs = TheirFeatures(FEATURES, own.values(), own.lengths(), own.weights_or_none())
    assert torch.equal(module(theirs).values(), module(own).values())
    turned = own.permute([1, 3, 2, 0])
    theirs = TheirFeatures(turned.keys(), turned.values(), turned.lengths(), turned.weights_or_none())
    assert torch.equal(module(theirs).values(), module(own).values())
    for settings, message in [({"variable": True}, "batches of different sizes"), ({"inverse": 1}, "inverse indices")]:
        with pytest.raises(rowgrad.InvalidArgumentError, match=message):
            module(TheirFeatures(FEATURES, own.values(), own.lengths(), own.weights_or_none(), **settings))


def test_tables_of_torchrec() -> None:
    module = EmbeddingBagCollection([TheirTable("t0", 12, 5, ["a"], "SUM"), TheirTable("t1", 7, 3, [], "MEAN")])
    assert [bag.combiner for bag in module.embedding_bags.values()] == ["sum", "mean"]
    assert {bag.weight.dtype for bag in module.embedding_bags.values()} == {torch.float16}
    assert module.feature_names() == ["a", "t1"]
    assert EmbeddingBagConfig("t", 1, 1, pooling=TheirPooling("MEAN")).pooling == "mean"
    assert EmbeddingBagConfig("t", 1, 1, data_type=TheirPooling("BF16")).data_type == torch.bfloat16


# What is refused


@pytest.mark.parametrize(("change", "message"), [
    ({"features": [1]}, "features is a list; pass a KeyedJaggedTensor, or a dict"),
    ({"a": None}, r"features\['a'\] is a NoneType; pass a matrix of ids"),
    ({"a": torch.tensor([1, 2])}, r"features\['a'\] has shape \[2\]; a tensor of ids is a matrix"),
    ({"a": torch.ones(3, 1)}, r"features\['a'\], its ids, is float32; allowed: int64, int32"),
    ({"a": torch.ones(2, 1).long()}, r"features\['b'\] has 3 bags, but features\['a'\] has 2"),
    ({"a": (torch.tensor([1, 2]), torch.tensor([0, 1, 1]))}, r"features\['b'\] has 3 bags, but features\['a'\] has 2"),
    ({"a": (torch.tensor([1, 2]), torch.tensor([0, 1, 1, 1]))}, r"begin with 0 and end with 2, .* are 0 to 1"),
    ({"b": (torch.tensor([1, 2]), torch.tensor([1, 1, 1, 2]))}, r"features\['b'\] must begin with 0 and end with 2"),
    ({"a": (torch.tensor([1, 2]), torch.tensor([0.0, 1, 1, 2]))}, "its offsets, is float32"),
    ({"a": (torch.tensor([1, 2]), torch.tensor([0])[:0])}, r"features\['a'\] has offsets without elements"),
    ({"a": (torch.tensor([1]), torch.tensor([0, 1, 1, 1]), torch.ones(2))}, r"weights of shape \[2\]"),
    ({"a": (torch.tensor([1, 2]), torch.tensor([0, 3, 1, 2]))}, r"offsets\[2\] is 1, smaller than 3"),
])  # fmt: skip
def test_dicts_that_do_not_fit(change: Any, message: str) -> None:
    module = collection()
    features = change.pop("features", None)
    with pytest.raises(rowgrad.RowgradError, match=message):
        module({**matrices(), **change} if features is None else features)


def test_features_that_are_missing() -> None:
    module = collection()
    features = batch(1)
    message = "the collection's feature is 'd'; the keys are 'a', 'b', 'c'"
    for given in (features.permute([0, 1, 2]), {name: features[name] for name in "abc"}):
        with pytest.raises(KeyError, match=message):
            module(given)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"features\['a'\] has no weights"):
        collection(is_weighted=True)(matrices())


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (([1], torch.tensor([0] * 5)), TypeError, "values is a list"),
    ((torch.ones(1), torch.tensor([0] * 5)), TypeError, "values is float32; allowed: int64, int32"),
    ((torch.tensor([[1]]), torch.tensor([0] * 5)), ValueError, r"values has shape \[1, 1\]; it must be a vector"),
    ((torch.tensor([1]), torch.tensor([[0] * 5])), ValueError, r"offsets has shape \[1, 5\]"),
    ((torch.tensor([1]), torch.tensor([0.0] * 5)), TypeError, "offsets is float32"),
    ((torch.tensor([1]), torch.tensor([0] * 4)), ValueError, "offsets has length 4; .* the 4 features"),
    ((torch.tensor([1]), torch.tensor([0])[:0]), ValueError, "offsets has length 0"),
    ((torch.tensor([1]), torch.tensor([0] * 5)), ValueError, r"offsets\[4\] is 0; the last offset must be 1"),
    ((torch.tensor([1]), torch.tensor([0, 0, 1, 1, 2])), ValueError, r"offsets\[4\] is 2"),
    ((torch.tensor([1]), torch.tensor([0, 1, 0, 1, 1])), ValueError, r"offsets\[2\] is 0, smaller than 1"),
    ((torch.tensor([1]), torch.tensor([1, 1, 1, 1, 1])), ValueError, r"offsets\[0\] is 1"),
    ((torch.tensor([1]), torch.tensor([0, -1, 1, 1, 1])), ValueError, r"offsets\[1\] is -1"),
    ((torch.tensor([1]), torch.tensor([0, 1, 1, 1, 1]), torch.ones(2)), ValueError, r"weights has shape \[2\]"),
    ((torch.tensor([1]), torch.tensor([0, 1, 1, 1, 1]), torch.tensor([1])), TypeError, "weights is int64; allowed"),
    ((torch.tensor([1]), torch.tensor([0, 1, 1, 1, 1]), [1.0]), TypeError, "weights is a list"),
])  # fmt: skip
def test_plain_forms_that_do_not_fit(arguments: Any, error: Any, message: str) -> None:
    module = collection()
    with pytest.raises(rowgrad.RowgradError, match=message) as found:
        module.pool(*arguments)
    assert isinstance(found.value, error) and found.value.argument in message


@pytest.mark.parametrize("settings", [{}, {"sparse": False}, {"fused_optimizer": optim.Adam(lr=0.1)}], ids=str)
@pytest.mark.parametrize(
    ("feature", "bad", "table", "limit"), [("a", 12, "t0", 11), ("c", 7, "t1", 6), ("d", -1, "t2", 8)]
)
def test_bad_ids_change_no_table(settings: Any, feature: str, bad: int, table: str, limit: int) -> None:
    module = collection(**settings)
    features = batch(1)
    values, index = features.values().clone(), FEATURES.index(feature)
    position = features.offset_per_key()[index + 1] - 1  # the last id of the feature
    values[position] = bad
    lengths = features.lengths().view(4, -1)[index]
    number = int(lengths.nonzero().max())
    before = {name: array.clone() for name, array in module.state_dict().items()}
    message = (
        rf"values\[{position}\] is {bad}; .*0 to {limit} "
        rf"\(num_embeddings of the table '{table}' is {limit + 1}\)\. "
        rf"It is entry {int(lengths[number]) - 1} of bag {number} of the feature '{feature}'"
    )
    with pytest.raises(rowgrad.OutOfRangeError, match=message) as found:
        module.pool(values, features.offsets()).sum().backward()
    assert (found.value.argument, found.value.position, found.value.value) == ("values", position, bad)
    assert found.value.code == "index-out-of-range" and isinstance(found.value, IndexError)
    for name, array in module.state_dict().items():
        assert torch.equal(array, before[name])


@pytest.mark.parametrize(("arguments", "message"), [
    ({"name": "a.b"}, "name is 'a.b'; it must be a text without dots"),
    ({"name": "items"}, "name is 'items'"),
    ({"name": 3}, "name is 3"),
    ({"num_embeddings": -1}, "num_embeddings is -1"),
    ({"embedding_dim": 2.5}, "embedding_dim is 2.5"),
    ({"feature_names": "a"}, r"feature_names is 'a'; it must be a list of names. Pass \['a'\]"),
    ({"pooling": "max"}, "max"),
    ({"pooling": None}, "None"),
    ({"data_type": torch.int64}, "data_type is torch.int64; allowed: torch.float32"),
    ({"data_type": "INT8"}, "data_type is INT8"),
    ({"name": "\ud800"}, "name is"),
    ({"num_embeddings": 2**63}, r"at most 2\*\*63 - 1"),
    ({"feature_names": None}, "feature_names is None; it must be a list of names"),
    ({"feature_names": [["a"]]}, "it must be a list of names"),
    ({"pooling": []}, r"combiner is \[\]"),
    ({"init_fn": 3}, "init_fn is 3; it must be a function"),
    ({"weight_init_max": float("nan")}, "weight_init_max is nan; it must be a finite number"),
    ({"weight_init_min": 3.0}, "weight_init_min is 3, above weight_init_max"),
])  # fmt: skip
def test_tables_that_cannot_be(arguments: Any, message: str) -> None:
    usual = {"name": "t", "num_embeddings": 4, "embedding_dim": 2}
    with pytest.raises(rowgrad.RowgradError, match=message):
        EmbeddingBagConfig(**{**usual, **arguments})


def test_collections_that_cannot_be() -> None:
    one, two = EmbeddingBagConfig("t", 4, 2), EmbeddingBagConfig("u", 4, 2)
    for arguments, message in [
        (([],), "tables is empty"),
        ((None,), "tables is a NoneType; pass a list of EmbeddingBagConfig"),
        ((one,), "tables is a EmbeddingBagConfig; pass a list"),
        (([one, one],), r"tables\[1\] is named 't', as another table is"),
        (([one, 3],), r"tables\[1\] is a int; pass an EmbeddingBagConfig"),
        (([EmbeddingBagConfig("t", 4, 2, ["a", "a"])],), r"tables\[0\] has the features \['a', 'a'\]"),
    ]:
        with pytest.raises(rowgrad.RowgradError, match=message):
            EmbeddingBagCollection(*arguments)
    for optimizers, message in [
        (torch.optim.SGD, "fused_optimizer is a type; pass one of rowgrad.optim"),
        ({"t": optim.SGD(0.1)}, "fused_optimizer has nothing for the table 'u'"),
        ({"t": optim.SGD(0.1), "u": 3}, "fused_optimizer has 3 for 'u'"),
        ({"t": None, "u": None, "v": None}, "fused_optimizer has None for 'v'"),
    ]:
        with pytest.raises(rowgrad.RowgradError, match=message):
            EmbeddingBagCollection([one, two], fused_optimizer=optimizers)


def test_a_table_without_rows() -> None:
    module = EmbeddingBagCollection([EmbeddingBagConfig("t", 0, 2), EmbeddingBagConfig("u", 3, 0)])
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    assert module({"t": nothing, "u": torch.tensor([[1], [2]])}).values().shape == (2, 2)
    with pytest.raises(rowgrad.OutOfRangeError, match="nothing is allowed"):
        module({"t": nothing[:, :0].new_zeros(2, 1), "u": nothing})
    assert tables_of(module)["t"].shape == (0, 2)
