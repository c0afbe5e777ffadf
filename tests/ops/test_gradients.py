"""The gradient rules: each operator is linear in what it differentiates, so its rule must be its exact transpose."""

from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad.ops import OPERATORS, Operator
from rowgrad.ops.gradients import apply_to_arrays, backward

# The dense families are not linear; their gradients are compared with finite differences.
LINEAR = ("sparse_segment", "sparse_segment_grad", "fill_empty_rows", "sparse_slice")
SPARSE = [operator for operator in OPERATORS.values() if operator.gradient and operator.family in LINEAR]
ALL = pytest.mark.parametrize("operator", SPARSE, ids=[operator.name for operator in SPARSE])
RNG = np.random.default_rng(5)


def random_inputs(operator: Operator) -> dict[str, Any]:
    """The worked example with random float64 values in place of everything that can be differentiated."""
    return {
        name: RNG.standard_normal(np.shape(value)) if name in operator.gradient else value
        for name, value in operator.example.inputs.items()
    }


def inner(left: dict[str, Any], right: dict[str, Any]) -> float:
    return sum(float(np.sum(np.asarray(left[name]) * np.asarray(right[name]))) for name in left)


def float_outputs(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outputs.items() if value.dtype.kind == "f"}


@ALL
def test_the_rule_is_the_transpose(operator: Operator) -> None:
    inputs = random_inputs(operator)
    outputs = float_outputs(apply_to_arrays(operator, list(inputs.values())))
    d_outputs = {name: RNG.standard_normal(value.shape) for name, value in outputs.items()}
    gradients = backward(operator, inputs, d_outputs)
    assert set(gradients) == set(operator.gradient)
    for name, gradient in gradients.items():
        assert np.shape(gradient) == np.shape(inputs[name])
    varied = {name: inputs[name] for name in operator.gradient}
    assert inner(outputs, d_outputs) == pytest.approx(inner(varied, gradients), rel=1e-12)


@ALL
def test_gradients_of_every_order(operator: Operator) -> None:
    """Follow the rules from operator to operator: the chain never ends in one without a gradient."""
    seen = set()
    while operator.name not in seen:
        seen.add(operator.name)
        rule = next(iter(operator.gradient.values()))
        operator = OPERATORS[rule.partition("(")[0]]
        assert operator.gradient, operator.name


def test_compact_gradients() -> None:
    operator = OPERATORS["SparseSegmentMean"]
    inputs = {"data": RNG.standard_normal((9, 2)), "indices": [7, 1, 7], "segment_ids": [0, 0, 1]}
    d_output = {"output": RNG.standard_normal((2, 2))}
    dense = backward(operator, inputs, d_output)["data"]
    compact = backward(operator, inputs, d_output, compact=True)["data"]
    assert isinstance(compact, rowgrad.RowGradient)
    assert compact.sorted_unique_indices.tolist() == [1, 7]
    np.testing.assert_array_equal(compact.output, dense[[1, 7]])


def test_outputs_without_a_gradient_count_as_zero() -> None:
    operator = OPERATORS["SparseFillEmptyRowsGrad"]
    inputs = {"reverse_index_map": [0, 2], "grad_values": np.ones(3)}
    gradient = backward(operator, inputs, {"d_values": np.array([5.0, 7.0])})["grad_values"]
    assert gradient.tolist() == [5.0, 0.0, 7.0]
