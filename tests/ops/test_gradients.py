"""The gradient rules: linear ones are exact transposes, and none leads to an operator that cannot be differentiated.

The rules of operators that are not linear are compared with finite differences in the tests of their families.
"""

import ast
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gradient_check import backward

import rowgrad
from optional import framework
from rowgrad._ops import Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.gradients import DENSE, apply_to_arrays
from rowgrad._ops.rule_text import needed, text, texts
from rowgrad._runtime.dtypes import FLOATS
from rowgrad.blocks.operators import OPERATORS

RNG = np.random.default_rng(5)


def floats(operator: Operator, pin: Any) -> bool:
    return not set(operator.dtypes_of(pin)).isdisjoint(FLOATS)


def all_rules(operator: Operator) -> list[str]:
    stated = [*operator.gradient.values(), *operator.compact_gradient.values()]
    return [rule for rules in stated for rule in texts(rules)]


def parse(rule: str) -> ast.expr:
    return ast.parse(rule, mode="eval").body


def varies(node: ast.expr, names: set[str]) -> bool:
    """Whether a part of a rule changes with `names`; sizes, axes and positions of what changes do not."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="rows" | "ZerosLike" | "OnesLike")):
            return False
        case ast.Call(func=ast.Name(id=name)) if not any(floats(OPERATORS[name], p) for p in OPERATORS[name].outputs):
            return False
        case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=attr):
            (pin,) = (pin for pin in OPERATORS[name].outputs if pin.name == attr)
            return floats(OPERATORS[name], pin) and varies(node.value, names)
        case ast.ListComp(elt=item, generators=[comprehension]):
            each = {comprehension.target.id} if varies(comprehension.iter, names) else set()
            return varies(item, names | each)
    return any(varies(child, names) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def is_linear(operator: Operator) -> bool:
    """Whether no rule needs the values of what is differentiated, nor of a result: only then is it a transpose."""
    return not any(varies(parse(rule), differentiated(operator)) for rule in all_rules(operator))


def differentiated(operator: Operator) -> set[str]:
    """The names in rules whose values change when an input does that can be differentiated."""
    return {*operator.gradient, "part", *(pin.name for pin in operator.outputs if floats(operator, pin))}


DIFFERENTIABLE = [operator for operator in OPERATORS.values() if operator.gradient]
LINEAR = [operator for operator in DIFFERENTIABLE if is_linear(operator)]
ALL = pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=[operator.name for operator in DIFFERENTIABLE])


def random_inputs(operator: Operator) -> dict[str, Any]:
    """The worked example with random float64 values in place of everything that can be differentiated."""
    many = {pin.name for pin in operator.inputs if pin.many}
    return {
        name: value
        if name not in operator.gradient
        else [RNG.standard_normal(np.shape(part)) for part in value]
        if name in many
        else RNG.standard_normal(np.shape(value))
        for name, value in operator.example.inputs.items()
    }


def inner(left: dict[str, Any], right: dict[str, Any]) -> float:
    parts = [(x, y) for name in left for x, y in (zip(left[name], right[name], strict=True)
             if isinstance(left[name], list) else [(left[name], right[name])])]  # fmt: skip
    return sum(float(np.sum(np.asarray(x) * np.asarray(y))) for x, y in parts)


def float_outputs(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outputs.items() if value.dtype.kind == "f"}


def test_linear_operators_are_found() -> None:
    names = {operator.name for operator in LINEAR}
    sparse = {"sparse_segment", "sparse_segment_grad", "fill_empty_rows", "sparse_slice"}
    assert {operator.name for operator in DIFFERENTIABLE if operator.family in sparse} <= names
    assert {"Add", "Neg", "Concat", "Slice", "Pad", "Gather", "ReduceMean", "ReluGrad", "BroadcastTo"} <= names
    assert names.isdisjoint({"Mul", "Div", "MatMul", "Exp", "Softmax", "SigmoidCrossEntropyWithLogits"})


@pytest.mark.parametrize("operator", LINEAR, ids=[operator.name for operator in LINEAR])
def test_the_rule_is_the_transpose(operator: Operator) -> None:
    attributes = check_attributes(operator, operator.example.attributes)
    attributes |= {"DstT": "float64"} if operator.name == "Cast" else {}
    inputs = random_inputs(operator)
    outputs = float_outputs(apply_to_arrays(operator, list(inputs.values()), attributes))
    d_outputs = {name: RNG.standard_normal(value.shape) for name, value in outputs.items()}
    gradients = backward(operator, inputs, d_outputs, attributes=attributes)
    assert set(gradients) == set(operator.gradient)
    for name, gradient in gradients.items():
        parts = zip(gradient, inputs[name], strict=True) if isinstance(gradient, list) else [(gradient, inputs[name])]
        assert all(np.shape(found) == np.shape(given) for found, given in parts)
    varied = {name: inputs[name] for name in operator.gradient}
    assert inner(outputs, d_outputs) == pytest.approx(inner(varied, gradients), rel=1e-12)


# These are 0 wherever they exist.
CONSTANT_ALMOST_EVERYWHERE = {
    ("Sign", "x"),
    ("ReluGrad", "features"),
    ("SparseDenseScatter", "dense"),
    *(("SparseSparseChosen", pin) for pin in ("a_values", "b_values")),
    *((name, pin) for name in ("SegmentMaxGrad", "SegmentMaxGradGrad") for pin in ("data", "output")),
}


@ALL
def test_gradients_of_every_order(operator: Operator) -> None:
    """Whatever changes in a rule enters an operator by a pin that can be differentiated.

    That holds for the rules of these operators too, so gradients of gradients, of any order, never end.
    """
    names = differentiated(operator) | {f"d_{pin.name}" for pin in operator.outputs}
    for rule in all_rules(operator):
        for call in ast.walk(parse(rule)):
            if not isinstance(call, ast.Call) or not varies(call, names):
                continue
            used = OPERATORS[call.func.id]
            for pin, argument in zip(used.inputs, call.args, strict=True):
                if varies(argument, names) and (used.name, pin.name) not in CONSTANT_ALMOST_EVERYWHERE:
                    assert pin.name in used.gradient, f"{used.name}.{pin.name}, in {rule}"


@pytest.mark.parametrize("operator", [o for o in DIFFERENTIABLE if o.function], ids=lambda operator: operator.name)
def test_functions_have_gradients_of_functions(operator: Operator) -> None:
    """Front ends that have the functions alone can differentiate them, as often as one likes."""
    called = {node.func.id for rule in all_rules(operator) for node in ast.walk(parse(rule))
              if isinstance(node, ast.Call)} - {"rows"}  # fmt: skip
    assert called
    assert all(OPERATORS[name].function or name in DENSE for name in called)


@pytest.mark.parametrize(
    ("name", "module"), [("torch", "rowgrad.torch._autograd"), ("jax", "rowgrad.jax._differentiable")]
)
def test_frameworks_have_the_dense_operators_of_rules(name: str, module: str) -> None:
    framework(name)
    functions = import_module(module).DENSE
    assert set(functions) == set(DENSE)


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


def test_rules_in_words() -> None:
    """What a rule calls is found by calling it; where it asks for an attribute, both answers are written down."""
    assert text(lambda op, d_y, x: op.Mul(d_y, [op.Square(x), 2.0])) == "Mul(d_y, [Square(x), 2.0])"
    assert text(lambda op, values, T: op.Add([op.Shape(v, out_type=T) for v in values], "a")) == (
        'Add([Shape(value, out_type=T) for value in values], "a")'
    )
    assert text(lambda op, a, t, u: (op.Neg(a) if t else a) if u else op.Exp(a, t=t)) == (
        "(Neg(a) if t else a) if u else Exp(a, t=t)"
    )
    assert text(lambda op, a, t: op.Exp(op.Neg(a) if t else a, [1 if t else 0, 2], t=not t)) == (
        "Exp(Neg(a) if t else a, [1, 2] if t else [0, 2], t=not t)"
    )
    assert text(lambda op, a, t: op.Neg(a, t=bool(t) or True)) == "Neg(a, t=True)"
    assert text(lambda op, a: op["Pair"](a, op.rows(a)).first) == "Pair(a, rows(a)).first"


def test_what_a_rule_needs() -> None:
    """Of what it only counts the rows of, the values need not be kept."""
    assert needed(lambda op, d_y, x, y: op.Grad(d_y, op.rows(x))) == {"d_y"}
    assert needed(lambda op, d_y, x: op.Grad(d_y, x, op.rows(x))) == {"d_y", "x"}
    assert needed(lambda op, d_y, x, y, t: op.Neg(x) if t else y) == {"x", "y", "t"}
    assert needed(lambda op, d_y: d_y) == {"d_y"}
    assert needed(lambda op, values, part: [op.Shape(value) for value in values]) == {"values"}
