"""Every declaration is complete, consistent, and true of what the operator does."""

import inspect

import numpy as np
import pytest

import rowgrad
from rowgrad import functions, raw_ops
from rowgrad.ops import FAMILIES, OPERATORS, Operator
from rowgrad.ops.gradients import apply_to_arrays
from rowgrad.ops.shapes import infer

ALL = pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))


@ALL
def test_declared_in_full(operator: Operator) -> None:
    assert operator.family in FAMILIES
    assert operator.summary.endswith(".")
    assert operator.formula
    assert operator.cost
    assert any(error.startswith("DTypeError") for error in operator.errors)
    for error in operator.errors:
        assert issubclass(getattr(rowgrad, error.partition(":")[0]), rowgrad.RowgradError)
    for pin in (*operator.inputs, *operator.outputs):
        assert pin.doc.endswith(".")
    assert (operator.result is not None) == (len(operator.outputs) > 1)
    if operator.result:
        assert operator.result._fields == tuple(pin.name for pin in operator.outputs)  # type: ignore[attr-defined]


@ALL
def test_the_example_is_true(operator: Operator) -> None:
    assert list(operator.example.inputs) == [pin.name for pin in operator.inputs]
    results = apply_to_arrays(operator, list(operator.example.inputs.values()))
    assert list(results) == list(operator.example.outputs)
    for name, stated in operator.example.outputs.items():
        expected, result = np.array(stated), results[name]
        assert result.dtype.kind == expected.dtype.kind
        assert result.shape == expected.shape
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(result, expected)


@ALL
def test_dtypes_and_shapes_are_as_declared(operator: Operator) -> None:
    inputs = {pin.name: fitter.fit(operator.example.inputs[pin.name])
              for pin, fitter in zip(operator.inputs, operator.fitters, strict=True)}  # fmt: skip
    results = apply_to_arrays(operator, list(inputs.values()))
    shapes = {name: np.shape(value) for name, value in inputs.items()}
    inferred = infer(operator, shapes, inputs)
    variables = {pin.dtype: np.asarray(inputs[pin.name]).dtype for pin in operator.inputs}
    for pin in operator.outputs:
        result = results[pin.name]
        assert len(inferred[pin.name]) == result.ndim
        for size, actual in zip(inferred[pin.name], result.shape, strict=True):
            assert size is None or size == actual
        if result.dtype.kind not in "US":
            assert result.dtype == variables.get(pin.dtype, np.dtype(pin.dtype if pin.dtype not in variables else None))


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        ("SparseSegmentMeanGrad", {"grad": (3, 5, 2), "indices": (7,)}, {"output_dim0": 9}, {"output": (9, 5, 2)}),
        ("SparseSegmentMeanGrad", {"grad": (3, 5, 2)}, {}, {"output": (None, 5, 2)}),
        ("SparseSegmentSum", {"data": (3, 5)}, {"segment_ids": [0, 4]}, {"output": (5, 5)}),
        ("SparseSegmentSum", {"data": (3, 5)}, {"segment_ids": []}, {"output": (0, 5)}),
    ],
)
def test_shapes_are_inferred(name: str, shapes: dict, values: dict, expected: dict) -> None:  # type: ignore[type-arg]
    assert infer(OPERATORS[name], shapes, values) == expected


def test_wrong_shapes_are_refused_before_anything_runs() -> None:
    operator = OPERATORS["SparseSegmentMeanGrad"]
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(operator, {"grad": (3, 2), "indices": (4,), "segment_ids": (5,)}, {})
    assert (info.value.argument, info.value.code) == ("segment_ids", "length-mismatch")
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(operator, {"indices": (4, 1)}, {})
    assert (info.value.argument, info.value.code) == ("indices", "wrong-rank")


@ALL
def test_functions_and_raw_ops_are_the_operator(operator: Operator) -> None:
    names = [pin.name for pin in operator.inputs]
    function, raw = getattr(functions, operator.function), getattr(raw_ops, operator.name)
    assert list(inspect.signature(function).parameters)[: len(names)] == names
    attributes = [attribute.name for attribute in operator.attributes]
    assert list(inspect.signature(raw).parameters) == [*names, *attributes, "name"]
    inputs = operator.example.inputs
    expected = apply_to_arrays(operator, list(inputs.values()))
    first, *others = names
    for result in (
        function(*inputs.values()),
        function(**inputs),
        function(inputs[first], **{name: inputs[name] for name in reversed(others)}),
        raw(**inputs, name="x"),
        raw(*inputs.values()),
    ):
        for value, stated in zip(result if operator.result else (result,), expected.values(), strict=True):
            np.testing.assert_array_equal(value, stated)


def test_all_functions_are_public() -> None:
    assert set(functions.__all__) <= set(rowgrad.__all__)
    assert sorted(rowgrad.__all__) == rowgrad.__all__
    assert all(hasattr(rowgrad, name) for name in rowgrad.__all__)
    assert set(raw_ops.__all__) == set(OPERATORS)


def test_num_segments_none_is_left_out() -> None:
    assert rowgrad.sparse_segment_sum([[1.0]], [0], [2], None).shape == (3, 1)
    assert rowgrad.sparse_segment_sum([[1.0]], [0], [2], num_segments=4).shape == (4, 1)
