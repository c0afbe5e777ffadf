"""Shapes before running: what is inferred from half-known shapes must hold for the real ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from rowgrad._ops.gradients import apply_to_arrays
from rowgrad._ops.shapes import infer
from rowgrad.blocks.operators import OPERATORS


def blurred(shape: tuple[int, ...], data: st.DataObject) -> Any:
    """The shape with some sizes forgotten, some known by name only, and now and then nothing known at all."""
    if data.draw(st.integers(0, 9)) == 0:
        return None
    kinds = [data.draw(st.sampled_from(["int", "int", "name", "none"])) for _ in shape]
    return tuple({"int": size, "name": f"n{size}", "none": None}[kind]
                 for size, kind in zip(shape, kinds, strict=True))  # fmt: skip


def assert_compatible(inferred: Any, actual: tuple[int, ...]) -> None:
    """`inferred` says nothing that is not so; the name of a size tells it."""
    if inferred is None:
        return
    assert len(inferred) == len(actual)
    for size, real in zip(inferred, actual, strict=True):
        assert size is None or size in (real, f"n{real}")


def check_shapes(
    name: str, inputs: Mapping[str, Any], data: st.DataObject, attributes: Mapping[str, Any] | None = None
) -> None:
    """Exact where everything is known, and never wrong where sizes or values are not."""
    operator, settings = OPERATORS[name], dict(attributes or {})
    results = apply_to_arrays(operator, list(inputs.values()), settings)
    shapes = {pin: [x.shape for x in v] if isinstance(v, list) else np.shape(v) for pin, v in inputs.items()}
    exact = infer(operator, shapes, inputs, settings)
    for pin, result in results.items():
        assert exact[pin] == result.shape
    unclear = {pin: [blurred(s, data) for s in shape] if isinstance(inputs[pin], list) else blurred(shape, data)
               for pin, shape in shapes.items()}  # fmt: skip
    values = {pin: value for pin, value in inputs.items() if is_index(value) and data.draw(st.booleans())}
    for pin, shape in infer(operator, unclear, values, settings).items():
        assert_compatible(shape, results[pin].shape)


def is_index(value: Any) -> bool:
    """Whether an input holds whole numbers, whose values may be known before running."""
    return isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind == "i")
