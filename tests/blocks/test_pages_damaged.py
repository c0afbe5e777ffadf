"""Page files that were damaged at random are read or refused: nothing but rowgrad's own errors comes out."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from damage import damaged
from example_pages import FILES
from rowgrad.blocks import Page
from rowgrad.errors import RowgradError

TIMES = 150
VALUES = (
    None, True, -1, 2**70, 1.5, "", "x", "float32", "c", "i4,i4", [], [[]], [1, [2]], ["n"], [-1], {}, {"value": 1},
    {"value": "a", "dtype": "i4,i4"}, {"value": [], "dtype": "float32", "shape": [0]}, {"file": "d.npy"},
    {"file": "../x"}, {"value": ["1_0j"], "dtype": "complex64"}, {"value": [300], "dtype": "qint8"}, "\ud800",
)  # fmt: skip


def small(folder: Path) -> Page:
    """A page with a bit of everything that page files can hold."""
    np.save(folder / "d.npy", np.arange(6.0).reshape(2, 3))
    page = Page("small", folder=folder)
    page.add("Const", "c", value=[[1.0, 2.0], [3.0, 4.0]], dtype="float32")
    page.add("Const", "t", value=["a", "é"])
    page.add("Const", "e", value={"value": [], "dtype": "int32", "shape": [0, 3]})
    page.add("File", "f", path="d.npy", dtype="float32")
    page.add("Placeholder", "p", dtype="string", shape=["n", 2])
    page.add("Cast", "i", x="c", DstT="int32")
    page.add("ReduceSum", "r", input="c", axis=[0], keep_dims=True)
    page.add("Add", "a", x={"value": ["NaN", 1], "dtype": "float64"}, y={"value": [1, 2], "dtype": "float64"})
    page.add("Concat", "k", values=["c", "c"], axis=0)
    page.note("hello", (1, 2))
    return page


def replaced(random: Random, record: Any) -> bytes:
    """The JSON of `record` with another value somewhere."""
    found, parent, key = record, record, None
    while isinstance(found, dict | list) and found and (key is None or random.randrange(10)):
        parent, key = found, random.choice(list(found) if isinstance(found, dict) else range(len(found)))
        found = parent[key]
    parent[key] = random.choice(VALUES)
    return json.dumps(record).encode()


def read_or_refuse(folder: Path, data: bytes) -> bool:
    (folder / "x.page.json").write_bytes(data)
    try:
        page = Page.load(folder / "x.page.json")
        page.problems()
        page.to_json().encode()
    except RowgradError as error:
        str(error).encode()
        return False
    return True


@pytest.mark.parametrize("make", [small, lambda folder: Page.load(FILES[0])], ids=["small", FILES[0].name])
def test_damaged_pages_are_read_or_refused(tmp_path: Path, make: Any) -> None:
    random, whole = Random("pages"), make(tmp_path).to_json().encode()
    assert read_or_refuse(tmp_path, whole)
    for _ in range(TIMES):
        read_or_refuse(tmp_path, damaged(random, whole))
    assert sum(read_or_refuse(tmp_path, replaced(random, json.loads(whole))) for _ in range(TIMES))


@pytest.mark.parametrize(
    "dtype", [{}, {"x": "a"}, {"x": [1]}, {"x": ["i4", -1]}, {"names": 5}, [], [[]], [["x", "i1"]], 5]
)
def test_types_are_names(dtype: Any) -> None:
    with pytest.raises(RowgradError, match=r"DstT is .*; allowed: "):
        Page().add("Cast", x=[1.0], DstT=dtype)
