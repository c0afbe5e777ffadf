"""What is no text: halves of surrogate pairs, wherever they stand."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowgrad._runtime import texts
from rowgrad.errors import FileError, InvalidArgumentError

STRINGS = st.text(st.characters(exclude_categories=()) | st.sampled_from('\\"ud8\ud834\udd1e\ud800'), max_size=12)


def is_refused(text: str) -> bool:
    try:
        texts.check_json(text)
    except InvalidArgumentError as error:
        assert error.code == "bad-text"
        str(error).encode()
        return True
    return False


@given(STRINGS)
def test_text_is_what_utf_8_can_encode(text: str) -> None:
    assert texts.is_text(text) == (not any("\ud800" <= letter <= "\udfff" for letter in text))


@given(st.recursive(STRINGS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3)),
       st.booleans())  # fmt: skip
def test_json_is_refused_if_it_would_give_a_half(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert is_refused(text) == (not texts.is_text(json.dumps(json.loads(text), ensure_ascii=False)))


def test_the_place_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"line 2, column 4: \\udc00 is half of a surrogate pair"):
        texts.check_json('{"a":\n ["\\udc00"]}')
    with pytest.raises(FileError, match=r"x\[1\]\[0\], character 2: \\ud800 is half of a surrogate pair"):
        texts.check(["a", ["bc\ud800"]], "x", FileError)
    for dtype in (str, object, np.dtypes.StringDType()):
        if dtype != np.dtypes.StringDType():  # which takes no halves
            with pytest.raises(InvalidArgumentError, match=r"x\[1, 0\], character 1: \\udfff"):
                texts.check(np.array([["a"], ["b\udfff"]], dtype), "x")
        texts.check(np.array([["a"], ["𝄞"]], dtype), "x")
    texts.check(np.array(["", ""]), "x")
    texts.check(np.array([b"\xff", "a"], object), "x")
