"""Pages for the tests of pictures, and what can be read off a picture."""

from xml.etree import ElementTree

import numpy as np

from rowgrad.blocks import Page

SVG = "{http://www.w3.org/2000/svg}"


def pooled_mean() -> Page:
    """A constant and one gradient operator with literals."""
    page = Page("pooled mean")
    page.add("Const", id="grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32")
    page.add("SparseSegmentMeanGrad", grad="grad:output", indices=[0, 1, 2], segment_ids=[2, 2, 2], output_dim0=3)
    return page


def five_gradients() -> Page:
    """The five gradient operators, with wires and literals."""
    page = Page("five gradients")
    page.add("Const", id="grad", value=[[1, 2, 3], [4, 4, 2], [3, 1, 5]], dtype="float32")
    page.add("Const", id="indices", value=[0, 1, 2, 1], dtype="int32")
    page.add("Const", id="segment_ids", value=[0, 0, 1, 2], dtype="int32")
    wired = {"grad": "grad", "indices": "indices", "segment_ids": "segment_ids"}
    page.add("SparseSegmentSqrtNGrad", **wired, output_dim0=4)
    page.add("SparseSegmentMeanGrad", **wired, output_dim0=4)
    page.add("SparseSegmentMeanGradV2", **wired, dense_output_dim0=4)
    page.add("SparseFillEmptyRowsGrad", reverse_index_map=[0, 2, 3], grad_values=[1.5, 2.5, 3.5, 4.5])
    page.add("SparseSliceGrad", backprop_val_grad=[1.0, 2.0], input_indices=[[0, 0], [1, 2], [2, 1]],
             input_start=[1, 1], output_indices=[[0, 1], [1, 0]])  # fmt: skip
    page.tidy()
    return page


def forward_and_backward() -> Page:
    """A small model and its gradients."""
    page = Page("model")
    page.add("Variable", id="table", initial_value=np.arange(30, dtype=np.float32).reshape(10, 3) / 7)
    page.add("SparseSegmentMean", id="pooled", data="table", indices=[0, 3, 5, 9], segment_ids=[0, 0, 1, 2])
    page.add("Sigmoid", id="score", x="pooled")
    page.add("SquaredDifference", id="error", x="score", y=0.5)
    page.tidy()
    page.open(page.add_gradients("error", ["table"]).group)
    return page


def random_page(seed: int, blocks: int = 40, *, scattered: bool = False) -> Page:
    """Sums of sums; tidy, or with blocks anywhere, also on each other."""
    random = np.random.default_rng(seed)
    page, ids = Page(f"random {seed}"), []
    for number in range(blocks):
        at = tuple(float(n) for n in random.integers(-300, 900, 2)) if scattered else None
        if number < 4 or random.random() < 0.1:
            shape = tuple(random.integers(0, 12, random.integers(0, 4)))
            block = page.add("Const", value=random.normal(size=shape), at=at)
        elif random.random() < 0.2:
            block = page.add("Shape", input=str(random.choice(ids)), at=at)
        else:
            block = page.add("Neg", x=str(random.choice(ids)), at=at)
        ids.append(block.id)
    if not scattered:
        page.tidy()
    return page


def parsed(picture: str) -> ElementTree.Element:
    """The tree of a picture that has been drawn here; it must be well-formed."""
    return ElementTree.fromstring(picture)


def texts(tree: ElementTree.Element) -> list[str]:
    """All lines of text in a picture."""
    return ["".join(element.itertext()) for element in tree.iter(f"{SVG}text")]


def titles(tree: ElementTree.Element, kind: str) -> list[str]:
    """The titles of all elements of a class."""
    found = [element for element in tree.iter() if kind in element.get("class", "").split()]
    return [element.findtext(f"{SVG}title", "") for element in found]
