"""Crossed features against plain loops and TensorFlow's recorded ones."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rowgrad
from rowgrad import features, raw_ops

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "features-tensorflow-2.21.json").read_text())
COLUMNS = RECORDED["columns"]
HASH = {"hashed_output": True, "out_type": "int64", "internal_type": "int64"}


def test_recorded_crosses() -> None:
    crossed = raw_ops.SparseCross(**COLUMNS, **HASH, num_buckets=0, hash_key=956888297470)
    assert crossed.output_values.tolist() == RECORDED["crossed"]
    assert crossed.output_indices.tolist() == RECORDED["indices"]
    assert crossed.output_shape.tolist() == RECORDED["shape"]
    hashed = raw_ops.SparseCrossHashed(**COLUMNS, num_buckets=1000, strong_hash=False, salt=[1, 2])
    assert hashed.output_values.tolist() == RECORDED["hashed"]
    joined = raw_ops.SparseCrossV2(**COLUMNS, sep="_X_")
    assert joined.output_values.tolist() == RECORDED["joined"]


def plain(rows: list[list[list[Any]]], key: int, buckets: int) -> list[list[int]]:
    """The crosses of each row, where rows[c][r] are the features of column c in row r."""
    found = []
    for row in zip(*rows, strict=True):
        crosses = []
        for combination in product(*row):
            hashed = np.uint64(key)
            for feature in combination:
                part = features.fingerprint64([feature])[0] if isinstance(feature, str) else np.uint64(feature % 2**64)
                hashed = features.fingerprint_cat64(hashed, part)
            crosses.append(int(hashed) % (buckets or 2**63 - 1))
        found.append(crosses)
    return found


@given(st.data())
def test_plain_loops(data: Any) -> None:
    count, size = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 4))
    kinds = [data.draw(st.sampled_from([st.text(max_size=3), st.integers(-(2**63), 2**63 - 1)])) for _ in range(count)]
    rows = [[data.draw(st.lists(kind, max_size=3)) for _ in range(size)] for kind in kinds]
    buckets = data.draw(st.integers(0, 50))
    indices, values, splits = [], [], []
    for kind, column in zip(kinds, rows, strict=True):
        flat = [feature for row in column for feature in row]
        is_text = kind is kinds[0] and any(isinstance(feature, str) for feature in flat)
        array = np.empty(len(flat), object if is_text or any(isinstance(each, str) for each in flat) else np.int64)
        array[:] = flat
        values.append(array)
        indices.append(np.array([[at, place] for at, row in enumerate(column) for place in range(len(row))],
                                np.int64).reshape(-1, 2))  # fmt: skip
        splits.append(np.cumsum([0, *map(len, column)]))
    expected = plain(rows, 5, buckets)
    flat_expected = [cross for row in expected for cross in row]
    shapes = [np.array([size, 3])] * count
    crossed = raw_ops.SparseCross(indices, values, shapes, [], **HASH, num_buckets=buckets, hash_key=5)
    assert crossed.output_values.tolist() == flat_expected
    assert crossed.output_indices.tolist() == [
        [r, place] for r, row in enumerate(expected) for place in range(len(row))
    ]
    assert crossed.output_shape.tolist() == [size, max(map(len, expected), default=0)]
    ragged = raw_ops.RaggedCross(
        values, splits, [], [], [], [], input_order="R" * count, hashed_output=True, num_buckets=buckets, hash_key=5,
        out_values_type="int64", out_row_splits_type="int32",
    )  # fmt: skip
    assert ragged.output_values.tolist() == flat_expected
    assert np.diff(ragged.output_row_splits).tolist() == list(map(len, expected))


def test_entries_after_one_out_of_order_are_lost() -> None:
    crossed = features.cross_features([([[0, 0], [1, 0], [0, 1]], [5, 6, 7], [2, 2])], 10)
    assert crossed.output_indices.tolist() == [[0, 0], [1, 0]]


def test_columns_of_vectors() -> None:
    whole = features.cross_features([np.array([["a"], ["b"]]), np.array([[1], [2]])], 100)
    assert features.cross_features([["a", "b"], [1, 2]], 100).output_values.tolist() == whole.output_values.tolist()


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"indices": [[[0, 0, 0]]], "values": [[1]], "shapes": [[2, 2]]}, "indices[0]"),
        ({"indices": [[[0, 0]]], "values": [[1, 2]], "shapes": [[2, 2]]}, "values[0]"),
        ({"indices": [[[0, 0]]], "values": [[1]], "shapes": [[-2, 2]]}, "shapes[0]"),
        ({"indices": [[[0, 0]]], "values": [], "shapes": [[2, 2]]}, "values"),
        ({"dense_inputs": [[1, 2]]}, "dense_inputs[0]"),
        ({"dense_inputs": 3}, "dense_inputs"),
        ({"num_buckets": -1}, "num_buckets"),
        ({"dense_inputs": [[[1]]], "internal_type": "string"}, "dense_inputs"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], argument: str) -> None:
    call = {"indices": [], "values": [], "shapes": [], "dense_inputs": [], "num_buckets": 5, "hash_key": 1, **HASH}
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.SparseCross(**(call | change))
    assert info.value.argument == argument


def test_more_crosses_than_can_be_counted() -> None:
    wide = [np.ones((1, 2**16), np.int64)] * 4
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        features.cross_features(wide, 10)
    assert info.value.code == "too-large"


def test_rows_must_agree() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError):
        features.cross_features([[1, 2], [1, 2, 3]], 10)


@pytest.mark.parametrize("splits", [[], [1, 2], [0, 1], [0, 3, 2]], ids=str)
def test_wrong_row_splits(splits: list[int]) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        raw_ops.RaggedCross([[1, 2]], [splits], [], [], [], [], input_order="R", hashed_output=True, num_buckets=5,
                            hash_key=1, out_values_type="int64", out_row_splits_type="int64")  # fmt: skip
    assert info.value.argument == "ragged_row_splits[0]"
