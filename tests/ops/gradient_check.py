"""Gradients by the rules, of first and second order, compared with finite differences in float64.

`Tape` records operators as they are applied and goes back through them by their rules. What it adds on the way back is
recorded too, so that gradients have gradients. `check` is what tests call.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rowgrad._ops import Operator
from rowgrad._ops import gradients as by_rules
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.gradients import Namespace, apply_to_arrays, evaluate, rules, type_names, typed
from rowgrad.blocks.operators import OPERATORS

Array = np.ndarray[Any, Any]
backward = partial(by_rules.backward, operators=OPERATORS)
STEP = 1e-6


class Var:
    """An array on a tape."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)


def array_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [array_of(item) for item in value]
    return value.array if isinstance(value, Var) else value


class Tape:
    def __init__(self) -> None:
        self.steps: list[tuple[Operator, dict[str, Any], dict[str, Any], dict[str, Var]]] = []
        self.op = Namespace(OPERATORS, lambda used: partial(self.call, used), lambda value: len(array_of(value)))

    def call(self, operator: Operator, *arguments: Any, **attributes: Any) -> Any:
        outputs = self.apply(operator, arguments, attributes)
        return operator.result(**outputs) if operator.result else next(iter(outputs.values()))

    def apply(self, operator: Operator, arguments: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Var]:
        settings = check_attributes(operator, attributes)
        results = apply_to_arrays(operator, array_of(arguments), settings)
        outputs = {name: Var(result) for name, result in results.items()}
        inputs = dict(zip((pin.name for pin in operator.inputs), arguments, strict=True))
        self.steps.append((operator, inputs, settings, outputs))
        return outputs

    def gradients(self, seeds: list[tuple[Var, Any]], targets: list[Var]) -> list[Any]:
        """The gradients of the targets, where those of some results are given; None where nothing flows."""
        found: dict[Var, list[Any]] = {}
        for result, gradient in seeds:
            found.setdefault(result, []).append(gradient)
        for operator, inputs, settings, outputs in reversed(list(self.steps)):
            flowing = {name: self._sum(found[output]) for name, output in outputs.items() if output in found}
            if flowing:
                self._through(operator, inputs, settings, outputs, flowing, found)
        return [self._sum(found[target]) if target in found else None for target in targets]

    def _through(self, operator: Operator, inputs: Any, settings: Any, outputs: Any, flowing: Any, found: Any) -> None:
        types = type_names(operator, {name: array_of(value) for name, value in inputs.items()})
        zeros = {name: np.zeros_like(output.array) for name, output in outputs.items()}
        names = {**types, **inputs, **outputs, **settings}
        names |= {f"d_{name}": flowing.get(name, zeros[name]) for name in outputs}
        for pin in operator.inputs:
            for position, part in enumerate(inputs[pin.name] if pin.many else [inputs[pin.name]]):
                if not isinstance(part, Var) or part.array.dtype.kind != "f":
                    continue
                for rule in rules(operator, pin.name, frozenset(flowing)):
                    at_part = {**names, "part": part, "position": position}
                    gradient = evaluate(rule, self.op, at_part)
                    found.setdefault(part, []).append(gradient)

    def _sum(self, gradients: list[Any]) -> Any:
        if len(gradients) == 1:
            return gradients[0]
        return self.op.AddN(gradients)


def difference(function: Any, at: Array) -> Array:
    """The gradient of a function of one array, element by element."""
    gradient = np.empty(at.shape)
    for place in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][place] += STEP
        moved[1][place] -= STEP
        gradient[place] = (function(moved[0]) - function(moved[1])) / (2 * STEP)
    return gradient


def flattened(values: Mapping[str, Any]) -> dict[tuple[str, int], Array]:
    """Arrays by name and position; those of a pin of many arrays one by one."""
    return {(name, i): np.asarray(array)
            for name, value in values.items()
            for i, array in enumerate(value if isinstance(value, list) else [value])}  # fmt: skip


def replaced(values: Mapping[str, Any], key: tuple[str, int], array: Array) -> dict[str, Any]:
    name, position = key
    value = values[name]
    if not isinstance(value, list):
        return {**values, name: array}
    return {**values, name: [array if i == position else item for i, item in enumerate(value)]}


def inner(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> float:
    return sum(float(np.sum(left[key] * right[key])) for key in left)


def check(name: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> None:
    """First- and second-order gradients of an operator to all its differentiable inputs, at `inputs`."""
    random = np.random.default_rng(11)
    operator, settings = OPERATORS[name], dict(attributes or {})
    inputs = typed(operator, inputs)
    varied = {pin: inputs[pin] for pin in operator.gradient}

    def run(values: Mapping[str, Any]) -> dict[str, Any]:
        called = {**inputs, **values}
        results = apply_to_arrays(operator, [called[pin.name] for pin in operator.inputs], settings)
        return {pin: result for pin, result in results.items() if result.dtype.kind == "f"}

    weights = {pin: random.standard_normal(result.shape) for pin, result in run(varied).items()}

    def first(values: Mapping[str, Any], d_outputs: Mapping[str, Any]) -> dict[tuple[str, int], Array]:
        return flattened(backward(operator, {**inputs, **values}, d_outputs, attributes=settings))

    found = first(varied, weights)
    assert {key: array.shape for key, array in found.items()} == {k: a.shape for k, a in flattened(varied).items()}
    for key, array in flattened(varied).items():
        expected = difference(lambda x, key=key: inner(run(replaced(varied, key, x)), weights), array)
        np.testing.assert_allclose(found[key], expected, rtol=1e-6, atol=1e-7, err_msg=f"{name} to {key}")

    _check_second(operator, inputs, settings, varied, weights, first, found, random)


def _check_second(operator: Any, inputs: Any, settings: Any, varied: Any, weights: Any, first: Any, found: Any,
                  random: np.random.Generator) -> None:  # fmt: skip
    tape = Tape()
    leaves = {pin: [Var(x) for x in v] if isinstance(v, list) else Var(v) for pin, v in varied.items()}
    d_outputs = {pin: Var(weight) for pin, weight in weights.items()}
    outputs = tape.apply(operator, [{**inputs, **leaves}[pin.name] for pin in operator.inputs], settings)
    keys = list(flattened(varied))
    targets = [leaves[pin][i] if isinstance(leaves[pin], list) else leaves[pin] for pin, i in keys]
    gradients = tape.gradients([(outputs[pin], d_outputs[pin]) for pin in weights], targets)
    again = {key: random.standard_normal(found[key].shape) for key in keys}
    for key, gradient in zip(keys, gradients, strict=True):
        np.testing.assert_array_equal(array_of(gradient), found[key])

    seeds = [(g, again[key]) for key, g in zip(keys, gradients, strict=True) if isinstance(g, Var)]
    second = tape.gradients(seeds, targets + list(d_outputs.values()))
    for key, target, gradient in zip(keys, targets, second[: len(keys)], strict=True):
        expected = difference(lambda x, key=key: inner(first(replaced(varied, key, x), weights), again), target.array)
        _assert_close(gradient, expected, f"{operator.name}, twice, to {key}")
    for pin, gradient in zip(d_outputs, second[len(keys) :], strict=True):
        expected = difference(lambda x, pin=pin: inner(first(varied, {**weights, pin: x}), again), weights[pin])
        _assert_close(gradient, expected, f"{operator.name}, to d_{pin}")


def _assert_close(gradient: Any, expected: Array, what: str) -> None:
    found = np.zeros(expected.shape) if gradient is None else array_of(gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7, err_msg=what)
