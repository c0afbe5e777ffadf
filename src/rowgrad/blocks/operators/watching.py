"""Blocks that watch: CheckNumerics and Assert stop a run that has gone wrong, Print tells values while it runs.

A session does the work of Print and Assert, as that of the blocks that hold data.
"""

from typing import Any

import numpy as np

from rowgrad._ops.broadcasting import copied, first_true
from rowgrad._ops.catalogue import REQUIRED, Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import FLOATS, IDS, PLAIN, Array
from rowgrad.blocks._random import permutation
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.elementwise import TOO_LARGE, WRONG_TYPE, wide
from rowgrad.blocks.operators.page import EVERY, _no_function
from rowgrad.errors import InvalidArgumentError


def _check_numerics(tensor: Array, *, message: str) -> Array:
    is_finite = np.isfinite(wide(tensor))
    if not is_finite.all():
        position = first_true(~is_finite)
        value = float(tensor.reshape(-1)[int((~is_finite).reshape(-1).argmax())])
        where = "" if position is None else f" at {position}"
        raise InvalidArgumentError(f"{message + ': ' if message else ''}tensor has {value}{where}, and "
                                   f"{int((~is_finite).sum())} elements that are not finite in all.",
                                   code="not-finite", argument="tensor", position=position, value=value)  # fmt: skip
    return copied(tensor)


def _shuffle(value: Array, seed: Array) -> Array:
    if seed.shape != (2,):
        raise InvalidArgumentError(f"seed has shape {list(seed.shape)}; it must be two whole numbers.",
                                   code="wrong-shape", argument="seed", value=seed.shape)  # fmt: skip
    if value.ndim == 0:
        return copied(value)
    first, second = (int(number) & (2**64 - 1) for number in seed.tolist())
    return copied(value[permutation(len(value), first, second)])


declare(Operator(
    name="CheckNumerics",
    function=None,
    family="choosing",
    summary="The same values; an error if one of them is NaN or infinite.",
    inputs=(Pin("tensor", "T", "[...]", "Any shape."),),
    outputs=(Pin("output", "T", "[...]", "The same."),),
    types={"T": FLOATS},
    formula="output = tensor",
    errors=("InvalidArgumentError: an element is not finite", WRONG_TYPE, TOO_LARGE),
    cost="O(elements).",
    example=Example({"tensor": [1.0, 2.0]}, {"output": [1.0, 2.0]}, attributes={"message": "the loss"}),
    compute=_check_numerics,
    attributes=(Attribute("message", REQUIRED, "The beginning of the error.", kind="text"),),
    gradient={"tensor": lambda op, d_output, message: op.CheckNumerics(d_output, message=message)},
    notes="The gradient is checked too.",
))  # fmt: skip
declare(Operator(
    name="RandomShuffle",
    raw_name="SeededShuffle",
    function=None,
    family="random",
    summary="Shuffle the rows of an array, with a seed.",
    inputs=(
        Pin("value", "T", "[...]", "The rows."),
        Pin("seed", "Tseed", "[2]", "The seed: two integers."),
    ),
    outputs=(Pin("output", "T", "[...]", "The rows in the new order."),),
    types={"T": PLAIN, "Tseed": IDS},
    formula="output = value in an order that seed decides",
    errors=("InvalidArgumentError: seed is not two numbers", WRONG_TYPE, TOO_LARGE),
    cost="O(elements + rows · log(rows)).",
    example=Example({"value": [1.0, 2.0, 3.0, 4.0], "seed": [1, 2]}, {"output": [3.0, 2.0, 4.0, 1.0]}),
    compute=_shuffle,
    shape_rule=lambda shapes, _, __: {"output": shapes.get("value")},
    in_tensorflow=False,
    notes="The same seed always gives the same order. TensorFlow's RandomShuffle gives another order.",
))  # fmt: skip
for _name, _number in (("Zeros", 0), ("Ones", 1)):

    def _filled(shape: Array, *, dtype: str = "float32", number: int = _number) -> Array:
        from rowgrad._runtime import dtypes
        from rowgrad.blocks.operators import BLOCKS

        filled: Array = BLOCKS["Fill"].compute(shape, np.asarray(number).astype(dtypes.NUMPY[dtype]))
        return filled

    def _filled_shape(shapes: Any, values: Any, _: Any) -> Any:
        from rowgrad._ops.broadcasting import sizes

        return {"output": sizes("shape", shapes, values)}

    declare(Operator(
        name=_name,
        function=None,
        family="choosing",
        summary=f"An array of {_name.lower()}.",
        inputs=(Pin("shape", "Tshape", "[rank]", "Its shape."),),
        outputs=(Pin("output", "dtype", "[...]", f"{_name}, everywhere."),),
        types={"Tshape": IDS, "dtype": tuple(name for name in PLAIN if name != "string")},
        formula=f"output[…] = {_number}",
        errors=("InvalidArgumentError: shape is not a vector or has a negative size", WRONG_TYPE, TOO_LARGE),
        cost="O(elements of the result).",
        example=Example({"shape": [2]}, {"output": [float(_number)] * 2}),
        compute=_filled,
        attributes=(Attribute("dtype", "float32", "The type of the result.", kind="dtype"),),
        shape_rule=_filled_shape,
        in_tensorflow=False,
        notes="In TensorFlow it is a function that calls Fill; use Fill in pages that become graphs.",
    ))  # fmt: skip
declare(Operator(
    name="Print",
    function=None,
    family="page",
    role="print",
    compute=_no_function,
    summary="The same value; prints values while a page runs.",
    inputs=(
        Pin("input", "T", "[...]", "The value to pass on."),
        Pin("data", "U", "[...]", "The values to print.", many=True, mixed=True),
    ),
    outputs=(Pin("output", "T", "[...]", "The input."),),
    attributes=(Attribute("message", "", "The beginning of the line.", kind="text"), EVERY),
    types={"T": PLAIN, "U": PLAIN},
    formula="output = input",
    errors=(WRONG_TYPE,),
    cost="O(elements).",
    example=Example({"input": [1.0, 2.0], "data": [[1.0, 2.0]]}, {"output": [1.0, 2.0]},
                    attributes={"message": "x = "}),
    gradient={"input": lambda op, d_output: d_output},
    notes="Lines are in Session.printed, and `rowgrad run` shows them. What has not changed since is not told again. "
    "In a GraphDef it tells them in every step.",
))  # fmt: skip
declare(Operator(
    name="Assert",
    function=None,
    family="page",
    role="assert",
    compute=_no_function,
    summary="Fail if a condition is false, and print values.",
    inputs=(
        Pin("condition", "bool", "[]", "The condition."),
        Pin("data", "T", "[...]", "The values that the error shows.", many=True, mixed=True),
    ),
    outputs=(),
    types={"T": PLAIN},
    formula="an error unless condition",
    errors=("PageError: the condition is false", WRONG_TYPE),
    cost="O(elements).",
    example=Example({"condition": True, "data": [[1.0, 2.0]]}, {}),
    notes="All other blocks still run; a loop ends.",
))  # fmt: skip
