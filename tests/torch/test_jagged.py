"""`KeyedJaggedTensor`, `JaggedTensor` and `KeyedTensor`: TorchRec's names and meaning, and what they refuse."""

import copy
import pickle
from typing import Any

import pytest

import rowgrad
from optional import framework

torch = framework("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from rowgrad.torch import JaggedTensor, KeyedJaggedTensor, KeyedTensor  # noqa: E402

KEYS = ["f0", "f1", "f2"]
VALUES = [5, 6, 7, 8, 9, 1, 2]
LENGTHS = [2, 0, 0, 0, 3, 2]  # f1 is empty
OFFSETS = [0, 2, 2, 2, 2, 5, 7]


def keyed(by: str = "lengths", dtype: Any = torch.int64, weighted: bool = False, values: Any = None) -> Any:
    given = {"lengths": torch.tensor(LENGTHS, dtype=dtype), "offsets": torch.tensor(OFFSETS, dtype=dtype)}
    values = torch.tensor(VALUES, dtype=dtype) if values is None else values
    weights = torch.arange(7) / 2 if weighted else None
    return KeyedJaggedTensor(KEYS, values, weights, **{by: given[by]})


def as_lists(jagged: Any) -> Any:
    return [bag.tolist() for bag in jagged.to_dense()]


BOTH = pytest.mark.parametrize("by", ["lengths", "offsets"])


@BOTH
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_what_is_derived(by: str, dtype: Any) -> None:
    features = keyed(by, dtype, weighted=True)
    assert (features.keys(), features.stride(), features.stride_per_key()) == (KEYS, 2, [2, 2, 2])
    assert features.lengths().tolist() == LENGTHS and features.lengths().dtype == dtype
    assert features.offsets().tolist() == OFFSETS and features.offsets().dtype == dtype
    assert features.values().tolist() == VALUES
    assert features.weights() is features.weights_or_none()
    assert (features.lengths_or_none() is None, features.offsets_or_none() is None) == (False, False)
    assert features.length_per_key_or_none() is None
    assert features.length_per_key() == features.length_per_key_or_none() == [2, 0, 5]
    assert features.offset_per_key() == [0, 2, 2, 7]
    assert features.device() == torch.device("cpu")
    made = {"lengths": KeyedJaggedTensor.from_lengths_sync, "offsets": KeyedJaggedTensor.from_offsets_sync}[by](
        KEYS, features.values(), getattr(features, by)(), features.weights(), 2
    )
    assert made.length_per_key_or_none() == [2, 0, 5]
    assert made.unsync().length_per_key_or_none() is None
    assert made.offsets().tolist() == OFFSETS


@BOTH
def test_features_by_key(by: str) -> None:
    features = keyed(by, weighted=True)
    assert as_lists(features["f0"]) == [[5, 6], []]
    assert as_lists(features["f1"]) == [[], []]
    assert as_lists(features["f2"]) == [[7, 8, 9], [1, 2]]
    assert features["f2"].offsets().tolist() == [0, 3, 5]
    assert [bag.tolist() for bag in features["f2"].to_dense_weights()] == [[1.0, 1.5, 2.0], [2.5, 3.0]]
    assert keyed(by)["f2"].to_dense_weights() is None
    assert {key: as_lists(jagged) for key, jagged in features.to_dict().items()} == {
        key: as_lists(features[key]) for key in KEYS
    }
    with pytest.raises(KeyError, match=r"key is 'g'; the keys are 'f0', 'f1', 'f2'"):
        features["g"]


@BOTH
def test_parts_and_orders(by: str) -> None:
    features = keyed(by, weighted=True)
    turned = features.permute([2, 0])
    assert (turned.keys(), turned.stride(), turned.length_per_key()) == (["f2", "f0"], 2, [5, 2])
    assert turned.values().tolist() == [7, 8, 9, 1, 2, 5, 6]
    assert turned.weights().tolist() == [1.0, 1.5, 2.0, 2.5, 3.0, 0.0, 0.5]
    assert turned.offsets().tolist() == [0, 3, 5, 7, 7]
    parts = features.split([1, 0, 2])
    assert [part.keys() for part in parts] == [["f0"], [], ["f1", "f2"]]
    assert [part.values().tolist() for part in parts] == [[5, 6], [], [7, 8, 9, 1, 2]]
    assert [part.lengths().tolist() for part in parts] == [[2, 0], [], [0, 0, 3, 2]]
    whole = KeyedJaggedTensor.concat([parts[0], parts[2]])
    assert (whole.keys(), whole.values().tolist(), whole.lengths().tolist()) == (KEYS, VALUES, LENGTHS)
    assert torch.equal(whole.weights(), features.weights())
    again = KeyedJaggedTensor.from_jt_dict(features.to_dict())
    assert (again.keys(), again.values().tolist(), again.lengths().tolist()) == (KEYS, VALUES, LENGTHS)
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"indices\[1\] is 3; allowed: 0 to 2"):
        features.permute([0, 3])
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"at most the 3 keys"):
        features.split([2, 2])
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"kjt_list\[1\] has 1 examples, but kjt_list\[0\] has 2"):
        KeyedJaggedTensor.concat([features, KeyedJaggedTensor(["g"], torch.tensor([1]), lengths=torch.tensor([1]))])
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"kjt_list\[1\] has no weights"):
        KeyedJaggedTensor.concat([features.permute([0]), keyed().permute([1])])
    with pytest.raises(rowgrad.InvalidArgumentError, match="kjt_list is empty"):
        KeyedJaggedTensor.concat([])


