"""TensorFlow's tensors and tapes: what would lose a gradient is refused, look-ups give back tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import golden
import rowgrad
from golden import Case, assert_same
from rowgrad._ops.catalogue import Operator
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

from record_golden import as_array

CASES = [case for case in golden.load() if case.op.startswith("nn.")]
IDS, SEGMENTS = np.array([0, 2, 1]), np.array([0, 0, 1])  # TensorFlow starts when tests run, not before


def table(dtype: Any = np.float32) -> Any:
    return tf.constant(np.arange(6).reshape(3, 2).astype(dtype))


def pool(data: Any) -> Any:
    return rowgrad.sparse_segment_sum(data, tf.constant(IDS), tf.constant(SEGMENTS))


def refuse(call: Callable[[], Any], argument: str) -> rowgrad.RowgradError:
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"would lose its gradient.*tf\.stop_gradient") as found:
        call()
    assert found.value.code == "requires-grad"
    assert found.value.argument == argument
    assert f"{argument}: " in str(found.value)
    return found.value


# Every operator, every input that can have a gradient


def is_float(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "fc" or array.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_a_watched_input_is_named(operator: Operator) -> None:
    example = operator.example
    given = dict(zip(example.inputs, operator._fit(tuple(example.inputs[pin.name] for pin in operator.inputs)),
                     strict=True))  # fmt: skip
    function = getattr(raw_ops, operator.raw_name)
    with tf.GradientTape() as tape:
        for name, value in given.items():
            parts = value if isinstance(value, tuple) else (value,)
            tensors = [tf.constant(part) for part in parts]
            tape.watch([tensor for tensor in tensors if tensor.dtype.is_floating])
            watched = {name: tensors if isinstance(value, tuple) else tensors[0]}
            if any(map(is_float, parts)):
                refuse(lambda watched=watched: function(**{**given, **watched}, **example.attributes), name)
            else:
                function(**{**given, **watched}, **example.attributes)


# What a tape watches


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_what_was_computed_from_watched_tensors_is_refused(dtype: Any) -> None:
    data = table(dtype)
    with tf.GradientTape() as tape:
        pool(data)  # not watched yet
        tape.watch(data)
        refuse(lambda: pool(data), "data")
        refuse(lambda: pool(data * 2), "data")
        refuse(lambda: pool(tf.RaggedTensor.from_uniform_row_length(tf.reshape(data, [-1]), 2)), "data")
        pool(table(dtype) * 2)
    pool(data)


@pytest.mark.parametrize("make", [lambda rows: rows, list, lambda rows: [list(rows[0]), [2.0, 3.0], [4.0, 5.0]]],
                         ids=["tensor", "list", "nested"])  # fmt: skip
def test_lists_of_watched_tensors_are_refused(make: Callable[[Any], Any]) -> None:
    data = table()
    with tf.GradientTape() as tape:
        assert as_array(pool(table())).tolist() == np.asarray(pool(make(data))).tolist()
        tape.watch(data)
        refuse(lambda: pool(make(data)), "data")


def test_variables_are_watched_when_they_are_read() -> None:
    variable = tf.Variable(table())
    pool(variable)
    with tf.GradientTape():
        refuse(lambda: pool(variable), "data")
        pool(tf.Variable(table(), trainable=False))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        pool(variable)
        tape.watch(variable)
        refuse(lambda: pool(variable), "data")


def test_variables_of_keras_are_watched_too() -> None:
    variable = tf.keras.Variable(np.ones((3, 2), np.float32))
    assert as_array(pool(variable)).tolist() == [[2, 2], [1, 1]]
    with tf.GradientTape():
        refuse(lambda: pool(variable), "data")


def test_tapes_within_tapes_and_accumulators() -> None:
    data = table()
    with tf.GradientTape() as outer:
        outer.watch(data)
        with tf.GradientTape():
            refuse(lambda: pool(data), "data")
    with tf.autodiff.ForwardAccumulator(data, tf.ones_like(data)):
        refuse(lambda: pool(data), "data")
        pool(table())


@pytest.mark.parametrize("kind", [tf.constant, tf.Variable])
def test_the_ways_out_that_the_message_names(kind: Any) -> None:
    data = kind(table())
    expected = as_array(pool(data)).tolist()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(data)
        refuse(lambda: pool(data), "data")
        assert as_array(pool(tf.stop_gradient(data))).tolist() == expected
        with tape.stop_recording():
            assert as_array(pool(data)).tolist() == expected
        assert pool(data.numpy()).tolist() == expected


def test_ids_are_never_refused() -> None:
    data = table()
    ids = tf.Variable([0, 2, 1])
    with tf.GradientTape() as tape:
        tape.watch(data)
        made = tf.cast(tf.reshape(data, [-1])[:3] * 0, tf.int64)
        rowgrad.sparse_segment_sum(table(), ids, SEGMENTS)
        rowgrad.sparse_segment_sum(table(), made, SEGMENTS)


def test_no_value_within_a_function() -> None:
    variable = tf.Variable(table())

    @tf.function  # type: ignore[untyped-decorator,unused-ignore]
    def traced(data: Any) -> Any:
        for value in (data, variable):
            with pytest.raises(rowgrad.InvalidArgumentError, match=r"outside `tf\.function`") as found:
                pool(value)
            assert (found.value.code, found.value.argument) == ("no-value", "data")
        return data

    traced(table())
    with tf.GradientTape():
        traced(variable)


# The embedding look-ups


@pytest.mark.parametrize("as_sparse", [tuple, lambda parts: tf.SparseTensor(*parts)], ids=["parts", "SparseTensor"])
@pytest.mark.parametrize("kind", [tf.constant, tf.Variable])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_look_ups_give_tensors(case: Case, kind: Any, as_sparse: Callable[[Any], Any]) -> None:
    assert case.out is not None
    args = {name: tf.constant(value) for name, value in case.args.items()}
    ids = as_sparse((args["ids_indices"], args["ids_values"], args["ids_shape"]))
    weights = as_sparse((args["ids_indices"], args["weights"], args["ids_shape"])) if "weights" in args else None
    function = getattr(rowgrad, case.op.removeprefix("nn."))
    output = function(kind(args["params"]), ids, weights, **case.attrs)
    assert isinstance(output, tf.Tensor)
    assert_same(case.out["output"], as_array(output), case.cmp, case.terms)


@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weighted_look_ups_agree_with_tensorflow(name: str, combiner: str, dtype: Any) -> None:
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([1, 2, 0]), [3, 2])
    weights = tf.SparseTensor(ids.indices, np.array([0.1, 0.7, 2.5], dtype), ids.dense_shape)
    data = table(dtype) / 3
    expected = getattr(tf.nn, name)(data, ids, weights, combiner=combiner)
    actual = getattr(rowgrad, name)(data, ids, weights, combiner)
    assert (type(actual), actual.dtype) == (type(expected), expected.dtype)
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-15 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("look_up", [rowgrad.embedding_lookup_sparse, rowgrad.safe_embedding_lookup_sparse])
def test_look_ups_refuse_what_is_watched(look_up: Any) -> None:
    data, factors = table(), tf.constant([1.0, 2.0, 3.0])
    parts = (tf.constant([[0, 0], [0, 1], [1, 0]], tf.int64), tf.constant(IDS), tf.constant([2, 2], tf.int64))
    weights = (parts[0], factors, parts[2])
    with tf.GradientTape() as tape:
        look_up(data, parts, weights)
        tape.watch([data, factors])
        refuse(lambda: look_up(data, parts), "params")
        refuse(lambda: look_up(list(data), parts), "params")
        refuse(lambda: look_up(table(), parts, weights), "sp_weights.values")
