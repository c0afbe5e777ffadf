"""Where a row of a gradient comes from: the rows of the inputs that went into it, told from what was computed.

`explained` tells of one element, entry by entry; `rowgrad.blocks.explain` does the work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rowgrad._runtime.dtypes import Array
from rowgrad.blocks import Page, Results, Wire, explain, uses
from rowgrad.blocks.results import DONE
from rowgrad.errors import RowgradError
from rowgrad_studio.documents import Document

MOST_ROWS = 1000
MOST_USES = 50

Arrays = dict[str, Array]
Rows = dict[str, Any]


def origins(page: Page, results: Results, id: str, pin: str, row: int) -> dict[str, list[int]]:
    """Input pin → the rows of it that went into row `row` of output `pin`; empty where that is not known."""
    block = page[id]
    rule = next((rule for end, rule in RULES.items() if _matches(block.op, end)), None)
    if rule is None or id not in results or results[id].status != DONE or row < 0:
        return {}
    arrays: Arrays = dict(results[id].outputs)
    literals = page.inferred(id).literals
    for name in (input.name for input in block.operator.inputs):
        source = block.inputs.get(name)
        if isinstance(source, Wire):
            if source.block not in results or results[source.block].status != DONE:
                return {}
            arrays[name] = results[source.block].outputs[source.pin]
        elif (name, 0) in literals:
            arrays[name] = np.asarray(literals[name, 0])
    try:
        found = rule(arrays, pin, row)
    except (IndexError, KeyError, ValueError):
        return {}  # the row is not there, or what is wired has changed since it was computed
    return {name: [int(place) for place in np.ravel(places)[:MOST_ROWS]] for name, places in found.items()}


def explained(document: Document, id: str, pin: str, index: list[int]) -> dict[str, Any]:
    """Why an element is what it is, and which elements of the page are made with it."""
    session = document.session
    if id in session.page.groups:  # a pin of a group is an output of one of its blocks
        wire = next((one.wire for one in session.page.pins(id).outputs if one.name == pin), None)
        id, pin = (wire.block, wire.pin) if wire is not None else (id, pin)
    found = explain(session, f"{id}:{pin}", index)
    try:
        used = [{"block": one.block, "pin": one.pin, "index": list(one.index)}
                for one in uses(session, f"{id}:{pin}", index, MOST_USES)]  # fmt: skip
    except RowgradError:  # too much to look through: the way back is told all the same
        used = []
    return {"explanation": found.to_dict(), "uses": used}


def _matches(op: str, pattern: str) -> bool:
    first, _, last = pattern.partition("*")
    return (
        op.startswith(first) and op[len(first) :].removeprefix("Sum").removeprefix("Mean").removeprefix("SqrtN") == last
    )


def _pooled(arrays: Arrays, pin: str, row: int) -> Rows:
    entries = np.flatnonzero(arrays["segment_ids"] == row)
    return {"indices": entries, "segment_ids": entries, "data": np.unique(arrays["indices"][entries])}


def _pooled_grad(arrays: Arrays, pin: str, row: int) -> Rows:
    entries = np.flatnonzero(arrays["indices"] == row)
    return {"indices": entries, "segment_ids": entries, "grad": np.unique(arrays["segment_ids"][entries])}


def _pooled_grad_v2(arrays: Arrays, pin: str, row: int) -> Rows:
    return _pooled_grad(arrays, pin, int(arrays["sorted_unique_indices"][row]))


def _filled_grad(arrays: Arrays, pin: str, row: int) -> Rows:
    places = arrays["reverse_index_map"]
    if pin == "d_values":
        return {"reverse_index_map": [row], "grad_values": [places[row]]}
    return {"grad_values": np.setdiff1d(np.arange(len(arrays["grad_values"])), places)}


def _sliced_grad(arrays: Arrays, pin: str, row: int) -> Rows:
    wanted = arrays["input_indices"][row] - arrays["input_start"]
    places = np.flatnonzero((arrays["output_indices"] == wanted).all(axis=1))
    return {"input_indices": [row], "output_indices": places, "backprop_val_grad": places}


# By operator; the star stands for Sum, Mean and SqrtN.
RULES: dict[str, Callable[[Arrays, str, int], Rows]] = {
    "SparseSegment*": _pooled,
    "SparseSegment*WithNumSegments": _pooled,
    "SparseSegment*Grad": _pooled_grad,
    "SparseSegment*GradV2": _pooled_grad_v2,
    "SparseFillEmptyRowsGrad": _filled_grad,
    "RaggedFillEmptyRowsGrad": _filled_grad,
    "SparseSliceGrad": _sliced_grad,
}