def test_nothing() -> None:
    empty = KeyedJaggedTensor.empty(is_weighted=True)
    assert (empty.keys(), empty.stride(), empty.length_per_key(), empty.offset_per_key()) == ([], 0, [], [0])
    assert empty.offsets().tolist() == [0] and empty.values().dtype == torch.int64 and empty.weights().shape == (0,)
    assert str(empty) == "KeyedJaggedTensor({})"
    nobody = KeyedJaggedTensor(["a", "b"], torch.zeros(0, dtype=torch.int64), offsets=torch.tensor([0]))
    assert (nobody.stride(), nobody.length_per_key(), as_lists(nobody["b"])) == (0, [0, 0], [])
    assert nobody.permute([1, 0]).keys() == ["b", "a"]


def test_where_they_are() -> None:
    features = keyed(weighted=True)
    moved = features.to("meta", dtype=torch.float16)
    assert isinstance(moved, KeyedJaggedTensor) and moved.keys() == KEYS and moved.stride() == 2
    assert moved.device() == torch.device("meta") and moved.weights().dtype == torch.float16
    assert features["f0"].to("meta").values().is_meta
    assert KeyedTensor(["a"], [1], torch.ones(2, 1)).to("meta").values().is_meta


def test_texts() -> None:
    long = KeyedJaggedTensor(["a"], torch.arange(20), lengths=torch.tensor([11] + [1] * 9))
    assert repr(keyed()) == "KeyedJaggedTensor(keys=['f0', 'f1', 'f2'], stride=2, values=int64[7], weights=None)"
    assert str(keyed()) == 'KeyedJaggedTensor({\n    "f0": [[5, 6], []],\n    "f1": [[], []],\n' + (
        '    "f2": [[7, 8, 9], [1, 2]],\n})'
    )
    assert '"a": [[0, 1, 2, 3, 4, 5, 6, 7, …], [11], ' in str(long) and "… 2 more]" in str(long)
    assert str(keyed()["f2"]) == "JaggedTensor([[7, 8, 9], [1, 2]])"
    assert repr(keyed()["f2"]) == "JaggedTensor(batch=2, values=int64[5], weights=None)"
    assert repr(KeyedTensor(["a", "b"], [1, 2], torch.ones(4, 3))) == "KeyedTensor({a: 1, b: 2}, values=float32[4, 3])"


