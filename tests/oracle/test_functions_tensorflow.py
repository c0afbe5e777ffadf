"""`rowgrad.tensorflow`: results and gradients are TensorFlow's, eager and traced; the patch, and its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

import rowgrad
import rowgrad.tensorflow
from optional import framework
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.callables import by_function
from rowgrad._ops.gradients import apply_to_arrays, backward
from rowgrad._ops.results import RowGradient
from rowgrad.blocks.operators import BLOCKS

tf = framework("tensorflow")

from rowgrad.tensorflow import _lookups  # noqa: E402
from rowgrad.tensorflow._functions import FUNCTIONS  # noqa: E402

RNG = np.random.default_rng(2)
IDS = np.array([3, 1, 3, 9, 0, 3, 1, 7], np.int32)
SEGMENTS = np.array([0, 0, 0, 2, 2, 3, 3, 3], np.int32)
BOTH = pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "traced"])


def dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient).numpy()


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tolist() == wanted.tolist() if found.dtype.kind == "O" else found.tobytes() == wanted.tobytes()


def example(operator: Operator) -> tuple[list[Any], dict[str, Any]]:
    given = operator._fit(tuple(operator.example.inputs[pin.name] for pin in operator.inputs))
    return list(given), dict(operator.example.attributes)


def tensors(values: list[Any]) -> list[Any]:
    return [
        [tf.constant(part) for part in value] if isinstance(value, tuple | list)
        else value if isinstance(value, int) else tf.constant(value)
        for value in values
    ]  # fmt: skip


# Every operator


@BOTH
@pytest.mark.parametrize("operator", [each for each in OPERATORS.values() if each.function], ids=lambda each: each.name)
def test_results_are_those_of_the_plain_functions(operator: Operator, mode: Callable[[Any], Any]) -> None:
    values, attributes = example(operator)
    named = {key: value for key, value in attributes.items() if key in _options(operator)}
    wanted = apply_to_arrays(operator, values, named)
    shapes = []

    @mode
    def call() -> Any:
        found = FUNCTIONS[operator.function or ""](*tensors(values), **named)
        found = (found,) if operator.result is None else tuple(found)
        shapes[:] = [each.shape for each in found]
        return found

    found = call()
    for one, static, other in zip(found, shapes, wanted.values(), strict=True):
        assert static.is_compatible_with(np.shape(other))
        if np.asarray(other).dtype.kind in "USOT":
            assert [str(x, "utf-8") for x in np.ravel(one.numpy())] == [
                x.decode() if isinstance(x, bytes) else str(x) for x in np.ravel(other)
            ]
        else:
            same(one, other)


def _options(operator: Operator) -> set[str]:
    from rowgrad._ops.callables import function_attributes

    return set(function_attributes(by_function()[operator.function or ""][-1]))


@BOTH
@pytest.mark.parametrize("operator", [each for each in OPERATORS.values() if each.gradient and each.function],
                         ids=lambda each: each.name)  # fmt: skip
def test_gradients_are_those_of_the_rules(operator: Operator, mode: Callable[[Any], Any]) -> None:
    values, attributes = example(operator)
    named = {key: value for key, value in attributes.items() if key in _options(operator)}
    inputs = dict(zip((pin.name for pin in operator.inputs), values, strict=True))
    if any(np.asarray(part).dtype.kind in "USOT" for part in values if not isinstance(part, tuple)):
        is_text = {name: np.asarray(value).dtype.kind in "USOT" for name, value in inputs.items()}
        inputs = {name: np.arange(1.0, 1 + np.size(value)).reshape(np.shape(value)) if is_text[name] else value
                  for name, value in inputs.items()}  # fmt: skip
    outputs = apply_to_arrays(operator, list(inputs.values()), named)
    flowing = {name: RNG.random(np.shape(value)).astype(np.asarray(value).dtype)
               for name, value in outputs.items() if np.asarray(value).dtype.kind in "fc"}  # fmt: skip
    wanted = backward(operator, inputs, flowing, compact=True, attributes=named, operators=BLOCKS)
    names = [name for name in inputs if name in wanted]
    given = dict(zip(inputs, tensors(list(inputs.values())), strict=True))

    @mode
    def call() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([given[name] for name in names])
            found = FUNCTIONS[operator.function or ""](*given.values(), **named)
            found = dict(zip(outputs, (found,) if operator.result is None else found, strict=True))
            loss = tf.add_n([tf.reduce_sum(found[name] * flow) for name, flow in flowing.items()])
        return tape.gradient(loss, [given[name] for name in names], unconnected_gradients="none")

    if not flowing:
        return
    for name, gradient in zip(names, call(), strict=True):
        if isinstance(wanted[name], RowGradient):
            assert isinstance(gradient, tf.IndexedSlices)
            same(gradient.values, wanted[name].output)
            same(gradient.indices, wanted[name].sorted_unique_indices)
            assert gradient.dense_shape.numpy().tolist() == list(np.shape(inputs[name]))
        elif gradient is not None:
            pairs = (
                zip(gradient, wanted[name], strict=True) if isinstance(gradient, list) else [(gradient, wanted[name])]
            )
            for one, other in pairs:
                same(one, other)


# Beside TensorFlow


@BOTH
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "mean", "sqrt_n"])
def test_segments_beside_tensorflow(name: str, dtype: str, index: Any, mode: Callable[[Any], Any]) -> None:
    table = tf.Variable(tf.cast(RNG.random((10, 5)) - 0.5, dtype))
    flow = tf.cast(RNG.random((6, 5)), dtype)
    ids, segments = IDS.astype(index), SEGMENTS.astype(index)

    def run(function: Any) -> Any:
        @mode
        def step() -> Any:
            with tf.GradientTape() as tape:
                pooled = function(table, ids, segments, num_segments=6)
                loss = tf.reduce_sum(pooled * flow)
            return pooled, tape.gradient(loss, table)

        return step()

    found, gradient = run(getattr(rowgrad.tensorflow, f"sparse_segment_{name}"))
    wanted, theirs = run(getattr(tf.sparse, f"segment_{name}"))
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [0, 1, 3, 7, 9]
    same(found, wanted)
    same(dense(gradient), dense(theirs))


@BOTH
def test_other_operators_beside_tensorflow(mode: Callable[[Any], Any]) -> None:
    data = tf.constant(RNG.random((8, 3)).astype(np.float32))
    unsorted = np.array([2, 0, 2, 1, 0, 4, 4, 2])
    pairs: list[tuple[Any, Any]] = [
        (lambda x: rowgrad.tensorflow.segment_sum(x, SEGMENTS), lambda x: tf.math.segment_sum(x, SEGMENTS)),
        (lambda x: rowgrad.tensorflow.segment_mean(x, SEGMENTS), lambda x: tf.math.segment_mean(x, SEGMENTS)),
        (lambda x: rowgrad.tensorflow.segment_max(x, SEGMENTS), lambda x: tf.math.segment_max(x, SEGMENTS)),
    ]
    for name in ("unsorted_segment_sum", "unsorted_segment_prod"):
        ours, theirs = getattr(rowgrad.tensorflow, name), getattr(tf.math, name)
        pairs.append((lambda x, f=ours: f(x, unsorted, 5), lambda x, f=theirs: f(x, unsorted, 5)))
    for ours, theirs in pairs:
        results = []
        for function in (ours, theirs):

            @mode
            def step(function: Any = function) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(data)
                    result = function(data)
                    loss = tf.reduce_sum(tf.where(tf.math.is_finite(result), result * result, 0))
                return result, tape.gradient(loss, data)

            results.append(step())
        same(results[0][0], results[1][0])
        np.testing.assert_allclose(dense(results[0][1]), dense(results[1][1]), rtol=1e-6)


def test_second_order() -> None:
    table, flow = tf.constant(RNG.random((10, 5))), tf.constant(RNG.random((3, 5)))
    without_gaps = np.array([0, 0, 0, 1, 1, 2, 2, 2])

    def twice(function: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(flow)
            with tf.GradientTape() as inner:
                inner.watch(table)
                loss = tf.reduce_sum(function(table, IDS, without_gaps) * flow)
            found = tf.reduce_sum(tf.convert_to_tensor(inner.gradient(loss, table)) ** 3)
        return outer.gradient(found, flow).numpy()

    np.testing.assert_allclose(twice(rowgrad.tensorflow.sparse_segment_mean), twice(_gathered_mean), rtol=1e-12)


def _gathered_mean(table: Any, ids: Any, segments: Any) -> Any:
    return tf.math.segment_mean(tf.gather(table, ids), segments)


def test_unknown_sizes_and_shapes() -> None:
    @tf.function(
        input_signature=[tf.TensorSpec(None), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)]
    )
    def unknown(table: Any, ids: Any, segments: Any) -> Any:
        return rowgrad.tensorflow.sparse_segment_sum(table, ids, segments)

    @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([], tf.int32)])
    def counted(table: Any, count: Any) -> Any:
        found = rowgrad.tensorflow.sparse_segment_sum(table, IDS, SEGMENTS, count)
        assert found.shape.as_list() == [None, 5]
        return found

    table = tf.constant(RNG.random((10, 5)).astype(np.float32))
    same(unknown(table, IDS, SEGMENTS), tf.sparse.segment_sum(table, IDS, SEGMENTS))
    same(counted(table, 7), tf.sparse.segment_sum(table, IDS, SEGMENTS, num_segments=7))


def test_lists_numbers_and_variables_of_keras() -> None:
    import keras

    variable = keras.Variable(np.ones((3, 2), np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(rowgrad.tensorflow.sparse_segment_sum(variable, [0, 2], [0, 0]))
    assert tape.gradient(loss, variable.value).indices.numpy().tolist() == [0, 2]
    assert rowgrad.tensorflow.sparse_segment_sum([[1.0], [2.0]], [0, 1], [0, 0]).numpy().tolist() == [[3.0]]


def test_errors() -> None:
    table = tf.constant(RNG.random((10, 5)))
    with pytest.raises(rowgrad.OutOfRangeError, match=r"indices\[1\] is 10"):
        rowgrad.tensorflow.sparse_segment_sum(table, [0, 10], [0, 0])
    with pytest.raises(rowgrad.DTypeError):
        rowgrad.tensorflow.sparse_segment_sum(table, [0.5], [0])
    with pytest.raises(rowgrad.InvalidArgumentError):
        tf.function(lambda: rowgrad.tensorflow.sparse_segment_sum(table, [[0]], [0]), autograph=False)()
    with pytest.raises(tf.errors.OpError, match=r"indices\[1\] is 10"):
        tf.function(lambda ids: rowgrad.tensorflow.sparse_segment_sum(table, ids, [0, 0]))(tf.constant([0, 10]))
    with tf.GradientTape() as tape:
        tape.watch(table)
        with pytest.raises(rowgrad.InvalidArgumentError, match=r"Call the function of `rowgrad\.tensorflow`"):
            rowgrad.sparse_segment_sum(table, [0], [0])


# The look-ups


def sparse_ids(*, with_gaps: bool = False) -> tuple[Any, Any]:
    rows = np.array([0, 0, 0, 1, 2, 2, 3]) + (np.array([0, 0, 0, 1, 1, 1, 2]) if with_gaps else 0)
    places = np.stack([rows, np.arange(7)], axis=1)
    shape = [rows.max() + 1 + with_gaps, 7]
    ids = tf.SparseTensor(places, np.array([4, -1 if with_gaps else 4, 9, 0, 3, 4, 8]), shape)
    return ids, tf.SparseTensor(places, RNG.random(7).astype(np.float32) + 0.1, shape)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["sparse", "ragged", "safe"])
def test_look_ups(kind: str, combiner: str, weighted: bool, mode: Callable[[Any], Any]) -> None:
    table = tf.Variable(RNG.random((10, 6)).astype(np.float32))
    ids, weights = sparse_ids(with_gaps=kind == "safe")
    if kind == "ragged":
        ids, weights = (tf.RaggedTensor.from_value_rowids(x.values, x.indices[:, 0]) for x in (ids, weights))
    name = "safe_embedding_lookup_sparse" if kind == "safe" else "embedding_lookup_sparse"
    flow, factors = (
        tf.constant(RNG.random((7, 6)).astype(np.float32)),
        weights.flat_values if kind == "ragged" else weights.values,
    )

    def run(function: Any) -> Any:
        @mode
        def step() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(factors)
                given = weights.with_flat_values(factors) if kind == "ragged" else tf.SparseTensor(
                    weights.indices, factors, weights.dense_shape)  # fmt: skip
                pooled = function(table, ids, given if weighted else None, combiner=combiner)
                loss = tf.reduce_sum(pooled * flow[: tf.shape(pooled)[0]])
            return pooled, *tape.gradient(loss, [table, factors])

        return step()

    found, gradient, by_weights = run(getattr(rowgrad.tensorflow, name))
    wanted, theirs, theirs_by_weights = run(getattr(tf.nn, name))
    assert isinstance(gradient, tf.IndexedSlices)
    numbers = gradient.indices.numpy()
    assert (np.diff(numbers) > 0).all() or kind == "safe"
    if weighted:
        np.testing.assert_allclose(found, wanted, rtol=2e-6)
        np.testing.assert_allclose(dense(gradient), dense(theirs), rtol=2e-6, atol=1e-7)
        np.testing.assert_allclose(dense(by_weights), dense(theirs_by_weights), rtol=2e-5, atol=1e-6)
    else:
        same(found, wanted)
        same(dense(gradient), dense(theirs))


def test_what_the_kernels_do_not_have_is_tensorflows() -> None:
    ids, weights = sparse_ids()
    table = RNG.random((10, 6)).astype(np.float32)
    parts = [tf.constant(table[:5]), tf.constant(table[5:])]
    half = tf.cast(table, tf.bfloat16)
    for params, settings in ((parts, {}), (tf.constant(table), {"max_norm": 0.5}), (half, {"sp_weights": weights})):
        given = {"sp_weights": None, **settings}
        found = rowgrad.tensorflow.embedding_lookup_sparse(params, ids, **given)
        same(found, tf.nn.embedding_lookup_sparse(params, ids, **given))


def test_the_patch_ends() -> None:
    from tensorflow.python.ops import embedding_ops

    theirs = embedding_ops.embedding_lookup_sparse_impl
    ids, _ = sparse_ids()
    table = tf.constant(RNG.random((10, 6)).astype(np.float32))
    wanted = tf.nn.embedding_lookup_sparse(table, ids, None)
    calls: list[str] = []
    pooled, small = _lookups._pooled, _lookups.SMALL
    try:
        _lookups._pooled = lambda *args: calls.append("ours") or pooled(*args)
        _lookups.SMALL = 0
        with pytest.raises(KeyError), rowgrad.tensorflow.patch():
            with rowgrad.tensorflow.patch():
                same(tf.nn.embedding_lookup_sparse(table, ids, None), wanted)
            assert embedding_ops.embedding_lookup_sparse_impl is not theirs
            same(tf.nn.safe_embedding_lookup_sparse(table, ids), wanted)
            rowgrad.tensorflow.embedding_lookup_sparse(table, ids, None)
            raise KeyError
        assert calls == ["ours"] * 3
        assert embedding_ops.embedding_lookup_sparse_impl is theirs
        same(tf.nn.embedding_lookup_sparse(table, ids, None), wanted)
        assert len(calls) == 3
        _lookups.SMALL = small
        with rowgrad.tensorflow.patch():  # few ids are left to TensorFlow, unless rowgrad's function is called
            same(tf.nn.embedding_lookup_sparse(table, ids, None), wanted)
            assert len(calls) == 3
            rowgrad.tensorflow.embedding_lookup_sparse(table, ids, None)
            assert len(calls) == 4
    finally:
        _lookups._pooled, _lookups.SMALL = pooled, small
    assert (_lookups._users, _lookups._everywhere) == (0, 0)


def test_keras_trains_with_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same losses, to the bit where sums are."""
    import keras

    monkeypatch.setattr(_lookups, "SMALL", 0)

    def train() -> list[float]:
        keras.utils.set_random_seed(3)
        table, optimizer = tf.Variable(RNG_TABLE), keras.optimizers.Adagrad(0.1)
        losses = []

        @tf.function
        def step() -> Any:
            with tf.GradientTape() as tape:
                pooled = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean")
                loss = tf.reduce_sum(pooled**2)
            optimizer.apply([tf.convert_to_tensor(tape.gradient(loss, table))], [variable])
            table.assign(variable.value)
            return loss

        variable = keras.Variable(RNG_TABLE)
        optimizer.build([variable])
        for _ in range(5):
            losses.append(float(step()))
        return losses

    ids, _ = sparse_ids()
    wanted = train()
    with rowgrad.tensorflow.patch():
        found = train()
    assert found == wanted and wanted[-1] < wanted[0]


