"""Pages for tests of exports: worked examples, values of every type, a model that trains, the pages of `examples`."""

from pathlib import Path

import numpy as np

from rowgrad._ops import Operator
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks import Page, worked_example
from rowgrad.blocks.operators import BLOCKS

FOLDER = Path(__file__).parent.parent / "examples" / "pages"
FILES = sorted(FOLDER.glob("*.page.json"))
RNG = np.random.default_rng(11)


def of_example(operator: Operator, *, wired: bool = False) -> Page:
    """The worked example of an operator: its inputs as literals or, `wired`, as constants; updates need variables."""
    return worked_example(operator.name, wired=wired)


def values(dtype: str) -> np.ndarray:
    """Six values of a type, with the odd ones that it has."""
    if dtype == "string":
        return np.array([["a", 'quo"te', "back\\slash"], ["", "ü€", "line\nbreak"]], object)
    if dtype == "bool":
        return np.array([[True, False, True], [False, False, True]])
    target = NUMPY[dtype]
    base = target[0] if target.names else target
    if base.kind in "iu":
        limits = np.iinfo(base)
        return np.array([[limits.min, 0, 1], [2, 3, limits.max]], base).view(target)
    odd = [[0.1, -0.0, np.inf], [-np.inf, np.nan, 1e-7]]
    if base.kind == "c":
        parts = np.array([odd, [[-0.0, 0.3, 1], [np.nan, np.inf, 5]]]).transpose(1, 2, 0)
        return np.ascontiguousarray(parts).view(np.complex128)[..., 0].astype(base)
    return np.array(odd).astype(base)


def of_values() -> Page:
    """A constant of every type, small ones and one that is too large to be spelled out."""
    page = Page('every "type"\\')
    for dtype in (*NUMPY, "string"):
        page.add("Const", id=f"a-{dtype}", value=values(dtype))
    page.add("Const", id="none", value=np.zeros((0, 3), np.float32))
    page.add("Const", id="one", value=np.array(7, np.int64))
    page.add("Const", id="row", value=RNG.standard_normal(100).astype(np.float32))
    page.add("Const", id="large", value=RNG.standard_normal((60, 20)))
    return page


def training() -> Page:
    """A page that trains: three kinds of updates, a placeholder, readers of variables, one before and one after."""
    page = Page("training")
    page.add("Placeholder", id="x", dtype="float32", shape=["batch", 3])
    page.add("Variable", id="w", initial_value=RNG.standard_normal((3, 2)).astype(np.float32))
    page.add("Variable", id="table", initial_value=RNG.standard_normal((5, 2)).astype(np.float32))
    page.add("Variable", id="accum", initial_value=np.full((5, 2), 0.1, np.float32))
    page.add("Variable", id="steps", initial_value={"value": 0, "dtype": "int64"})
    page.add("Square", id="w_squared", x="w:ref")
    page.add("Sub", id="decay", x="w_squared:y", y="w:ref")
    page.add("ApplyGradientDescent", id="descend", var="w:ref", alpha=0.1, delta="decay:z")
    page.add("Neg", id="after", x="descend:out")
    page.add("Add", id="one_more", x="steps:ref", y=1)
    page.add("Assign", id="count", ref="steps:ref", value="one_more:z")
    page.add("SparseSegmentSum", id="pooled", data="table:ref", indices=[0, 2, 4], segment_ids=[0, 0, 1])
    page.add("SparseSegmentSumGradV2", id="rows", grad="pooled:output", indices=[0, 2, 4], segment_ids=[0, 0, 1],
             dense_output_dim0=5)  # fmt: skip
    page.add("SparseApplyAdagrad", id="train", var="table:ref", accum="accum:ref", lr=0.5, grad="rows:output",
             indices="rows:sorted_unique_indices")  # fmt: skip
    page.add("Square", id="x_squared", x="x:output")
    return page


EXAMPLES = {name: op for name, op in BLOCKS.items() if op.role in ("operator", "const", "variable")}
