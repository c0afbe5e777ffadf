"""Values as they are typed."""

import json

import ml_dtypes
import numpy as np
import pytest

from rowgrad._cli import values
from rowgrad._cli.problems import Problem
from rowgrad._runtime.dtypes import NUMPY

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def refusal(text):
    with pytest.raises(Problem) as caught:
        values.parse(text)
    return caught.value


@pytest.mark.parametrize("text", ["5", "-1", "[[1, 2], [3, 4]]", "[]", '"a"', '["a", "b:c"]', "1.5", "[true, false]"])
def test_json_without_a_type_stays_as_written(text):
    value = values.parse(text)
    assert value == json.loads(text)
    assert not isinstance(value, np.ndarray)


@pytest.mark.parametrize("name", [name for name in NUMPY if name != "bool"])
def test_a_type_in_front(name):
    value = values.parse(f"{name}:[1, 2]")
    assert value.dtype == NUMPY[name]
    plain = value[name] if value.dtype.names else value
    assert plain.tolist() == [1, 2]


def test_other_types_in_front():
    assert values.parse("bool:[true, false]").tolist() == [True, False]
    assert values.parse('complex64:["1+2j", "3"]').tolist() == [1 + 2j, 3]
    assert values.parse('string:["a"]').tolist() == ["a"]
    assert values.parse("float16:[0.1]").tolist() == [float(np.float16(0.1))]
    assert values.parse("float32:[[]]").shape == (1, 0)


def test_whole_numbers_stay_exact():
    assert values.parse("uint64:[18446744073709551615, 1]").tolist() == [2**64 - 1, 1]
    assert values.parse("int64:[9007199254740993]").tolist() == [2**53 + 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int32:[1.5]", "1.5 would change"),
        ("int8:[300]", "int8"),
        ("uint8:[-1]", "uint8"),
        ("int64:[99999999999999999999]", "too large"),
        ("float32:[1e99]", "too large"),
        ("bfloat16:[1e99]", "too large"),
        ('float64:["a"]', "does not hold numbers"),
        ('complex64:["a"]', "does not hold numbers"),
        ("string:[1]", "not text"),
    ],
)
def test_what_does_not_fit_its_type_is_refused(text, words):
    problem = refusal(text)
    assert problem.code == 1
    assert words in problem.message


@pytest.mark.parametrize("text", ["null", "[1, null]", "{}", '[1, "a"]', "[[1], [2, 3]]", "[1, [2]]", "[" * 100_000])
def test_json_that_is_no_array(text):
    problem = refusal(text)
    assert problem.code == 2
    assert len(problem.message) < 300


def test_text_that_is_neither():
    problem = refusal("hello")
    assert "'hello' is not a file" in problem.message
    assert problem.hint == "a string is written '\"hello\"'."
    assert refusal("data.txt").code == 2
    assert refusal("").code == 2


def test_files_with_a_type_in_front(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([1, 2], np.int32))
    assert values.parse(f"int64:{path}").dtype == np.int64
    assert values.parse(f"qint32:{path}").dtype == NUMPY["qint32"]
    np.save(path, np.array([0.5]))
    assert "would change" in refusal(f"int64:{path}").message
    np.save(path, np.array([1 + 2j]))
    assert "imaginary" in refusal(f"float64:{path}").message


def test_bfloat16_files(tmp_path):
    path = tmp_path / "x.npy"
    numbers = np.array([1.5, -2], BFLOAT16)
    for stored in (numbers.view("V2"), numbers.view(np.uint16)):
        np.save(path, stored)
        read = values.parse(f"bfloat16:{path}")
        assert read.dtype == BFLOAT16
        assert read.tolist() == [1.5, -2]
    np.save(path, numbers.view("V2"))
    problem = refusal(str(path))
    assert "raw 2-byte items" in problem.message
    assert f"bfloat16:{path}" in problem.hint


def test_parts_of_a_file_without_parts(tmp_path):
    assert "no parts" in refusal(f"{tmp_path}/x.npy:a").message
