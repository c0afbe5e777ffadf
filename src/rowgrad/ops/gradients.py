"""Gradient rules: each is one line in an operator's declaration, a call of other operators.

In a rule, a name is an input or an output of the operator; ``d_`` before an output's name is the gradient that flows
into that output; ``rows(x)`` is the number of rows of x; ``Op(...).pin`` takes one result of several. A rule says
nothing of arrays: `evaluate` walks it and leaves to the caller what applying an operator means, `backward` applies
it to arrays.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from rowgrad.ops.catalogue import OPERATORS, Operator

Apply = Callable[[Operator, list[Any]], Mapping[str, Any]]


@cache
def parse(rule: str) -> ast.expr:
    """The syntax tree of a rule."""
    return ast.parse(rule, mode="eval").body


def evaluate(rule: str, names: Mapping[str, Any], apply: Apply, rows: Callable[[Any], Any]) -> Any:
    """The value of `rule`: `names` gives inputs, outputs and their gradients, `apply` runs an operator."""
    return _value(parse(rule), names, apply, rows)


def _value(node: ast.expr, names: Mapping[str, Any], apply: Apply, rows: Callable[[Any], Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=ast.Call() as call, attr=pin):
            return _results(call, names, apply, rows)[pin]
        case ast.Call(func=ast.Name(id="rows"), args=[argument]):
            return rows(_value(argument, names, apply, rows))
        case ast.Call():
            (result,) = _results(node, names, apply, rows).values()
            return result
    raise ValueError(f"a gradient rule cannot contain {ast.unparse(node)}")


def _results(call: ast.Call, names: Mapping[str, Any], apply: Apply, rows: Callable[[Any], Any]) -> Mapping[str, Any]:
    assert isinstance(call.func, ast.Name)
    arguments = [_value(argument, names, apply, rows) for argument in call.args]
    return apply(OPERATORS[call.func.id], arguments)


def backward(
    operator: Operator, inputs: Mapping[str, Any], d_outputs: Mapping[str, Any], *, compact: bool = False
) -> dict[str, Any]:
    """The gradients of all differentiable inputs, on arrays; an output whose gradient is not given gets zeros.

    With `compact`, a rule that has a compact form uses it, and its gradient is a `RowGradient`.
    """
    outputs = apply_to_arrays(operator, [inputs[pin.name] for pin in operator.inputs])
    names = {**inputs, **outputs}
    for name, output in outputs.items():
        names[f"d_{name}"] = d_outputs[name] if name in d_outputs else np.zeros_like(output)
    gradients = {name: evaluate(rule, names, apply_to_arrays, len) for name, rule in operator.gradient.items()}
    if compact:
        for name, rule in operator.compact_gradient.items():
            gradients[name] = evaluate(rule, names, _apply_whole, len)
    return gradients


def apply_to_arrays(operator: Operator, values: list[Any]) -> dict[str, Any]:
    """Run `operator`; the results by the names of its output pins."""
    results = operator(*values)
    if operator.result is None:
        results = (results,)
    return dict(zip((pin.name for pin in operator.outputs), results, strict=True))


def _apply_whole(operator: Operator, values: list[Any]) -> dict[str, Any]:
    return {"result": operator(*values)}