@pytest.mark.parametrize("way", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)),
                                 lambda value: pytree.tree_map(lambda leaf: leaf, value)])  # fmt: skip
def test_copies(way: Any) -> None:
    features = way(keyed("offsets", weighted=True))
    assert (features.keys(), features.values().tolist(), features.lengths().tolist()) == (KEYS, VALUES, LENGTHS)
    assert features.weights().tolist() == keyed(weighted=True).weights().tolist()
    assert as_lists(way(features["f2"])) == [[7, 8, 9], [1, 2]]
    pooled = way(KeyedTensor(["a", "b"], [1, 2], torch.arange(6).view(2, 3)))
    assert (pooled.keys(), pooled["b"].tolist()) == (["a", "b"], [[1, 2], [4, 5]])


def test_leaves_may_be_anything() -> None:
    """As `tree_map` makes trees of sizes, names or placeholders."""
    for tree in (keyed(weighted=True), keyed()["f0"], KeyedTensor(["a"], [1], torch.ones(2, 1))):
        leaves, spec = pytree.tree_flatten(tree)
        assert sum(isinstance(leaf, torch.Tensor) for leaf in leaves) == len(
            [leaf for leaf in leaves if leaf is not None]
        )
        assert type(pytree.tree_unflatten([object() for _ in leaves], spec)) is type(tree)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"keys": ["a", "a"]}, ValueError, r"keys\[1\] is 'a', and so is keys\[0\]"),
    ({"values": [1, 2]}, TypeError, "values is a list; it must be a tensor"),
    ({"values": torch.ones(2, 1)}, ValueError, r"values has shape \[2, 1\]; it must be a vector"),
    ({"lengths": None}, ValueError, "neither lengths nor offsets"),
    ({"lengths": torch.tensor([1.0, 1.0])}, TypeError, "lengths is float32; allowed: int64, int32"),
    ({"lengths": torch.tensor([[1, 1]])}, ValueError, r"lengths has shape \[1, 2\]; it must be a vector"),
    ({"lengths": torch.tensor([1, 1, 0])}, ValueError, "lengths describes 3 bags, but there are 2 keys"),
    ({"lengths": None, "offsets": torch.tensor([0, 2])}, ValueError, "offsets describes 1 bags, but there are 2 keys"),
    ({"lengths": None, "offsets": torch.tensor([0, 2]).int()[:0]}, ValueError, "offsets is empty"),
    ({"offsets": torch.tensor([0, 2])}, ValueError, "offsets has length 2, but lengths has 2; offsets has one more"),
    ({"weights": torch.ones(3)}, ValueError, "weights has length 3, but values has 2; each id needs one weight"),
    ({"stride": 2}, ValueError, "stride is 2, but there are 2 bags for 2 keys"),
])  # fmt: skip
def test_what_does_not_fit(arguments: Any, error: Any, message: str) -> None:
    usual = {"keys": ["a", "b"], "values": torch.tensor([1, 2]), "lengths": torch.tensor([1, 1])}
    with pytest.raises(rowgrad.RowgradError, match=message) as found:
        KeyedJaggedTensor(**{**usual, **arguments})
    assert isinstance(found.value, error)
    assert found.value.argument in found.value.message


def test_lengths_of_other_values() -> None:
    features = KeyedJaggedTensor(["a", "b"], torch.tensor([1, 2]), lengths=torch.tensor([1, 2]))
    with pytest.raises(rowgrad.InvalidArgumentError, match="are 3 together, but values has 2 ids"):
        features["a"]
    with pytest.raises(rowgrad.InvalidArgumentError, match="has no weights"):
        features.weights()


def test_one_feature() -> None:
    jagged = JaggedTensor(torch.tensor([1, 2, 3]), offsets=torch.tensor([0, 1, 1, 3]))
    assert (jagged.lengths().tolist(), as_lists(jagged)) == ([1, 0, 2], [[1], [], [2, 3]])
    with pytest.raises(rowgrad.InvalidArgumentError, match="neither lengths nor offsets"):
        JaggedTensor(torch.tensor([1]))


