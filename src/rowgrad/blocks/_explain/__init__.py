"""Why a number is what it is: the entries that made it, found from the arrays of one call.

`terms` has the trees, `orders` the orders of additions, and `segments`, `sparse` and `dense` one explainer for each
operator. `rowgrad.blocks.explaining` follows the chain over a page.
"""

from rowgrad.blocks._explain.calls import Call
from rowgrad.blocks._explain.dense import explain_dense
from rowgrad.blocks._explain.segments import SEGMENTS
from rowgrad.blocks._explain.sparse import SPARSE
from rowgrad.blocks._explain.terms import Term, rounded

EXPLAINERS = {**SEGMENTS, **SPARSE}


def explain_element(call: Call, pin: str, index: tuple[int, ...]) -> Term:
    """The tree of an element of a result; it is worked out to the same bits as the operator's."""
    term = EXPLAINERS.get(call.operator.name, explain_dense)(call, pin, index)
    dtype = call.outputs[pin].dtype
    return term if dtype.kind in "OSUT" else rounded(term, dtype)  # ids may come out wider than they went in


__all__ = ["EXPLAINERS", "Call", "Term", "explain_element"]
