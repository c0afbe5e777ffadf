"""Checks of the Keras layers, run in a process for each backend: `python keras_layers.py FOLDER`."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import rowgrad
import rowgrad.keras as rk

RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(0, 50, (64, 5)).astype("int32")
WEIGHTS = RANDOM.uniform(0.5, 2, (64, 5)).astype("float32")
TABLE = RANDOM.standard_normal((50, 4)).astype("float32")


def layer(**kwargs: Any) -> Any:
    return rk.EmbeddingBag(50, 4, embeddings_initializer=keras.initializers.Constant(TABLE), **kwargs)


def expected(combiner: str, ids: Any = IDS, weights: Any = None, mask_zero: bool = False) -> Any:
    rows = []
    for i, bag in enumerate(ids):
        w = np.ones(len(bag)) if weights is None else np.asarray(weights[i], np.float64)
        w = w * ((np.asarray(bag) != 0) if mask_zero else 1)
        x = TABLE[bag].astype(np.float64)
        if combiner == "max":
            kept = x[w > 0]
            rows.append(kept.max(0) if len(kept) else np.zeros(4))
            continue
        total = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w * w).sum())}[combiner]
        rows.append((w[:, None] * x).sum(0) / total if total else np.zeros(4))
    return np.array(rows)


def near(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), wanted, rtol=tolerance, atol=tolerance)


def check_forms() -> None:
    padded = np.where(RANDOM.random(IDS.shape) < 0.4, 0, IDS)
    for combiner in ("sum", "mean", "sqrtn", "max"):
        near(layer(combiner=combiner)(IDS), expected(combiner))
        near(layer(combiner=combiner, mask_zero=True)(padded), expected(combiner, padded, mask_zero=True))
        if combiner != "max":
            near(layer(combiner=combiner)(IDS, weights=WEIGHTS), expected(combiner, weights=WEIGHTS))
    assert layer().compute_output_shape((None, 7)) == (None, 4)


def check_ragged(combiner: str = "mean") -> None:
    bags = [[3, 4], [], [9, 9, 1]]
    wanted = expected(combiner, [np.array(bag, int) for bag in bags])
    backend = keras.backend.backend()
    rows, flat = np.array([0, 0, 2, 2, 2]), np.array([3, 4, 9, 9, 1], np.int32)
    columns = np.array([0, 1, 0, 1, 2])
    if backend == "tensorflow":
        import tensorflow as tf

        near(layer(combiner=combiner)(tf.ragged.constant(bags, dtype=tf.int32)), wanted)
        sparse = tf.SparseTensor(np.stack([rows, columns], 1), flat, [3, 3])
        near(layer(combiner=combiner)(sparse), wanted)
    elif backend == "torch":
        import torch

        nested = torch.nested.nested_tensor_from_jagged(torch.tensor(flat), torch.tensor([0, 2, 2, 5]))
        near(layer(combiner=combiner)(nested), wanted)
        sparse = torch.sparse_coo_tensor(np.stack([rows, columns]), flat, (3, 3))
        near(layer(combiner=combiner)(sparse), wanted)
    else:
        from jax.experimental.sparse import BCOO

        near(layer(combiner=combiner)(BCOO((flat, np.stack([rows, columns], 1)), shape=(3, 3))), wanted)


def check_fit_save_load(folder: Path) -> None:
    ids, weights = keras.Input((5,), dtype="int32"), keras.Input((5,))
    pooled = rk.EmbeddingBag(50, 8, combiner="mean", name="bag")(ids, weights=weights)
    model = keras.Model([ids, weights], keras.layers.Dense(1)(pooled))
    model.compile(optimizer=keras.optimizers.Adagrad(0.5), loss="mse")
    target = (IDS % 2).mean(1, keepdims=True).astype("float32")
    losses = model.fit([IDS, WEIGHTS], target, epochs=15, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < 0.3 * losses[0], losses
    file = folder / "model.keras"
    model.save(file)
    again = keras.saving.load_model(file)
    assert np.array_equal(model.predict([IDS, WEIGHTS], verbose=0), again.predict([IDS, WEIGHTS], verbose=0))
    assert again.get_layer("bag").get_config() == model.get_layer("bag").get_config()
    again.fit([IDS, WEIGHTS], target, epochs=1, verbose=0)


def check_mixed_precision() -> None:
    found = layer(combiner="sum", dtype="mixed_bfloat16")(IDS)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    near(keras.ops.cast(found, "float32"), expected("sum"), 2e-2)


def check_weights_of_ragged_ids() -> None:
    """Flat weights, or weights in the form of the ids, with entries at the same places."""
    backend = keras.backend.backend()
    ids, weights = np.array([3, 4, 9], np.int32), np.array([2.0, 3.0, 5.0], np.float32)
    wanted = expected("sum", [np.array([3, 4]), np.array([9])], [weights[:2], weights[2:]])
    places, others = np.array([[0, 0], [0, 1], [1, 0]]), np.array([[0, 0], [1, 0], [1, 1]])
    if backend == "tensorflow":
        import tensorflow as tf

        forms: list[Any] = [
            lambda values, at: tf.SparseTensor(at, values, [2, 2]),
            lambda values, at: tf.RaggedTensor.from_value_rowids(values, at[:, 0]),
        ]
    elif backend == "torch":
        import torch

        forms = [
            lambda values, at: torch.sparse_coo_tensor(at.T, values, (2, 2)),
            lambda values, at: torch.nested.nested_tensor_from_jagged(
                torch.tensor(values), torch.tensor([0, int((at[:, 0] == 0).sum()), 3])
            ),
        ]
    else:
        from jax.experimental.sparse import BCOO

        forms = [lambda values, at: BCOO((values, at), shape=(2, 2))]
    for form in forms:
        bag = layer(combiner="sum")
        given = form(ids, places)
        near(bag(given, weights=keras.ops.convert_to_tensor(weights)), wanted)
        near(bag(given, weights=form(weights, places)), wanted)
        refused(lambda bag=bag, given=given: bag(given, weights=weights[:2]), "each id needs one weight")
        refused(lambda bag=bag, given=given, form=form: bag(given, weights=form(weights, others)), "at other places")
    near(layer(combiner="sum")(ids[None], weights=[[2.0, 3.0, 5.0]]), expected("sum", ids[None], weights[None]))


def refused(call: Any, text: str) -> None:
    try:
        call()
    except Exception as error:
        assert text in str(error), (text, error)
    else:
        raise AssertionError(f"nothing was raised for {text}")


def check_errors() -> None:
    large: list[tuple[Any, str]] = []
    if keras.backend.backend() != "torch":  # which has no such type in Keras
        large = [(lambda: layer()(np.array([[2**63 + 1]], np.uint64)), ""), (lambda: layer()(np.array([[2**32]])), "")]
    cases: list[tuple[Any, str]] = [
        *large,
        (lambda: rk.EmbeddingBag(2**40, 2**20)(IDS), "bytes, and about"),
        (lambda: rk.EmbeddingBag(2**63, 4), "from 1 to 2**63 - 1"),
        (lambda: rk.EmbeddingBag(5, 4, combiner=np.array(["sum"])), "combiner is array"),
        (lambda: rk.EmbeddingBag(5, 4, mask_zero=np.array([True, False])), "it must be True or False"),
        (lambda: layer()(IDS, weights={}), "weights is a dict"),
        (lambda: layer()(IDS, weights=WEIGHTS + 1j), "weights are real numbers"),
        (lambda: layer()(keras.Input((2, 2), dtype="int32")), "it must be a matrix"),
        (lambda: layer()(keras.Input((2,))), "ids are integers"),
        (lambda: layer()(keras.Input((2,), dtype="int32"), keras.Input((3,))), "each id needs one weight"),
        (lambda: rk.Hashing(5, salt=1.5), "salt is 1.5"),
        (lambda: rk.Hashing(5, salt=2**70), "of 64 bits"),
        (lambda: rk.Hashing(5, mask_value=[1]), "a text or a whole number"),
        (lambda: rk.Hashing(5, mask_value="a")(np.array([1])), "they must both be texts"),
        (lambda: rk.Hashing(5)([["a"], ["b", "c"]]), "rows of different lengths"),
        (lambda: rk.Hashing(5)(np.array([1.5])), "texts and whole numbers are hashed"),
        (lambda: rk.EmbeddingBag(0, 4), "input_dim is 0"),
        (lambda: rk.EmbeddingBag(5, 4, combiner="median"), "combiner is 'median'; it must be one of"),
        (lambda: layer()(IDS[0]), "inputs has shape"),
        (lambda: layer()(WEIGHTS), "ids are integers"),
        (lambda: layer()(IDS, weights=WEIGHTS[:, :2]), "each id needs one weight"),
        (lambda: layer(combiner="max")(IDS, weights=WEIGHTS), "leave them out"),
        (lambda: layer()(IDS + 40), "allowed: 0 to 49"),
    ]
    for call, text in cases:
        refused(call, text)


def check_hashing() -> None:
    texts = np.array([["A", "b"], ["", "ü"]])
    found = np.asarray(rk.Hashing(num_bins=3)(np.array([["A"], ["B"], ["C"], ["D"], ["E"]])))
    assert found.tolist() == [[1], [0], [1], [1], [2]]  # as Keras documents its own
    masked = np.asarray(rk.Hashing(num_bins=100, mask_value="")(texts))
    assert masked[1, 0] == 0 and (masked[[0, 0, 1], [0, 1, 1]] > 0).all()
    for mask in ("A", b"A"):  # a text is the same as its bytes
        for given in (np.array([b"A", b"B"]), np.array(["A", "B"]), np.array([b"A", "B"], object)):
            assert (np.asarray(rk.Hashing(num_bins=100, mask_value=mask)(given)) == 0).tolist() == [True, False]
    if keras.backend.backend() == "tensorflow":
        for kwargs in ({}, {"mask_value": ""}, {"salt": 7}, {"salt": [3, 4]}):
            theirs = keras.layers.Hashing(num_bins=100, **kwargs)(texts)
            assert np.array_equal(rk.Hashing(num_bins=100, **kwargs)(texts), theirs)
        numbers = np.array([[5, -3], [0, 2**40]])
        theirs = keras.layers.Hashing(num_bins=100, mask_value=0)(numbers)
        assert np.array_equal(rk.Hashing(num_bins=100, mask_value=0)(numbers), theirs)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check(Path(sys.argv[1])) if name == "check_fit_save_load" else check()
            print(name, "passed")
    assert rowgrad.__version__
