"""The names and arguments of `raw_ops` and `rowgrad.sparse` beside those of a living TensorFlow."""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

from rowgrad import raw_ops, sparse
from rowgrad.blocks import raw_ops as page_ops
from test_names import NAMES

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

FUNCTIONS = {name: getattr(page_ops, name) for name in page_ops.__all__}
SHARED = [name for name in FUNCTIONS if hasattr(tf.raw_ops, name)]


def parameters(function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default.name if isinstance(p.default, tf.DType) else p.default for p in found}


@pytest.mark.parametrize("name", SHARED)
def test_arguments_of_raw_ops(name: str) -> None:
    """The same names, in the same order, with the same defaults."""
    assert list(parameters(FUNCTIONS[name]).items()) == list(parameters(getattr(tf.raw_ops, name)).items())


def test_lists_of_names() -> None:
    assert sorted(NAMES["names of tf.sparse"]) == [name for name in dir(tf.sparse) if not name.startswith("_")]
    for names in NAMES["raw operators"].values():
        assert all(hasattr(tf.raw_ops, name) for name in names)
    assert set(raw_ops.__all__) <= set(page_ops.__all__)


@pytest.mark.parametrize("name", [name for name in sparse.__all__ if name != "SparseTensor"])
def test_arguments_of_sparse(name: str) -> None:
    """TensorFlow's come first, but for names; what they have in common has the same default."""
    ours, theirs = parameters(getattr(sparse, name)), parameters(getattr(tf.sparse, name))
    wanted = [key for key in theirs if key not in ("name", "output_type")]
    assert [key for key in ours if key in wanted] == wanted
