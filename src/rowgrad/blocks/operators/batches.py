"""Batches: the examples of a file or of arrays, a batch for each step. Its output pins are its columns."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import PLAIN
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.page import WHERE, _no_function

NAME = "Batches"

_GENERAL = declare(Operator(
    name=NAME,
    function=None,
    family="page",
    role="batches",
    compute=_no_function,
    summary="Examples in batches: each step of a loop gets the next one.",
    inputs=(Pin("data", "T", "[N, ...]", "Arrays, instead of a file: one for each column, after a ragged one its row "
                "splits.", many=True, mixed=True),),
    outputs=(Pin("rows", "int64", "[batch]", "The numbers of the examples in this batch."),),
    attributes=(
        Attribute("columns", REQUIRED, "The columns; each is an output pin.", kind="list"),
        Attribute("path", None, f"The file: .npy, .npz, .csv, .parquet, .arrow or .feather. {WHERE}", kind="text"),
        Attribute("batch_size", 32, "How many examples a batch has.", kind="int"),
        Attribute("shuffle", True, "Whether to shuffle each epoch differently."),
        Attribute("seed", 0, "The random seed of the order and of the held-out examples.", kind="int"),
        Attribute("epochs", None, "The number of epochs after which a loop ends; by default never.", kind="int"),
        Attribute("remainder", "keep", "keep: the last batch of an epoch may be smaller; drop: it is left out.",
                  kind="text"),
        Attribute("ragged", None, "The ragged columns, with rows of different lengths; each has two more output "
                  "pins, for row splits and for segment ids.", kind="list"),
        Attribute("holdout", 0.0, "The share of the examples held out for Session.evaluate.", kind="float"),
        Attribute("splits", None, "Further splits for Session.evaluate, each with its share of the examples: "
                  "validation=0.1.", kind="list"),
        Attribute("split_by", None, "One of the columns, which names the split of each example; those called train are "
                  "trained with.", kind="text"),
    ),
    types={"T": PLAIN},
    formula="rows = the examples of this step's batch\ncolumn = its entries at rows",
    errors=("FileError: the file or a column is missing, damaged, or outside the folder of the page",
            "PageError: columns of different lengths, or too few examples for a batch"),
    cost="O(size of the batch), and O(N log N) once an epoch if shuffled.",
    example=Example({"data": [[[1.0, 2.0], [3.0, 4.0]]]}, {"rows": [0, 1]},
                    attributes={"columns": ["x"], "batch_size": 2, "shuffle": False}),
    in_tensorflow=False,
    notes="The batch of a step follows from its number, the settings and the seed alone. A ragged column is one of "
    "lists in Parquet and Arrow files, of numbers separated by spaces in CSV files, and the members column and "
    "column_splits in .npz files.",
))  # fmt: skip


def declared(attributes: Mapping[str, Any]) -> Operator:
    """The declaration of a block with these attributes: its columns are output pins; with a file it has no inputs."""
    columns, ragged = attributes.get("columns") or (), attributes.get("ragged") or ()
    return _declared(tuple(map(str, columns)), tuple(map(str, ragged)), attributes.get("path") is not None)


@lru_cache(1000)
def _declared(columns: tuple[str, ...], ragged: tuple[str, ...], has_path: bool) -> Operator:
    outputs = []
    for name in columns:
        outputs.append(Pin(name, f"T_{name}", "[...]", "The column's entries of this batch."))
        if name in ragged:
            outputs.append(Pin(f"{name}_splits", "int64", "[...]", "Where the rows of the column begin and end."))
            outputs.append(Pin(f"{name}_segments", "int64", "[...]", "The row of each value."))
    return replace(
        _GENERAL, inputs=() if has_path else _GENERAL.inputs, outputs=(*outputs, *_GENERAL.outputs),
        types={**_GENERAL.types, **{f"T_{name}": PLAIN for name in columns}},
    )  # fmt: skip
