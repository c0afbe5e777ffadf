"""Blocks that only pages have: they hold data, let it in, and keep it. A session does their work.

Their pins and attributes are declared as those of operators, so that pages, palettes and reference pages treat all
blocks alike; `role` tells a session what each means.
"""

from typing import Any, NoReturn

from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.tensors_map import MAPS
from rowgrad._runtime.dtypes import PLAIN, QUANTISED
from rowgrad.blocks.operators.catalogue import declare

ANY = {"dtype": (*PLAIN, *QUANTISED), "T": (*PLAIN, *QUANTISED)}
EVERY = Attribute("every", 1, "Run in every n-th step of a loop; 1 is each step.", kind="int")
WHERE = "The path is inside the folder of the page."


def _no_function(*args: Any, **attributes: Any) -> NoReturn:
    raise TypeError("this block works only on a page")


def _by_attributes(shapes: Any, values: Any, attributes: Any) -> dict[str, Any]:
    """The shape of a placeholder; those of constants and files are known from what they hold."""
    return {"output": attributes.get("shape")}


def _declare(**fields: Any) -> None:
    declare(Operator(function=None, family="page", compute=_no_function, cost="None worth telling.", **fields))


_declare(
    name="Const",
    role="const",
    summary="A constant.",
    inputs=(),
    outputs=(Pin("output", "dtype", "[...]", "The constant."),),
    attributes=(
        Attribute("value", REQUIRED, 'A number, a text, or evenly nested lists of them; {"file": …} for a large one.',
                  kind="value"),
        Attribute("dtype", None, "Its type; else whole numbers are int32, others float32.", kind="dtype"),
    ),
    types=ANY,
    formula="output = value",
    errors=("PageError: the lists are nested unevenly", "DTypeError: the value cannot be of that type"),
    example=Example({}, {"output": [[1.0, 2.0], [3.0, 4.0]]}, attributes={"value": [[1, 2], [3, 4]],
                                                                         "dtype": "float32"}),
    shape_rule=_by_attributes,
)  # fmt: skip

_declare(
    name="Placeholder",
    role="placeholder",
    summary="A value that is fed to the session when it runs.",
    inputs=(),
    outputs=(Pin("output", "dtype", "[...]", "The fed value."),),
    attributes=(
        Attribute("dtype", REQUIRED, "The type of the fed value.", kind="dtype"),
        Attribute("shape", None, "Its shape; a name stands for a size that is not known yet, and is the same size "
                  "wherever it stands. Without a shape anything can be fed.", kind="shape"),
    ),
    types=ANY,
    formula="output = the value fed",
    errors=("PageError: nothing is fed, or it has another shape", "DTypeError: what is fed has another type"),
    example=Example({}, {"output": [1.0, 2.0, 3.0]}, attributes={"dtype": "float32", "shape": ["batch"]}),
    shape_rule=_by_attributes,
)  # fmt: skip

_declare(
    name="Variable",
    role="variable",
    summary="A value stored in the session, which update blocks change.",
    inputs=(Pin("initial_value", "T", "[...]", "The value at the start of a session."),),
    outputs=(Pin("ref", "T", "[...]", "The value at the start of a step."),),
    types={"T": PLAIN},
    formula="ref = initial_value, then the value after the last step",
    errors=("DTypeError: a type that is not listed",),
    example=Example({"initial_value": [0.5, 1.5]}, {"ref": [0.5, 1.5]}),
    notes="All blocks of a step see the value from before it; updates take effect at its end. In a GraphDef "
    "it is a VariableV2 whose initial value is assigned by the node `init`.",
)

_declare(
    name="File",
    role="file",
    summary="An array from a file: .npy, .npz, .csv or .parquet.",
    inputs=(),
    outputs=(Pin("output", "dtype", "[...]", "The array in the file."),),
    attributes=(
        Attribute("path", REQUIRED, f"The file. {WHERE}", kind="text"),
        Attribute("part", None, "The member of an .npz file or the column of a table, where there are several.",
                  kind="text"),
        Attribute("dtype", None, "Convert it to this type, if nothing but precision is lost.", kind="dtype"),
    ),
    types=ANY,
    formula="output = the array in the file",
    errors=("FileError: the file is missing, damaged, or outside the folder of the page",
            "DTypeError: it cannot be of that type"),
    example=Example({}, {"output": [1.0, 2.0]}, attributes={"path": "values.npy"}),
    shape_rule=_by_attributes,
    in_tensorflow=False,
)  # fmt: skip

_declare(
    name="Save",
    role="save",
    summary="Write arrays to an .npz file each time it runs.",
    inputs=(
        Pin("filename", "string", "[]", f"The file, replaced when the new one is complete. {WHERE}"),
        Pin("tensor_names", "string", "[N]", "A name for each array."),
        Pin("data", "T", "[...]", "The arrays.", many=True),
    ),
    outputs=(),
    attributes=(EVERY,),
    types={"T": PLAIN},
    formula="file[tensor_names[i]] = data[i]",
    errors=("FileError: the file cannot be written, or is outside the folder of the page",
            "PageError: there are not as many names as arrays, or a name twice",
            "DTypeError: a type that is not listed"),
    example=Example({"filename": "model.npz", "tensor_names": ["table"], "data": [[[0.5, 1.5]]]}, {}),
    notes="A variable is written with its value before the step; wire the update's output to write the new value. The "
    "arrays may be of different types.",
)  # fmt: skip

_declare(
    name="Restore",
    role="restore",
    summary="Read an array that Save has written.",
    inputs=(
        Pin("file_pattern", "string", "[]", f"The file. {WHERE}"),
        Pin("tensor_name", "string", "[]", "The name of the array."),
    ),
    outputs=(Pin("tensor", "dt", "[...]", "The array."),),
    attributes=(
        Attribute("dt", REQUIRED, "The type that it must have.", kind="dtype"),
        Attribute("shape", None, "The shape that it must have, as that of a Placeholder.", kind="shape"),
    ),
    types={"dt": PLAIN},
    formula="tensor = file[tensor_name]",
    errors=("FileError: the file or the array is missing, or outside the folder of the page",
            "DTypeError: the array has another type"),
    example=Example({"file_pattern": "model.npz", "tensor_name": "table"}, {"tensor": [[0.5, 1.5]]},
                    attributes={"dt": "float32"}),
    shape_rule=lambda shapes, values, attributes: {"tensor": attributes.get("shape")},
)  # fmt: skip

for _map in MAPS.values():
    declare(_map)
