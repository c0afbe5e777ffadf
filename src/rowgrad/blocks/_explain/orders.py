"""The orders in which operators add up, as in `docs/exactness.md`: each makes a tree of terms.

They are stated a second time here, because there is nothing to derive them from: kernels add vectors in loops that are
written out for speed, and have no tree; the plain loops of the tests are not part of the package, and must not share
code with what they check. The tests evaluate these trees for every operator, and ask for the bits of the plain loops.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np

from rowgrad.blocks._explain.terms import Term, add_up, combine, number

START = "start"  # the text of the number that a sum begins with


def pooled(terms: Sequence[Term], dtype: Any, kind: str) -> Term:
    """A segment of a pooled look-up: a head from left to right, then blocks of eight."""
    n = len(terms)
    if n == 1:
        return terms[0]
    first = {0: 8, 1: 9}.get(n % 8, n % 8)
    blocks = [add_up(terms[start : start + 8], dtype) for start in range(first, n, 8)]
    total = add_up([*terms[:first], *blocks], dtype)
    if kind == "sum":
        return total
    divisor = float(n) if kind == "mean" else sqrt(n)
    name = str(n) if kind == "mean" else f"√{n}"
    if n < 10:
        with np.errstate(all="ignore"):
            reciprocal = np.asarray(1).astype(dtype) / np.asarray(divisor).astype(dtype)
        return combine("product", [total, number(reciprocal, dtype, f"1/{name}")], dtype)
    return combine("quotient", [total, number(divisor, dtype, name)], dtype)


def packed(terms: Sequence[Term], dtype: Any, kind: str, start: Term, rule: str = "") -> Term:
    """Four totals of every fourth term, then one: long segments of rows that fill whole vectors."""
    whole = len(terms) // 4 * 4
    totals = [together(kind, terms[lane:whole:4], dtype, start, rule) for lane in range(4)]
    return combine(kind, [*totals, *terms[whole:]], dtype, rule=rule)


def eigen(terms: Sequence[Term], dtype: Any, packet: int, first: int = 0) -> Term:
    """Eigen's sum: packets in four totals; what is longer than 1024 packets is cut in two."""
    if len(terms) <= packet * 1024:
        return eigen_leaf(terms, dtype, packet, "sum", number(0, dtype, START))
    cut = ceil((first + ceil(len(terms) / 2)) / packet) * packet - first
    halves = [eigen(terms[:cut], dtype, packet, first), eigen(terms[cut:], dtype, packet, first + cut)]
    return combine("sum", halves, dtype)


def eigen_leaf(
    terms: Sequence[Term], dtype: Any, packet: int, kind: str, start: Term, rule: str = "", rest_rule: str = ""
) -> Term:
    """Four totals of packets, then one; the terms left over have their own, and come first."""
    n = len(terms)
    whole, quads = n // packet * packet, n // (4 * packet) * 4 * packet
    total = []
    for lane in range(packet):
        four = [together(kind, terms[turn * packet + lane : quads : 4 * packet], dtype, start, rule)
                for turn in range(4 if quads else 1)]  # fmt: skip
        total.append(together(kind, [*four, *terms[quads + lane : whole : packet]], dtype, None, rule))
    while len(total) > 1:
        half = len(total) // 2
        total = [together(kind, pair, dtype, None, rule) for pair in zip(total[:half], total[half:], strict=True)]
    rest = together(kind, terms[whole:], dtype, start, rest_rule or rule)
    return together(kind, [rest, total[0]], dtype, None, rule)


def together(kind: str, terms: Sequence[Term], dtype: Any, start: Term | None, rule: str = "") -> Term:
    """Terms one after the other, from `start` on; zeros that sums start with are left out where no bit shows them."""
    if kind != "sum":
        return combine(kind, [start, *terms] if start is not None else terms, dtype, rule=rule)
    kept = [term for term in terms if term.text != START]
    begins = start is not None or (bool(terms) and terms[0].text == START)
    if not kept:
        return number(0, dtype, START)
    ends = len(kept) < len(terms) and terms[-1].text == START  # −0 + 0 is +0
    if len(kept) == 1 and not begins and not (ends and bool(np.any(kept[0].value == 0))):
        return kept[0]
    return combine("sum", kept, dtype, from_zero=begins or ends)


def lanes(products: Sequence[Term], dtype: Any) -> Term:
    """The sum of a dot product: 64 bytes side by side, halved until one is left, and the rest behind."""
    width = 64 // np.dtype(dtype).itemsize
    whole = len(products) - len(products) % width
    start = number(0, dtype, START)
    sums = [together("sum", products[lane:whole:width], dtype, start) for lane in range(width)]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [together("sum", pair, dtype, None) for pair in zip(sums[:half], sums[half:], strict=True)]
    return together("sum", [sums[0], together("sum", products[whole:], dtype, start)], dtype, None)
