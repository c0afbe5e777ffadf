"""Gradient rules: each is one line in an operator's declaration, a call of other operators.

In a rule, a name is an input, an output or an attribute of the operator; ``d_`` before an output's name is the
gradient that flows into that output; ``rows(x)`` is the number of rows of x; ``Op(...).pin`` takes one result of
several; ``x if attribute else y`` chooses. Numbers and lists are literals. A type variable of the operator (``T``) is
the name of the type that it stands for, to be given to an attribute. The rule of a pin that takes many arrays is
that of one of them, ``part``, at ``position``; ``[Op(value) for value in values]`` goes through all.

A rule says nothing of arrays: `evaluate` walks it and leaves to the caller what applying an operator means, `backward`
applies it to arrays.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import OPERATORS, Operator
from rowgrad._ops.pins import is_untyped
from rowgrad._runtime.dtypes import name_of

Apply = Callable[[str, list[Any], dict[str, Any]], Mapping[str, Any]]


@cache
def parse(rule: str) -> ast.expr:
    """The syntax tree of a rule."""
    return ast.parse(rule, mode="eval").body


@cache
def mentioned(rule: str) -> frozenset[str]:
    """The names in a rule."""
    return frozenset(node.id for node in ast.walk(parse(rule)) if isinstance(node, ast.Name))


def rules(operator: Operator, name: str, flowing: frozenset[str], *, compact: bool = False) -> list[str]:
    """The rules, to be added up, for the input `name` when gradients flow into the outputs `flowing`."""
    table = {**operator.gradient, **operator.compact_gradient} if compact else operator.gradient
    stated = table.get(name, ())
    all_rules = (stated,) if isinstance(stated, str) else stated
    return [rule for rule in all_rules if any(f"d_{output}" in mentioned(rule) for output in flowing)]


def evaluate(rule: str, names: Mapping[str, Any], apply: Apply, rows: Callable[[Any], Any]) -> Any:
    """The value of `rule`: `names` gives inputs, outputs, their gradients and attributes, `apply` runs an operator."""
    return _Walk(names, apply, rows).value(parse(rule))


class _Walk:
    def __init__(self, names: Mapping[str, Any], apply: Apply, rows: Callable[[Any], Any]) -> None:
        self.names = names
        self.apply = apply
        self.rows = rows

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return self.names[name]
            case ast.Constant(value=literal):
                return literal
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.ListComp(
                elt=item, generators=[ast.comprehension(target=ast.Name(id=each), iter=ast.Name(id=name))]
            ):
                return [_Walk({**self.names, each: value}, self.apply, self.rows).value(item)
                        for value in self.names[name]]  # fmt: skip
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.value(operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.Attribute(value=ast.Call() as call, attr=pin):
                return self.results(call)[pin]
            case ast.Call(func=ast.Name(id="rows"), args=[argument]):
                return self.rows(self.value(argument))
            case ast.Call():
                (result,) = self.results(node).values()
                return result
        raise ValueError(f"a gradient rule cannot contain {ast.unparse(node)}")

    def results(self, call: ast.Call) -> Mapping[str, Any]:
        assert isinstance(call.func, ast.Name)
        arguments = [self.value(argument) for argument in call.args]
        attributes = {keyword.arg: self.value(keyword.value) for keyword in call.keywords if keyword.arg}
        return self.apply(call.func.id, arguments, attributes)


def backward(
    operator: Operator,
    inputs: Mapping[str, Any],
    d_outputs: Mapping[str, Any],
    *,
    compact: bool = False,
    attributes: Mapping[str, Any] | None = None,
    operators: Mapping[str, Operator] = OPERATORS,
) -> dict[str, Any]:
    """The gradients of all differentiable inputs, on arrays; an output whose gradient is not given gets zeros.

    With `compact`, a rule that has a compact form uses it, and its gradient is a `RowGradient`. `operators` are those
    that rules may call.
    """

    def apply(name: str, values: list[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        return apply_to_arrays(operators[name], values, attributes)

    def apply_whole(name: str, values: list[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {"result": operators[name](*values, **attributes)}

    settings = check_attributes(operator, attributes or {})
    inputs = typed(operator, inputs)
    outputs = apply_to_arrays(operator, [inputs[pin.name] for pin in operator.inputs], settings)
    names = {**type_names(operator, inputs), **inputs, **outputs, **settings}
    for name, output in outputs.items():
        names[f"d_{name}"] = d_outputs[name] if name in d_outputs else np.zeros_like(output)
    flowing = frozenset(d_outputs)
    gradients: dict[str, Any] = {}
    for pin in operator.inputs:
        if pin.name not in operator.gradient:
            continue
        is_compact = compact and pin.name in operator.compact_gradient
        stated = rules(operator, pin.name, flowing, compact=is_compact)
        parts = [{"part": part, "position": i} for i, part in enumerate(inputs[pin.name])] if pin.many else [{}]
        found = [[evaluate(rule, {**names, **part}, apply_whole if is_compact else apply, len) for rule in stated]
                 for part in parts]  # fmt: skip
        sums = [sum(terms[1:], start=terms[0]) if len(terms) != 1 else terms[0] for terms in found if terms]
        if not sums:
            sums = [np.zeros_like(array) for array in (inputs[pin.name] if pin.many else [inputs[pin.name]])]
        gradients[pin.name] = sums if pin.many else sums[0]
    return gradients


def typed(operator: Operator, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, lists and numbers written in Python as arrays of the types that they have in this call."""
    if not any(map(is_untyped, inputs.values())):
        return dict(inputs)
    fitted = operator._fit(tuple(inputs[pin.name] for pin in operator.inputs))
    return {pin.name: array if is_untyped(inputs[pin.name]) else inputs[pin.name]
            for pin, array in zip(operator.inputs, fitted, strict=True)}  # fmt: skip


def type_names(operator: Operator, inputs: Mapping[str, Any]) -> dict[str, str]:
    """What the type variables stand for when `operator` is called with `inputs`, if its rules mention any."""
    if not _mentions_types(operator):
        return {}
    fitted = operator._fit(tuple(inputs[pin.name] for pin in operator.inputs))
    firsts = [value[0] if isinstance(value, tuple) else value for value in fitted]
    variables = [pin.dtype if pin.dtype in operator.types else "" for pin in operator.inputs]
    return {variable: name_of(np.asarray(first).dtype) for variable, first in zip(variables, firsts, strict=True)}


@cache
def _mentions_types(operator: Operator) -> bool:
    stated = [(rule,) if isinstance(rule, str) else rule for rule in operator.gradient.values()]
    return any(not mentioned(rule).isdisjoint(operator.types) for rules in stated for rule in rules)


def apply_to_arrays(
    operator: Operator, values: list[Any], attributes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run `operator`; the results by the names of its output pins."""
    settings = check_attributes(operator, attributes or {}) if operator.attributes else {}
    results = operator(*values, **settings)
    if operator.result is None:
        results = (results,)
    return dict(zip((pin.name for pin in operator.outputs), results, strict=True))