# What comes out


@pytest.mark.parametrize(("by", "derived"), [("lengths", "offsets"), ("offsets", "lengths")])
@pytest.mark.parametrize("transform", ["grad", "fake"])
def test_what_a_transform_derives_is_forgotten_with_it(by: str, derived: str, transform: str) -> None:
    """Tensors that are made inside a transform are dead outside of it, and would answer for a batch for ever."""
    features, expected = keyed(by), {"lengths": LENGTHS, "offsets": OFFSETS}[derived]

    def inside(scale: Any) -> Any:
        found = getattr(features, derived)()
        return (found * scale).sum()

    if transform == "grad":
        assert torch.func.grad(inside)(torch.tensor(1.0)) == sum(expected)
    else:
        with FakeTensorMode(allow_non_fake_inputs=True):
            inside(torch.tensor(1.0))
    assert getattr(features, f"{derived}_or_none")() is None
    assert getattr(features, derived)().tolist() == expected
    assert getattr(features, f"{derived}_or_none")().tolist() == expected


def test_keyed_tensors() -> None:
    values = torch.arange(12.0).view(2, 6)
    pooled = KeyedTensor(["a", "b", "c"], [1, 3, 2], values)
    assert (pooled.keys(), pooled.length_per_key(), pooled.offset_per_key()) == (
        ["a", "b", "c"],
        [1, 3, 2],
        [0, 1, 4, 6],
    )
    assert (pooled.key_dim(), pooled.device(), pooled.values() is values) == (1, torch.device("cpu"), True)
    assert pooled["b"].tolist() == [[1, 2, 3], [7, 8, 9]]
    assert {key: part.tolist() for key, part in pooled.to_dict().items()} == {
        "a": [[0], [6]], "b": [[1, 2, 3], [7, 8, 9]], "c": [[4, 5], [10, 11]],
    }  # fmt: skip
    other = KeyedTensor.from_tensor_list(["d"], [values[:, :1] + 100])
    one, two = KeyedTensor.regroup([pooled, other], [["d", "a"], ["c"]])
    assert (one.tolist(), two.tolist()) == ([[100, 0], [106, 6]], [[4, 5], [10, 11]])
    named = KeyedTensor.regroup_as_dict([pooled, other], [["d", "a"], ["c"]], ["x", "y"])
    assert torch.equal(named["x"], one) and torch.equal(named["y"], two)
    upright = KeyedTensor(["a", "b"], [1, 2], torch.arange(6).view(3, 2), key_dim=0)
    assert upright["b"].tolist() == [[2, 3], [4, 5]]


def test_keyed_tensors_that_do_not_fit() -> None:
    values = torch.ones(2, 3)
    for arguments, message in [
        ((["a", "a"], [1, 2], values), r"keys\[1\]"),
        ((["a"], [1, 2], values), "length_per_key has length 2, but keys has 1"),
        ((["a", "b"], [1, 1], values), r"values has shape \[2, 3\]; dimension 1 must have 2"),
        ((["a", "b"], [1, 2], values, 2), "dimension 2"),
    ]:
        with pytest.raises(rowgrad.InvalidArgumentError, match=message):
            KeyedTensor(*arguments)
    with pytest.raises(rowgrad.DTypeError, match="values is a list"):
        KeyedTensor(["a"], [1], [[1]])
    pooled = KeyedTensor(["a", "b"], [1, 2], values)
    with pytest.raises(KeyError, match="key is 'c'; the keys are 'a', 'b'"):
        pooled["c"]
    with pytest.raises(KeyError, match=r"groups\[0\]\[1\] is 'c'"):
        KeyedTensor.regroup([pooled], [["a", "c"]])
    with pytest.raises(rowgrad.InvalidArgumentError, match="each group needs a name"):
        KeyedTensor.regroup_as_dict([pooled], [["a"]], [])