RNG_TABLE = np.random.default_rng(9).random((10, 6)).astype(np.float32)


def test_public_names() -> None:
    assert rowgrad.tensorflow.__all__ == sorted(rowgrad.tensorflow.__all__)
    assert all(hasattr(rowgrad.tensorflow, name) for name in rowgrad.tensorflow.__all__)
    assert {"patch", "sparse_segment_mean", "load_checkpoint"} <= set(dir(rowgrad.tensorflow))


@pytest.mark.filterwarnings("ignore:.*shuffle:UserWarning")
def test_the_guides_snippet() -> None:
    """What docs/from_tensorflow.md shows, with a model of embeddings that are looked up sparsely."""
    import re
    from pathlib import Path

    import keras

    class Pooled(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(10, 6))

        def call(self, ids: Any) -> Any:
            return tf.nn.embedding_lookup_sparse(self.table.value, tf.sparse.from_dense(tf.cast(ids, tf.int64)), None)

    text = (Path(__file__).parents[2] / "docs" / "from_tensorflow.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    model = keras.Sequential([Pooled(), keras.layers.Dense(1)])
    model.compile("adagrad", "mse")
    calls: list[int] = []
    pooled = _lookups._pooled
    try:
        _lookups._pooled = lambda *args: calls.append(1) or pooled(*args)
        batches = tf.data.Dataset.from_tensors((tf.constant([[1, 2], [3, 4]]), tf.ones([2, 1]))).repeat(3)
        exec(code, {"model": model, "batches": batches})
    finally:
        _lookups._pooled = pooled
    assert calls


def test_ids_and_offsets_of_ragged_tensors() -> None:
    found = rowgrad.from_ragged(tf.ragged.constant([[5, 3], [], [8]]))
    assert found.ids.numpy().tolist() == [5, 3, 8] and found.offsets.numpy().tolist() == [0, 2, 2, 3]
    assert found.ids.dtype == found.offsets.dtype == tf.int32
    assert rowgrad.from_ragged(tf.constant([[1, 2], [3, 4]])).offsets.tolist() == [0, 2, 4]
    with pytest.raises(rowgrad.InvalidArgumentError, match="rows inside rows"):
        rowgrad.from_ragged(tf.ragged.constant([[[1]]]))
    with pytest.raises(rowgrad.DTypeError, match="whole numbers"):
        rowgrad.from_ragged(tf.ragged.constant([[1.0]]))


@BOTH
def test_variables_that_change_before_the_gradient(mode: Callable[[Any], Any]) -> None:
    """Rows are updated in place between the look-up and its gradient, which is that of the old rows."""
    start, factors = RNG.random((10, 6)).astype(np.float32), tf.constant(RNG.random(8).astype(np.float32))
    results = []
    for ours in (True, False):
        table = tf.Variable(start)

        @mode
        def step(table: Any = table, ours: bool = ours) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(factors)
                if ours:
                    pooled = rowgrad.tensorflow.sparse_segment_weighted_sum(table, factors, IDS, SEGMENTS, 4)
                else:
                    pooled = tf.math.segment_sum(tf.gather(table, IDS) * factors[:, None], SEGMENTS)
                with tape.stop_recording():
                    table.scatter_sub(tf.IndexedSlices(tf.ones([2, 6]), [3, 1]))
                loss = tf.reduce_sum(pooled**2)
            return loss, *tape.gradient(loss, [table, factors])

        results.append(step())
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(dense(one), dense(other), rtol=1e-5)
