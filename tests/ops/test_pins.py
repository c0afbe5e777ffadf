"""What pins refuse, for every operator of the catalogue: booleans are no sizes, no ids and no axes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowgrad.blocks
from rowgrad import raw_ops
from rowgrad._ops import Operator
from rowgrad._ops.gradients import apply_to_arrays
from rowgrad.blocks.operators import BLOCKS

PINS = [
    (operator, pin.name)
    for operator in BLOCKS.values()
    if operator.role == "operator"
    for pin, fitter in zip(operator.inputs, operator.fitters, strict=True)
    if fitter.is_ids and not pin.many
]


def booleans(value: Any) -> Iterator[Any]:
    """`value`, all or one of it as a boolean, in the forms that callers have."""
    array = np.asarray(value).astype(bool)
    yield array
    yield array.tolist()
    if array.ndim == 0:
        yield array[()]  # NumPy's own
        yield array.reshape(1)
    else:
        mixed = np.asarray(value, object)
        mixed.flat[-1] = True
        yield mixed.tolist()


@pytest.mark.parametrize(("operator", "name"), PINS, ids=[f"{operator.name}-{name}" for operator, name in PINS])
def test_booleans_are_no_whole_numbers(operator: Operator, name: str) -> None:
    good = operator.example.inputs
    for value in booleans(good[name]):
        with pytest.raises(rowgrad.DTypeError, match=f"{name} is bool") as info:
            apply_to_arrays(operator, list({**good, name: value}.values()), operator.example.attributes)
        assert (info.value.argument, info.value.code) == (name, "wrong-dtype")


def test_booleans_stay_values() -> None:
    np.testing.assert_array_equal(rowgrad.blocks.raw_ops.Cast([True, False], DstT="int32"), [1, 0])


def test_text_among_nested_numbers_is_refused() -> None:
    with pytest.raises(rowgrad.RowgradError, match="indices"):
        raw_ops.SparseReorder([[0, 0], np.array(["a", "b"])], [1.0, 2.0], [2, 2])
