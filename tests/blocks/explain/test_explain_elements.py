"""Every number of every sparse operator is the sum, product or choice that its explanation says, to the bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import golden
import naive
import strategies
from golden import assert_same
from rowgrad._ops import OPERATORS
from rowgrad._ops.attributes import check_attributes
from rowgrad.blocks._explain import EXPLAINERS, Call, explain_element
from rowgrad.blocks._explain.sparse import WHOLE
from rowgrad.blocks._explain.terms import work_out

MOST = 12  # elements of one result that are explained
TYPED = [
    pytest.param(op, dtype, id=f"{op}-{golden.dtype_name(dtype)}")
    for op, (_, dtypes) in strategies.OPERATORS.items()
    for dtype in dtypes
]


def as_call(operator: Any, args: dict[str, Any], outputs: Any) -> Call:
    given = {name: args[name] for name in (pin.name for pin in operator.inputs)}
    fitted = operator._fit(tuple(given.values()))
    inputs = {name: value if isinstance(value, tuple) else np.asarray(value)
              for name, value in zip(given, fitted, strict=True)}  # fmt: skip
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    named = {pin.name: np.asarray(value) for pin, value in zip(operator.outputs, found, strict=True)}
    settings = {name: args[name] for name in (attribute.name for attribute in operator.attributes) if name in args}
    return Call(operator, inputs, named, check_attributes(operator, settings))


def operator_of(op: str, args: dict[str, Any]) -> Any:
    """The operator behind a function: with a number of segments, it is another one."""
    found = [operator for operator in OPERATORS.values() if operator.function == op]
    return next(operator for operator in found if all(pin.name in args for pin in operator.inputs)
                and ("num_segments" in args) == ("num_segments" in {pin.name for pin in operator.inputs}))  # fmt: skip


def check_elements(call: Call) -> None:
    random = np.random.default_rng(0)
    for pin, array in call.outputs.items():
        places = list(np.ndindex(array.shape))
        if len(places) > MOST:
            places = [places[i] for i in random.choice(len(places), MOST, replace=False)]
        for place in places:
            term = explain_element(call, pin, place)
            expected = array[place]
            if array.dtype.kind == "O":
                assert term.value == expected
                continue
            assert_same(np.asarray(expected), np.asarray(term.value), "nan")
            assert_same(np.asarray(expected), np.asarray(work_out(term)), "nan")


@pytest.mark.parametrize(("op", "dtype"), TYPED)
def test_explanations_add_up_to_the_naive_result(op: str, dtype: Any) -> None:
    @settings(max_examples=min(15, settings.default.max_examples))
    @given(strategies.calls(op, dtype))
    def check(args: dict[str, Any]) -> None:
        operator = operator_of(op, args)
        check_elements(as_call(operator, args, getattr(naive, op)(**args)))

    check()


@pytest.mark.parametrize("name", OPERATORS)
def test_the_worked_example_of_every_operator_is_explained(name: str) -> None:
    operator = OPERATORS[name]
    example = operator.example
    results = operator(*operator._fit(tuple(example.inputs[pin.name] for pin in operator.inputs)),
                       **check_attributes(operator, example.attributes))  # fmt: skip
    found = results if operator.result is not None else (results,)
    check_elements(as_call(operator, {**example.inputs, **example.attributes}, tuple(map(np.asarray, found))))


def test_every_sparse_operator_has_an_explainer() -> None:
    assert set(EXPLAINERS) == set(OPERATORS)
    assert not [name for name in WHOLE if OPERATORS[name].gradient]
