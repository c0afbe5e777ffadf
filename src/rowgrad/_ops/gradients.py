"""Gradient rules: plain functions in the declarations of operators, and how they are applied.

A rule takes `op` and, by name, what it needs: inputs, outputs and attributes of its operator; ``d_`` before the name of
an output is the gradient that flows into it; a type variable (``T``) is the name of the type that it stands for. It
gives the gradient of one input::

    lambda op, d_output, chosen, data: op.SparseSegmentMaxGrad(d_output, chosen, op.rows(data))

`op` has each operator under its name, and `rows`, the number of rows of a value. A rule says nothing of arrays: for
NumPy `op` runs the operators (`backward`), a page adds blocks, PyTorch and JAX call what they have registered, and
`rule_text` writes down what is called. The rule of a pin that takes many arrays is that of one of them, `part`, at
`position`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.catalogue import OPERATORS, Operator, Rule
from rowgrad._ops.pins import is_untyped
from rowgrad._runtime.dtypes import name_of

# The operators that rules of functions call and that are no functions themselves; a front end that has no pages has
# functions of its own for these.
DENSE = ("BroadcastGradientArgs", "Concat", "Div", "Gather", "GatherNd", "Mul", "OnesLike", "ReduceSum", "Reshape",
         "Shape", "Slice", "SparseSplitOffset", "Sub", "Transpose", "ZerosLike")  # fmt: skip


class Namespace:
    """What rules call `op`: `bind` makes the function that stands for an operator, `rows` counts rows.

    `dense` are functions that a framework has itself for the operators of `DENSE`.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        bind: Callable[[Operator], Callable[..., Any]],
        rows: Any = len,
        dense: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._operators = operators
        self._bind = bind
        self.rows = rows
        self.__dict__.update(dense or {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._operators:
            raise AttributeError(f"there is no operator {name} here")
        function = self._bind(self._operators[name])
        setattr(self, name, function)  # the next time it is found without this
        return function

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return getattr(self, name)  # type: ignore[no-any-return]


def each(stated: Rule | tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that are stated for one input; what they give is added up."""
    return stated if isinstance(stated, tuple) else (stated,)


@cache
def mentioned(rule: Rule) -> tuple[str, ...]:
    """The names that a rule takes, after `op`."""
    return tuple(inspect.signature(rule).parameters)[1:]


def rules(operator: Operator, name: str, flowing: frozenset[str], *, compact: bool = False) -> list[Rule]:
    """The rules, to be added up, for the input `name` when gradients flow into the outputs `flowing`."""
    table = {**operator.gradient, **operator.compact_gradient} if compact else operator.gradient
    stated = each(table.get(name, ()))
    return [rule for rule in stated if any(f"d_{output}" in mentioned(rule) for output in flowing)]


def evaluate(rule: Rule, op: Namespace, names: Mapping[str, Any]) -> Any:
    """What `rule` gives with the operators of `op`; `names` has inputs, outputs, their gradients and attributes."""
    return rule(op, **{name: names[name] for name in mentioned(rule)})


# On arrays


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
    op = Namespace(operators, lambda used: partial(_run, used))
    settings = check_attributes(operator, attributes or {})
    inputs = typed(operator, inputs)
    outputs = apply_to_arrays(operator, [inputs[pin.name] for pin in operator.inputs], settings)
    names = {**type_names(operator, inputs), **inputs, **outputs, **settings}
    for name, output in outputs.items():
        names[f"d_{name}"] = d_outputs[name] if name in d_outputs else np.zeros_like(output)
    gradients: dict[str, Any] = {}
    for pin in operator.inputs:
        if pin.name not in operator.gradient:
            continue
        stated = rules(operator, pin.name, frozenset(d_outputs), compact=compact)
        parts = [{"part": part, "position": i} for i, part in enumerate(inputs[pin.name])] if pin.many else [{}]
        found = [[evaluate(rule, op, {**names, **part}) for rule in stated] for part in parts]
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
    stated = [rule for found in operator.gradient.values() for rule in each(found)]
    if all(operator.types.keys().isdisjoint(mentioned(rule)) for rule in stated):
        return {}
    fitted = operator._fit(tuple(inputs[pin.name] for pin in operator.inputs))
    firsts = [value[0] if isinstance(value, tuple) else value for value in fitted]
    variables = [pin.dtype if pin.dtype in operator.types else "" for pin in operator.inputs]
    return {variable: name_of(np.asarray(first).dtype) for variable, first in zip(variables, firsts, strict=True)}


def _run(operator: Operator, *values: Any, **attributes: Any) -> Any:
    return operator(*values, **(check_attributes(operator, attributes) if operator.attributes else {}))


def apply_to_arrays(
    operator: Operator, values: list[Any], attributes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run `operator`; the results by the names of its output pins."""
    results = _run(operator, *values, **(attributes or {}))
    if operator.result is None:
        results = (results,)
    return dict(zip((pin.name for pin in operator.outputs), results, strict=True))
