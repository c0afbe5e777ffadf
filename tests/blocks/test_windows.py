"""Windows on large arrays: slices, orders, searches, histograms and projections, against NumPy on the whole array."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rowgrad.blocks import Window, windows
from rowgrad.errors import InvalidArgumentError, OutOfRangeError, RowgradError

MATRICES = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int16, np.int64, np.bool_]),
    st.tuples(st.integers(0, 40), st.integers(0, 5)),
)
quiet = np.errstate(all="ignore")


@given(MATRICES, st.integers(0, 45), st.integers(0, 45), st.booleans(), st.data())
def test_a_slice_in_the_order_of_a_column(matrix: Any, start: int, count: int, down: bool, data: Any) -> None:
    window = Window(matrix)
    rows, found = window.slice(start, count)
    assert rows.tolist() == list(range(start, min(start + count, len(matrix))))
    np.testing.assert_array_equal(found, matrix[start : start + count])
    if matrix.shape[1]:
        by = data.draw(st.integers(0, matrix.shape[1] - 1))
        rows, found = window.slice(start, count, by=by, descending=down)
        keys = [value.item() for value in matrix[:, by]]
        odd = [i for i, key in enumerate(keys) if key != key]
        wanted = sorted((i for i in range(len(keys)) if i not in odd), key=keys.__getitem__, reverse=down) + odd
        assert rows.tolist() == wanted[start : start + count]
        np.testing.assert_array_equal(found, matrix[rows])


@given(MATRICES)
@quiet
def test_counts_and_histogram_are_those_of_the_whole_array(matrix: Any) -> None:
    windows_chunk = windows.CHUNK
    windows.CHUNK = 7
    try:
        counts, plain = Window(matrix).counts(), matrix.astype(np.float64)
        finite = plain[np.isfinite(plain)]
        assert counts.elements == matrix.size
        assert counts.nan == np.isnan(plain).sum()
        assert counts.positive_infinity == np.isposinf(plain).sum()
        assert counts.negative_infinity == np.isneginf(plain).sum()
        assert counts.zeros == (finite == 0).sum()
        assert (counts.least, counts.largest) == ((finite.min(), finite.max()) if finite.size else (None, None))
        histogram = Window(matrix).histogram(5)
        assert histogram.counts.sum() == finite.size
        assert histogram.not_finite == matrix.size - finite.size
        assert (np.diff(histogram.edges) >= 0).all()
    finally:
        windows.CHUNK = windows_chunk


def test_search_finds_numbers_texts_and_nan() -> None:
    window = Window(np.array([[1.0, 0.1], [0.1, 2.0], [np.nan, 3.0]], np.float32))
    assert window.find(0.1).tolist() == [0, 1]
    assert window.find(0.1, column=1).tolist() == [0]
    assert window.find(0.1, after=0).tolist() == [1]
    assert window.find(float("nan")).tolist() == [2]
    assert window.find(0.1, most=1).tolist() == [0]
    assert Window(np.array(["ape", "bat", b"cape"], object)).find("ap").tolist() == [0, 2]
    with pytest.raises(InvalidArgumentError, match="'x' is a text, and the array holds numbers"):
        window.find("x")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.complex64, np.uint8])
def test_every_kind_of_number_can_be_looked_at(dtype: Any) -> None:
    window = Window(np.arange(6).reshape(2, 3).astype(dtype))
    assert window.counts().largest == 5
    assert window.histogram(3).counts.tolist() == [2, 2, 2]
    assert window.slice(0, 1, by=1, descending=True)[0].tolist() == [1]
    assert window.project().points.shape == (2, 2)


def test_shapes_of_one_axis_and_of_many() -> None:
    assert Window(np.arange(3)).shape == (3, 1)
    assert Window(np.float32(3)).shape == (1, 1)
    assert Window(np.zeros((2, 3, 4))).shape == (6, 4)
    assert Window(np.zeros((4, 0))).shape == (4, 0)
    assert Window(np.zeros((0, 4))).counts().least is None


def test_a_projection_is_that_of_a_whole_decomposition() -> None:
    random = np.random.default_rng(3)
    matrix = random.standard_normal((300, 6)) * [9, 4, 1, 1, 1, 1] + 100
    centred = matrix - matrix.mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    found = Window(matrix).project()
    np.testing.assert_allclose(found.shares, (singular**2 / (singular**2).sum())[:2], rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.points), np.abs(centred @ directions.T[:, :2]), rtol=1e-7, atol=1e-9)
    assert found.is_exact
    assert found.rows.tolist() == list(range(300))
    np.testing.assert_array_equal(found.points, Window(matrix).project().points)


def test_a_random_projection_finds_the_strongest_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    matrix = random.standard_normal((200, 40)) + random.standard_normal((200, 2)) @ random.standard_normal((2, 40)) * 50
    exact = Window(matrix).project()
    monkeypatch.setattr(windows, "NARROW", 10)
    monkeypatch.setattr(windows, "SMALL", 10)
    found = Window(matrix).project()
    assert not found.is_exact
    np.testing.assert_allclose(found.points, exact.points, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found.shares, exact.shares, rtol=1e-6)


def test_wide_and_few_rows_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(5).standard_normal((20, 30))
    exact = Window(matrix).project()
    monkeypatch.setattr(windows, "NARROW", 10)
    found = Window(matrix).project()
    assert found.is_exact
    np.testing.assert_allclose(found.points, exact.points, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("matrix", [np.zeros((0, 3)), np.zeros((3, 0)), np.ones((1, 1)), np.full((3, 2), np.nan),
                                    np.full((3, 2), 1e308), np.array([[np.inf, 1], [2, 3], [4, 5]])])  # fmt: skip
def test_projections_of_nothing_much(matrix: Any) -> None:
    found = Window(matrix).project()
    assert np.isfinite(found.points).all()
    assert np.isfinite(found.shares).all()
    assert found.left_out == (~np.isfinite(matrix).all(axis=1)).sum()


def test_a_sample_of_points_follows_from_the_seed() -> None:
    matrix = np.random.default_rng(6).standard_normal((500, 3))
    one, same, other = (Window(matrix).project(most=50, seed=seed).rows.tolist() for seed in (1, 1, 2))
    assert one == same != other
    assert len(set(one)) == 50


def test_a_million_rows() -> None:
    matrix = np.random.default_rng(7).standard_normal((1_000_000, 64), np.float32)
    matrix[123_456, 7] = np.nan
    window = Window(matrix)
    rows, found = window.slice(999_990, 100, by=7, descending=True)
    assert rows[-1] == 123_456
    np.testing.assert_array_equal(found, matrix[rows])
    assert window.counts().nan == 1
    assert window.histogram(100).counts.sum() == 64_000_000 - 1
    assert window.project(most=1000).points.shape == (1000, 2)


def test_what_nobody_waits_for_stops() -> None:
    asked = iter([False, True])
    window = Window(np.zeros((3, windows.CHUNK // 2)), stop=lambda: next(asked))
    with pytest.raises(windows.Stopped):
        window.counts()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda w: w.slice(0, 10_001), "count is 10001; one slice of 2 columns gives at most 10000 rows"),
        (lambda w: w.slice(-1, 1), "start is -1; it must be a whole number of 0 or more"),
        (lambda w: w.slice(0, 1, by=2), "column is 2; there are columns 0 to 1"),
        (lambda w: w.histogram(0), "bins is 0; it must be 1 to 4096"),
        (lambda w: w.histogram(3, limits=(2.0, 1.0)), "limits are 2.0 and 1.0"),
        (lambda w: w.histogram(3, limits=(0.0, np.inf)), "they must be finite"),
        (lambda w: w.project(4), "axes is 4; it must be 1 to 3"),
        (lambda w: w.project(most=0), "most is 0"),
        (lambda w: w.find(1.0, most=0), "most is 0; it must be 1 to 1000"),
        (lambda w: w.slice(True, 1), "start is True"),
    ],
)
def test_wrong_questions_are_refused(call: Any, text: str) -> None:
    with pytest.raises((InvalidArgumentError, OutOfRangeError), match=text):
        call(Window(np.zeros((3, 2))))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Window(np.zeros(2, "V4")),
        lambda: Window(np.array(["2020-01-01"], "M8[D]")),
        lambda: Window(np.ones((2, 3))).find([1.0, 2.0]),
        lambda: Window(np.ones((2, 3))).find(None),
        lambda: Window(np.ones((2, 3))).find(1.0, after="x"),
        lambda: Window(np.ones((2, 3))).find(1.0, after=(0,)),
        lambda: Window(np.ones((2, 3))).slice(0, 1, columns=5),
        lambda: Window(np.ones((2, 3))).slice(0, 1, columns=(0, 1, 2)),
        lambda: Window(np.ones((2, 3))).slice(0, 1, columns=("a", "b")),
        lambda: Window(np.ones((2, 3))).histogram(3, limits=5),
        lambda: Window(np.ones((2, 3))).histogram(3, limits="ab"),
    ],
)
def test_questions_of_a_wrong_kind(call: Any) -> None:
    with pytest.raises(RowgradError):
        call()
