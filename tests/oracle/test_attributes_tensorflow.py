"""Attributes of page operators that change results, beside a living TensorFlow."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad.blocks import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize("truncate", [False, True])
def test_casts_that_truncate(source: type, target: str, truncate: bool) -> None:
    x = np.random.default_rng(3).standard_normal(2000).astype(source) * 100
    expected = tf.raw_ops.Cast(x=x, DstT=getattr(tf, target), Truncate=truncate).numpy()
    found = raw_ops.Cast(x, DstT=target, Truncate=truncate)
    assert found.dtype == expected.dtype == (ml_dtypes.bfloat16 if target == "bfloat16" else np.dtype(target))
    differ = found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")
    # float64 becomes half by way of float32 in TensorFlow, unless digits are cut off first.
    assert not differ.any() or (source is np.float64 and target == "float16" and not truncate)


@pytest.mark.parametrize("policy", ["", "DEFAULT", "ERROR", "IGNORE", "other"])
@pytest.mark.parametrize("indices", [[[0, 1], [1, 0]], [[0, 5], [1, 1]], [[-1, 0], [0, 0]]], ids=str)
def test_policies_for_bad_indices(policy: str, indices: list[list[int]]) -> None:
    places, values = np.array(indices), np.float32([[1, 2], [3, 4]])
    calls = {
        "GatherNd": {"params": values, "indices": places},
        "ScatterNd": {"indices": places, "updates": values[0], "shape": np.array([2, 2])},
    }
    for name, inputs in calls.items():
        try:
            expected = getattr(tf.raw_ops, name)(**inputs, bad_indices_policy=policy).numpy()
        except (tf.errors.OpError, ValueError):
            with pytest.raises(rowgrad.RowgradError):
                getattr(raw_ops, name)(**inputs, bad_indices_policy=policy)
            continue
        assert getattr(raw_ops, name)(**inputs, bad_indices_policy=policy).tolist() == expected.tolist()
