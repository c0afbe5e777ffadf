"""How things look, as data: pins by type, blocks by family, and the inks of pictures. The studio uses the same table.

A type is told by shape as well as by colour: all floating-point types are circles, all integers squares, and so on.
"""

import math
from typing import NamedTuple


class Look(NamedTuple):
    """A pin and its wires: the shape and the colour."""

    shape: str
    colour: str


class Tint(NamedTuple):
    """A block: the colour of its header, and that of its frame."""

    header: str
    frame: str


UNKNOWN = Look("ring", "#77818c")
PINS: dict[str, Look] = {
    "float16": Look("circle", "#6ba3d6"),
    "bfloat16": Look("circle", "#5b8def"),
    "float32": Look("circle", "#2a6fbb"),
    "float64": Look("circle", "#1c4a86"),
    "int8": Look("square", "#7cb98f"),
    "int16": Look("square", "#5fa878"),
    "int32": Look("square", "#2f8a57"),
    "int64": Look("square", "#1f6642"),
    "uint8": Look("square", "#b3b14a"),
    "uint16": Look("square", "#9a982f"),
    "uint32": Look("square", "#83811f"),
    "uint64": Look("square", "#666413"),
    "complex64": Look("hexagon", "#9a6fc4"),
    "complex128": Look("hexagon", "#6f479c"),
    "bool": Look("diamond", "#b8497f"),
    "string": Look("triangle", "#b8720f"),
    "qint8": Look("cross", "#a98a6d"),
    "quint8": Look("cross", "#a98a6d"),
    "qint16": Look("cross", "#8d6f53"),
    "quint16": Look("cross", "#8d6f53"),
    "qint32": Look("cross", "#6f543b"),
}

# The outlines around the middle of a pin; circles and rings have a radius of 5.
POINTS: dict[str, list[tuple[float, float]]] = {
    "square": [(-4.6, -4.6), (4.6, -4.6), (4.6, 4.6), (-4.6, 4.6)],
    "diamond": [(0, -6.2), (6.2, 0), (0, 6.2), (-6.2, 0)],
    "triangle": [(-4.6, -5.6), (5.8, 0), (-4.6, 5.6)],
    "hexagon": [(5.8 * math.cos(math.pi / 3 * i), 5.8 * math.sin(math.pi / 3 * i)) for i in range(6)],
    "cross": [(-2, -5.4), (2, -5.4), (2, -2), (5.4, -2), (5.4, 2), (2, 2), (2, 5.4), (-2, 5.4), (-2, 2), (-5.4, 2),
              (-5.4, -2), (-2, -2)],
}  # fmt: skip

# Each family of operators has its entry here, so that a new one leaves the others as they are.
TINTS: dict[str, Tint] = {
    "sparse_segment": Tint("#d9e6f5", "#7f9dc0"),
    "sparse_segment_grad": Tint("#f7e0cb", "#c99a6b"),
    "weighted_sum": Tint("#d3ebe3", "#74aa98"),
    "segment_max": Tint("#e5dcf3", "#9d89bf"),
    "segments": Tint("#dbe9dc", "#86a98a"),
    "segments_grad": Tint("#f5e2d6", "#c39a83"),
    "serialize": Tint("#e8e8dc", "#a5a58c"),
    "ragged_counts": Tint("#e6ece0", "#9aab8c"),
    "ragged_gather": Tint("#dcebea", "#86aaa8"),
    "reorder": Tint("#e9e4f0", "#a396b8"),
    "sparse_reduce": Tint("#e2eaf3", "#8fa6c2"),
    "sparse_merge": Tint("#f3ead7", "#bfa77a"),
    "sparse_cwise": Tint("#f0e6ea", "#b8929f"),
    "sparse_softmax": Tint("#e0efee", "#86b3b0"),
    "sparse_counts": Tint("#eceae0", "#a8a488"),
    "sparse_join": Tint("#e6f0e0", "#9bb58c"),
    "hashing": Tint("#e3ecd9", "#97ab7f"),
    "cross": Tint("#f0e6d2", "#b8a376"),
    "ragged": Tint("#d9e6e6", "#84a8a8"),
    "offsets": Tint("#efe9c8", "#b3a567"),
    "fill_empty_rows": Tint("#f4d9dd", "#c18c95"),
    "sparse_slice": Tint("#d6eaf0", "#7ba9b8"),
    "elementwise": Tint("#e2ecd2", "#98b172"),
    "shaping": Tint("#ecdfd6", "#b0937f"),
    "joining": Tint("#dcdff6", "#8f97cc"),
    "gathering": Tint("#f2dcec", "#bb8fae"),
    "reductions": Tint("#d9e6f5", "#7f9dc0"),
    "choosing": Tint("#e4efd8", "#9cb383"),
    "random": Tint("#eadff0", "#ab94ba"),
    "losses": Tint("#f7e0cb", "#c99a6b"),
    "sparse_dense": Tint("#d3ebe3", "#74aa98"),
    "updates": Tint("#e5dcf3", "#9d89bf"),
    "page": Tint("#e6e9ec", "#9aa4ad"),
}

INK, DIM, FAINT = "#1f2933", "#525e69", "#d5dbe1"
PAPER, CARD, BOX = "#ffffff", "#fdfdfe", "#eef1f4"
ERROR = "#b42318"
NOTE, NOTE_FRAME = "#fff8d6", "#e0d08a"
STALE = "#7a5200"
ODD = "#9aa3ac"  # cells of heat-maps that hold no number

# Heat-maps: from below zero over zero to above, told apart by colour-blind readers too.
BELOW = ((8, 48, 107), (33, 113, 181), (107, 174, 214), (198, 219, 239))
ZERO = (247, 247, 247)
ABOVE = ((253, 208, 162), (253, 141, 60), (217, 72, 1), (127, 39, 4))


def pin_look(dtype: str | None) -> Look:
    """The look of pins and wires of `dtype`; None is a type that is not known yet."""
    return PINS.get(dtype or "", UNKNOWN)


def tint(family: str) -> Tint:
    """The look of blocks of `family`."""
    if family not in TINTS:
        raise LookupError(f"the family {family!r} has no colour. Add it to TINTS in rowgrad/blocks/looks.py.")
    return TINTS[family]
