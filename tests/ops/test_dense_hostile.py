"""No argument of a dense operator, however hostile, is answered by anything but an error of rowgrad, or a result.

Each operator's worked example is bent, one argument at a time.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad._ops import Operator
from rowgrad._ops.gradients import apply_to_arrays
from rowgrad.blocks.operators import OPERATORS

FAMILIES = ("elementwise", "shaping", "joining", "gathering", "reductions", "losses")
DENSE = [operator for operator in OPERATORS.values() if operator.family in FAMILIES]
ALL = pytest.mark.parametrize("operator", DENSE, ids=[operator.name for operator in DENSE])


def never_taken() -> Iterator[tuple[str, Any]]:
    """What no pin takes."""
    recursive: list[Any] = []
    recursive.append(recursive)
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    yield from [
        ("None", None),
        ("an object", object()),
        ("a dictionary", {"a": 1}),
        ("an iterator", iter([0, 1])),
        ("a ragged list", [[0], [1, 2]]),
        ("a recursive list", recursive),
        ("a deep list", deep),
        ("a list of None", [None] * 3),
        ("objects", np.array([object()] * 2)),
        ("dates", np.array(["2020-01-01"], "M8[D]")),
        ("records", np.zeros(2, [("a", "i4"), ("b", "f4")])),
        ("float8", np.zeros(2, ml_dtypes.float8_e5m2)),
        ("a masked array", np.ma.masked_array([1.0, 2.0], [True, False])),
        ("past 64 bits", [2**70]),
    ]


def odd() -> Iterator[tuple[str, Any]]:
    """What some pins take, and others must refuse: ranks, sizes and numbers at the ends of their ranges."""
    for number in (0, -1, 7, 2**31, 2**40, -(2**63), 2**63 - 1):
        for array in (number, [number], [[number]], [number, number], np.array([number] * 2), np.array([[number]])):
            yield f"{array!r}", array
    for shape in ((), (0,), (0, 0), (2, 0), (1,) * 30, (3, 1, 2)):
        for dtype in (np.float64, np.int32, np.int64):
            yield f"{dtype.__name__} {shape}", np.zeros(shape, dtype)
    yield "endless floats", np.broadcast_to(np.float64(1), (2**50,))
    yield "endless ids", np.broadcast_to(np.int64(0), (2**50, 2))
    yield "NaN", np.array([np.nan, np.inf])
    yield "strings", np.array(["a", "b"])
    yield "the other byte order", np.array([1, 0], ">i4")
    yield "strided", np.arange(8)[::4]


def bent(operator: Operator, hostile: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    inputs = operator.example.inputs
    for what, bad in hostile:
        for pin in operator.inputs:
            if not pin.many or what != "a ragged list":  # which is a list of arrays
                yield f"{pin.name}: {what}", list({**inputs, pin.name: bad}.values())
            if pin.many:
                yield f"{pin.name}[1]: {what}", list({**inputs, pin.name: [inputs[pin.name][0], bad]}.values())


@ALL
def test_what_no_pin_takes(operator: Operator) -> None:
    for what, values in bent(operator, never_taken()):
        with pytest.raises(rowgrad.RowgradError) as info:
            apply_to_arrays(operator, values, operator.example.attributes)
            pytest.fail(f"taken: {what}")
        assert info.value.op == operator.name, what
        assert info.value.argument, what


@ALL
def test_odd_values_are_taken_or_refused(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowgrad._runtime.memory._available_after_clearing", lambda nbytes: 1 << 30)  # tiles of 16 GB
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for what, values in bent(operator, odd()):
            try:
                results = apply_to_arrays(operator, values, operator.example.attributes)
            except rowgrad.RowgradError as error:
                assert error.code, what
                assert str(error), what
            else:
                assert all(type(result) is np.ndarray for result in results.values()), what


@ALL
def test_wrong_attributes(operator: Operator) -> None:
    for attribute in operator.attributes:
        for bad in ("no such thing", 1.5, object(), [1]):
            given = {**operator.example.attributes, attribute.name: bad}
            with pytest.raises(rowgrad.InvalidArgumentError) as info:
                apply_to_arrays(operator, list(operator.example.inputs.values()), given)
            assert info.value.argument == attribute.name
