import dataclasses

import numpy as np
import pytest

from rowgrad._cli import examples
from rowgrad.blocks.operators import OPERATORS


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_worked_example_is_right(operator):
    assert examples.problem_of(operator) == ""


@pytest.mark.parametrize(
    ("got", "stated", "same"),
    [
        ([0.33333334], [0.333333], True),
        ([0.3334], [0.333333], False),
        ([[1.0]], [1.0], False),
        ([True], [False], False),
        (["a"], ["a"], True),
        (["ab"], ["a"], False),
        ([float("nan")], [1.0], False),
        (3.0, 3.0, True),
    ],
)
def test_agrees(got, stated, same):
    assert examples.agrees(np.array(got), stated) is same


def test_a_wrong_result_and_an_error_are_told():
    operator = OPERATORS["SparseSliceGrad"]
    wrong = dataclasses.replace(operator.example, outputs={"val_grad": [1.0, 5.0, 7.0, 0.0]})
    assert examples.problem_of(dataclasses.replace(operator, example=wrong)) == "val_grad not as stated"
    broken = dataclasses.replace(operator.example, inputs={**operator.example.inputs, "input_start": [0]})
    assert "InvalidArgumentError" in examples.problem_of(dataclasses.replace(operator, example=broken))
