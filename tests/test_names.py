"""What TensorFlow and enuSpace call their sparse operators, in `tests/data/names.json`, is all here."""

import json
from pathlib import Path
from typing import Any

import pytest

from rowgrad import blocks, raw_ops, sparse
from rowgrad.blocks.operators import BLOCKS

NAMES: dict[str, Any] = json.loads((Path(__file__).parent / "data/names.json").read_text())
# Steps of optimizers are operators of pages; the others are sparse ones.
ON_PAGES = ("optimizers", "losses")
# Operators that give lists are one block for each part.
PARTS = {"SparseSplit": "SparseSplitPart"}


@pytest.mark.parametrize("family", NAMES["raw operators"])
def test_raw_operators(family: str) -> None:
    listed = set(NAMES["raw operators"][family])
    assert listed <= set(blocks.raw_ops.__all__)
    assert family in ON_PAGES or listed <= set(raw_ops.__all__)


def test_names_of_tf_sparse() -> None:
    assert sorted(NAMES["names of tf.sparse"]) == sparse.__all__
    assert len(sparse.__all__) == 31


def test_blocks_of_enuspace() -> None:
    listed = NAMES["sparse_ops blocks of enuSpace for TensorFlow 1.5"]
    assert len({PARTS.get(name, name) for name in listed} & set(BLOCKS)) == 29
