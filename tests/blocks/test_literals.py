"""Literals: strict, typed, and the same bits after a walk through JSON."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rowgrad._runtime.dtypes import BFLOAT16, NUMPY
from rowgrad.blocks.literals import literal, plain, typed
from rowgrad.errors import PageError


def refusal(value: Any, dtype: str | None = None) -> PageError:
    with pytest.raises(PageError) as caught:
        literal(value, dtype)
    return caught.value


@pytest.mark.parametrize(
    ("value", "position", "words"),
    [
        ([[1, 2], [3]], (1,), "a list of 1 where the others have 2"),
        ([[1], 2], (1,), "a single value where the others are lists"),
        ([1, [2]], (1,), "a list where the others are single values"),
        ([[[1], [2]], [[3], [4, 5]]], (1, 1), "a list of 2 where the others have 1"),
        ([[], [1]], (1,), "a list of 1 where the others have 0"),
    ],
)
def test_ragged_lists_are_refused_with_the_place(value: Any, position: tuple[int, ...], words: str) -> None:
    error = refusal(value)
    assert error.code == "ragged"
    assert error.position == position
    assert words in error.message
    assert f"[{', '.join(map(str, position))}]" in error.message


@pytest.mark.parametrize("value", [None, [None], {"a"}, [object()], [[1, "a"]], [True, 1], ["a", 1.5]])
def test_what_is_no_literal_is_refused(value: Any) -> None:
    refusal(value)


def test_deep_lists_are_refused() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert "32 deep" in refusal(value).message


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "int32"), (2**31, "int32"), (-1, "uint8"), (True, "int32"), (1, "bool"), ("a", "float32"),
        (1e39, "float32"), (70000.0, "float16"), (1, "string"), (2**64, "uint64"), ("nan", "float32"),
        ("1+j2", "complex64"), (10**400, "float64"),
    ],
)  # fmt: skip
def test_what_a_type_cannot_hold_is_refused(value: Any, dtype: str) -> None:
    error = refusal([[value]], dtype)
    assert "[0, 0]" in error.message
    assert dtype in error.message or "text" in error.message


def test_empty_lists_have_a_shape() -> None:
    assert typed([], "int64").shape == (0,)
    assert typed([[], []], "float32").shape == (2, 0)


def test_arrays_bring_their_type_and_are_not_shared() -> None:
    array = np.ones(3, np.int16)
    made = literal(array)
    array[0] = 7
    assert made.dtype == "int16"
    assert made.value.tolist() == [1, 1, 1]
    assert not made.value.flags.writeable


def numbers(dtype: "np.dtype[Any]") -> st.SearchStrategy[Any]:
    if dtype == BFLOAT16:
        words = npst.arrays(np.uint16, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
        return words.map(lambda array: np.asarray(array).view(BFLOAT16))
    base = dtype[0] if dtype.names else dtype
    made = npst.arrays(base, npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
    return made.map(lambda array: np.asarray(array).view(dtype)) if dtype.names else made


@pytest.mark.parametrize("name", NUMPY)
@given(data=st.data())
def test_every_bit_comes_back_from_json(name: str, data: Any) -> None:
    array = data.draw(numbers(NUMPY[name]))
    back = typed(json.loads(json.dumps(plain(array), allow_nan=False)), name)
    if 0 in array.shape:  # lists do not tell how wide nothing is; page files do
        back = back.reshape(array.shape)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    if name in ("float16", "bfloat16", "float32", "float64"):
        with np.errstate(invalid="ignore"):
            known = ~np.isnan(array)
            np.testing.assert_array_equal(~np.isnan(back), known)
        assert back[known].tobytes() == array[known].tobytes()
    elif name.startswith("complex"):
        np.testing.assert_array_equal(back, array)
    else:
        assert back.tobytes() == array.tobytes()
