"""The worked example of an operator as a page, as the reference shows it and `rowgrad studio --example` opens it."""

from typing import Any

import numpy as np

from rowgrad._ops import Operator
from rowgrad.blocks.operators import BLOCKS
from rowgrad.blocks.page import Page
from rowgrad.errors import InvalidArgumentError


def worked_example(operator: str, *, wired: bool = True) -> Page:
    """Return a small page with the worked example of an operator.

    Parameters
    ----------
    operator : str
        The name of an operator of the catalogue, or of a block that only pages have.
    wired : bool
        Whether the inputs are separate `Const` and `Variable` blocks; otherwise they are literals of the operator's
        block. Inputs that an operator updates are always variables.

    Returns
    -------
    Page
        A page with one block of the operator, named after it.

    Raises
    ------
    InvalidArgumentError
        The operator does not exist.

    Examples
    --------
    >>> from rowgrad.blocks import Session, worked_example
    >>> results = Session(worked_example("SparseSegmentMeanGrad")).run()
    >>> results["SparseSegmentMeanGrad"].output.shape
    (3, 3)
    """
    if operator not in BLOCKS:
        raise InvalidArgumentError(
            f"operator is {operator!r}; there is no such operator. `rowgrad ops` lists all.",
            code="unknown-operator",
            argument="operator",
            value=operator,
        )
    declared = BLOCKS[operator]
    page = Page(f"{operator}, worked example")
    given = {} if declared.role == "const" else _inputs(page, declared, wired)
    page.add(operator, **given, **declared.example.attributes)
    page.tidy()
    return page


def _inputs(page: Page, operator: Operator, wired: bool) -> dict[str, Any]:
    """The inputs of the example as the block takes them; those that are blocks are on the page."""
    given: dict[str, Any] = {}
    for pin in operator.inputs:
        if pin.name not in operator.example.inputs:
            continue
        value = operator.example.inputs[pin.name]
        items = list(value) if pin.many else [value]
        for position, item in enumerate(items):
            id = f"{pin.name}_{position}" if pin.many else pin.name
            first = operator.dtypes_of(pin)[0]
            typed: dict[str, Any] = {"dtype": first} if first in ("int64", "string") else {}
            if pin.mixed and np.array(item).dtype.kind == "U":
                typed = {"dtype": "string"}
            if pin.name in operator.updates:
                items[position] = page.add("Variable", id=id, initial_value=item)["ref"]
            elif wired:
                items[position] = page.add("Const", id=id, value=item, **typed)["output"]
            elif isinstance(item, str):
                items[position] = {"value": item}  # a lone text would be a wire
        given[pin.name] = items if pin.many else items[0]
    return given
