"""The recorded TensorFlow answers, asked of `rowgrad.raw_ops`, and of `naive`, which other tests trust."""

from __future__ import annotations

import inspect
import os
import resource
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import golden
import naive
import rowgrad
from golden import Case, assert_same
from rowgrad.blocks import raw_ops

# The embedding look-ups (nn.…) are asked in test_lookup.py.
CASES = [case for case in golden.load() if not case.op.startswith("nn.")]

# TensorFlow refuses a slice of 2**63 elements and more, though it builds nothing dense.
TOO_LARGE_FOR_TENSORFLOW = "SparseSlice/076"

ANSWERS = [case for case in CASES if case.out is not None]
NAIVE = [case for case in ANSWERS if case.plain and hasattr(naive, golden.snake_case(case.op))]
ERRORS = [case for case in CASES if case.error is not None and case.id != TOO_LARGE_FOR_TENSORFLOW]
UNDEFINED = [case for case in CASES if case.undefined is not None]

# Which of our errors may stand for TensorFlow's. OutOfRangeError is an InvalidArgumentError.
CLASSES: dict[str, tuple[type[Exception], ...]] = {
    "InvalidArgumentError": (rowgrad.InvalidArgumentError, rowgrad.DTypeError),
    "NotFoundError": (rowgrad.DTypeError,),
    "InternalError": (rowgrad.InvalidArgumentError,),
    "ResourceExhaustedError": (rowgrad.OutOfMemoryError,),
}

# Where the library answers otherwise, on purpose (docs/deviations.md).
DEVIATIONS: dict[str, dict[str, np.ndarray[Any, Any]]] = {
    # Ragged fill of no rows: TensorFlow gives value_rowids of shape [0, 1].
    "RaggedFillEmptyRows/004": {"output_value_rowids": np.zeros(0, np.int64)},
    # Half and bfloat16 defaults: TensorFlow rounds after every addition.
    "SparseFillEmptyRowsGrad/015": {"d_default_value": np.array(-12.078125, np.float16)},
    "SparseFillEmptyRowsGrad/071": {"d_default_value": np.array(2056, np.float16)},
    "SparseFillEmptyRowsGrad/072": {"d_default_value": np.array(264, ml_dtypes.bfloat16)},
}


def call(case: Case) -> dict[str, Any]:
    result = getattr(raw_ops, case.op)(**case.args, **case.attrs)
    if isinstance(result, tuple):
        return result._asdict()
    return {"out" if "Apply" in case.op else "output": result}


def expected(case: Case) -> dict[str, Any]:
    assert case.out is not None
    return case.out | DEVIATIONS.get(case.id, {})


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.id)
def test_answer(case: Case) -> None:
    actual = call(case)
    assert list(actual) == list(expected(case))
    for name, array in expected(case).items():
        found = actual[name]
        for want, got in zip(array, found, strict=True) if isinstance(array, list) else [(array, found)]:
            assert_same(want, got, case.cmp, case.terms)


@pytest.mark.parametrize("case", NAIVE, ids=lambda case: case.id)
def test_the_naive_answer(case: Case) -> None:
    function = getattr(naive, golden.snake_case(case.op))
    takes = inspect.signature(function).parameters
    results = function(**case.args, **{name: value for name, value in case.attrs.items() if name in takes})
    results = results if isinstance(results, tuple) else (results,)
    for array, actual in zip(expected(case).values(), results, strict=True):
        assert_same(array, actual, case.cmp, case.terms)


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.id)
def test_error(case: Case) -> None:
    with pytest.raises(CLASSES[case.error or ""]) as caught:
        call(case)
    assert isinstance(caught.value, rowgrad.RowgradError)
    assert caught.value.op == case.op
    assert isinstance(caught.value.code, str) and caught.value.code
    assert caught.value.argument in {**case.args, **case.attrs}
    assert str(caught.value)


# ---------------------------------------------------------------- where TensorFlow is no guide


def only(case_id: str) -> Case:
    (case,) = [case for case in CASES if case.id == case_id]
    return case


def test_every_undefined_case_has_an_expectation() -> None:
    assert {case.id for case in UNDEFINED} == {
        "SparseSegmentSumWithNumSegments/065",
        "SparseSegmentSumWithNumSegments/066",
        "SparseSegmentMeanGrad/025",
        "SparseSegmentSqrtNGrad/025",
        "SparseSlice/053",
        "SparseSlice/054",
    }
    assert {case.id for case in ANSWERS} >= set(DEVIATIONS)


@pytest.mark.parametrize("case_id", ["SparseSegmentMeanGrad/025", "SparseSegmentSqrtNGrad/025"])
def test_the_gradient_of_an_empty_batch_is_zero(case_id: str) -> None:
    assert_same(np.zeros((4, 2), np.float32), call(only(case_id))["output"])


@pytest.mark.parametrize("case_id", ["SparseSlice/053", "SparseSlice/054"])
def test_a_slice_of_size_minus_2_63_is_refused(case_id: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as caught:
        call(only(case_id))
    assert caught.value.argument == "size"


def test_a_slice_may_have_more_than_2_63_elements() -> None:
    actual = call(only(TOO_LARGE_FOR_TENSORFLOW))
    assert_same(np.zeros((0, 2), np.int64), actual["output_indices"])
    assert_same(np.zeros(0, np.float32), actual["output_values"])
    assert_same(np.array([2**62, 2**62]), actual["output_shape"])


CALL_WITHOUT_MEMORY = """
import sys
import golden, rowgrad, test_golden
case = test_golden.only(sys.argv[1])
try:
    test_golden.call(case)
except rowgrad.OutOfMemoryError as error:
    assert error.op == case.op and error.code
    print("out of memory")
"""


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))


@pytest.mark.parametrize("number", ["065", "066"])
def test_an_int64_num_segments_is_not_cut_to_32_bits(number: str) -> None:
    # The answer has 2**32 rows and 32 GiB; with less than that to be had, the call must say so.
    done = subprocess.run(
        [sys.executable, "-c", CALL_WITHOUT_MEMORY, f"SparseSegmentSumWithNumSegments/{number}"],
        preexec_fn=limit_memory,
        cwd=golden.FILE.parent.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "out of memory\n", done.stderr


def test_the_file_round_trips() -> None:
    for line in golden.read_lines()[1]:
        for tensor in line["args"].values():
            assert golden.encode(golden.decode(tensor)) == tensor
