"""Arrays as tables."""

import io

import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

from rowgrad._cli import show


def drawn(renderable, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1 / 3), "0.333333"),
        (np.int64(2**62), str(2**62)),
        (np.bool_(True), "True"),
        (np.complex64(1 + 2j), "1+2j"),
        (ml_dtypes.bfloat16(1.5), "1.5"),
        (np.float64("nan"), "nan"),
        (np.str_("a"), "'a'"),
        (b"a", "b'a'"),
        ("\x1b[31m", "'\\x1b[31m'"),
        (np.array([3], [("qint8", "i1")])[0], "3"),
    ],
)
def test_elements(value, text):
    assert show.number(value) == text


def test_long_text_is_cut():
    assert len(show.number("x" * 1000)) == show.LONGEST_TEXT


def test_a_small_result_is_shown_whole():
    text = drawn(show.result("output", np.arange(6).reshape(2, 3), 100))
    assert "output  int64 [2, 3]" in text
    assert [line.strip("│ \n").split() for line in text.splitlines()[2:4]] == [
        ["0", "0", "1", "2"],
        ["1", "3", "4", "5"],
    ]
    assert "mean" not in text


def test_scalars_and_nothing():
    assert "2.5" in drawn(show.result("d", np.array(2.5), 100))
    assert "empty" in drawn(show.result("d", np.empty((0, 3)), 100))


def test_a_long_result_is_summarised():
    text = drawn(show.result("output", np.arange(1000.0), 100))
    assert "the first 5 of 1000 rows; min 0  max 999  mean 499.5" in text
    assert len(text.splitlines()) < 12


def test_a_wide_result_shows_both_ends_and_fits():
    values = np.arange(300).reshape(3, 100) + 10**15
    for width in (100, 60, 30):
        text = drawn(show.result("output", values, width), width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" in text
    text = drawn(show.result("output", values, 100))
    assert str(10**15) in text
    assert str(10**15 + 99) in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([np.nan, np.inf, 1, 3] * 10), "20 not finite  min 1  max 3  mean 2"),
        (np.full(30, np.nan), "30 not finite"),
        (np.arange(30) % 2 == 0, "15 of 30 are True"),
        (np.array(["a"] * 30), "30 strings"),
        (np.full(30, 2, ml_dtypes.bfloat16), "min 2  max 2  mean 2"),
        (np.full(30, 2, "i1").view([("qint8", "i1")]), "min 2  max 2  mean 2"),
        (np.full(30, 1j), "mean 0+1j"),
        (np.full(30, 2**63, np.uint64), f"min {2**63}"),
    ],
)
def test_statistics(values, words):
    assert words in drawn(show.result("x", values, 100))


def test_tensors_are_shown_row_by_row():
    text = drawn(show.result("x", np.arange(8).reshape(2, 2, 2), 100))
    assert "[2, 2, 2]" in text
    assert ["1", "4", "5", "6", "7"] in [line.strip("│ ").split() for line in text.splitlines()]


def test_side_by_side_breaks_where_the_screen_ends():
    parts = [show.table(name, [[name * 20]]) for name in "abc"]

    def lines(width):
        console = Console(file=io.StringIO(), width=width)
        show.side_by_side(console, parts)
        text = console.file.getvalue()
        assert all(name * 20 in text for name in "abc")
        return len(text.splitlines())

    assert [lines(width) for width in (100, 60, 30)] == [3, 6, 9]


def test_waiting_says_nothing_to_a_pipe(capsys):
    with show.waiting("running"):
        pass
    assert capsys.readouterr() == ("", "")
