"""TensorFlow's optimizers beside its own: operators on pages, and the classes that change tables, to the bit.

TensorFlow takes the reciprocal roots of vectors from the processor's approximation, and its powers depend on the length
of a row and on the library of the machine; where it uses them, results are compared to a few units in the last place.
"""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rowgrad import optim
from rowgrad._ops.results import RowGradient
from rowgrad.blocks import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

FTRL = {"lr": 0.3, "l1": 0.4, "l2": 0.2, "lr_power": -0.5}
RMSPROP = {"lr": 0.3, "rho": 0.9, "momentum": 0.8, "epsilon": 1e-3}
SLOTS = {
    "Ftrl": ("accum", "linear"), "FtrlV2": ("accum", "linear"), "Momentum": ("accum",), "RMSProp": ("ms", "mom"),
    "CenteredRMSProp": ("mg", "ms", "mom"), "Adadelta": ("accum", "accum_update"), "AdagradV2": ("accum",),
    "AdagradDA": ("gradient_accumulator", "gradient_squared_accumulator"), "ProximalAdagrad": ("accum",),
    "ProximalGradientDescent": (),
}  # fmt: skip
CASES: list[tuple[str, dict[str, float], dict[str, bool]]] = [
    ("Ftrl", FTRL, {}),
    ("Ftrl", FTRL | {"l1": 0.0, "l2": 0.0}, {}),
    ("Ftrl", FTRL, {"multiply_linear_by_lr": True}),
    ("Ftrl", FTRL | {"lr_power": -0.3}, {}),
    ("Ftrl", FTRL | {"lr_power": 0.0}, {}),
    ("FtrlV2", FTRL | {"l2_shrinkage": 0.1}, {}),
    ("FtrlV2", FTRL | {"l2_shrinkage": 0.0}, {}),
    ("FtrlV2", FTRL | {"l2_shrinkage": 0.1}, {"multiply_linear_by_lr": True}),
    ("Momentum", {"lr": 0.3, "momentum": 0.9}, {}),
    ("Momentum", {"lr": 0.3, "momentum": 0.9}, {"use_nesterov": True}),
    ("RMSProp", RMSPROP, {}),
    ("RMSProp", RMSPROP | {"momentum": 0.0}, {}),
    ("CenteredRMSProp", RMSPROP | {"epsilon": 5.0}, {}),
    ("CenteredRMSProp", RMSPROP | {"epsilon": 5.0, "momentum": 0.0}, {}),
    ("Adadelta", {"lr": 0.3, "rho": 0.9, "epsilon": 1e-3}, {}),
    ("AdagradV2", {"lr": 0.3, "epsilon": 1e-3}, {}),
    ("AdagradV2", {"lr": 0.3, "epsilon": 1e-3}, {"update_slots": False}),
    ("AdagradDA", {"lr": 0.3, "l1": 0.1, "l2": 0.2, "global_step": 3}, {}),
    ("AdagradDA", {"lr": 0.3, "l1": 0.0, "l2": 0.2, "global_step": 1}, {}),
    ("ProximalAdagrad", {"lr": 0.3, "l1": 0.1, "l2": 0.2}, {}),
    ("ProximalAdagrad", {"lr": 0.3, "l1": 0.0, "l2": 0.2}, {}),
    ("ProximalGradientDescent", {"alpha": 0.3, "l1": 0.1, "l2": 0.2}, {}),
    ("ProximalGradientDescent", {"alpha": 0.3, "l1": 0.0, "l2": 0.2}, {}),
]
BY_CASE = pytest.mark.parametrize("name, scalars, attributes", CASES, ids=str)
# Reciprocal roots of vectors, in TensorFlow's operators for rows and for whole variables.
APPROXIMATE = {
    True: ("RMSProp", "CenteredRMSProp", "Adadelta", "ProximalAdagrad"),
    False: ("Adadelta", "ProximalAdagrad"),
}
WITHOUT_HALF = ("AdagradDA", "ProximalAdagrad", "ProximalGradientDescent")
DTYPES = {"float32": np.float32, "float64": np.float64}
ONE_VECTOR = 4  # elements that TensorFlow does not compute in vectors, of any type


def drawn(name: str, shape: tuple[int, ...], dtype: Any, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    signed = ("var", "linear", "mom", "mg", "gradient_accumulator")
    return {
        slot: (rng.standard_normal(shape) if slot in signed else rng.uniform(0.5, 2, shape)).astype(dtype)
        for slot in ("var", *SLOTS[name])
    }


def asked(name: str, arrays: dict[str, Any], scalars: dict[str, float], dtype: Any, **others: Any) -> list[np.ndarray]:
    """What TensorFlow makes of the states."""
    variables = {slot: tf.Variable(array) for slot, array in arrays.items()}
    rows = "indices" in others
    if name == "ProximalGradientDescent" and not rows:
        others["delta"] = others.pop("grad")
    given = {key: np.int64(value) if key == "global_step" else dtype(value) for key, value in scalars.items()}
    operator = getattr(tf.raw_ops, f"Resource{'Sparse' if rows else ''}Apply{name}")
    operator(**{slot: variable.handle for slot, variable in variables.items()}, **given, **others)
    return [variable.numpy() for variable in variables.values()]


def ours(name: str, arrays: dict[str, Any], scalars: dict[str, float], dtype: Any, **others: Any) -> tuple[Any, ...]:
    rows = "indices" in others
    if name == "ProximalGradientDescent" and not rows:
        others["delta"] = others.pop("grad")
    given = {key: np.int64(value) if key == "global_step" else dtype(value) for key, value in scalars.items()}
    result = getattr(raw_ops, f"{'Sparse' if rows else ''}Apply{name}")(**arrays, **given, **others)
    return result if isinstance(result, tuple) else (result,)


def compare(found: Any, expected: Any, *, exact: bool) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if exact:
            np.testing.assert_array_equal(one.view(f"i{one.itemsize}"), other.view(f"i{one.itemsize}"))
        else:
            tolerance = 1e-5 if one.dtype == np.float32 else 1e-13
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 10)


def is_exact(name: str, scalars: dict[str, float], size: int, *, rows: bool) -> bool:
    power = scalars.get("lr_power", -0.5) in (-0.5, 0.0)
    return power and (name not in APPROXIMATE[rows] or size < ONE_VECTOR)


@BY_CASE
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (6, 2, 9), (6, 64)], ids=str)
@pytest.mark.parametrize("indices", [[], [3, 0], [1, 1, 4, 1, 0]], ids=str)
def test_rows(name: str, scalars: Any, attributes: Any, dtype: str, shape: tuple[int, ...], indices: list[int]) -> None:
    kind, ids = DTYPES[dtype], np.array(indices, np.int32 if len(shape) == 2 else np.int64)
    arrays = drawn(name, shape, kind, len(indices))
    grad = np.random.default_rng(7).standard_normal((ids.size, *shape[1:])).astype(kind)
    others = {"grad": grad, "indices": ids, **attributes}
    exact = is_exact(name, scalars, int(np.prod(shape[1:])), rows=True)
    compare(ours(name, arrays, scalars, kind, **others), asked(name, arrays, scalars, kind, **others), exact=exact)


@BY_CASE
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3,), (33, 7)], ids=str)
def test_whole_variables(name: str, scalars: Any, attributes: Any, dtype: str, shape: tuple[int, ...]) -> None:
    kind = DTYPES[dtype]
    arrays = drawn(name, shape, kind, len(shape))
    others = {"grad": np.random.default_rng(7).standard_normal(shape).astype(kind), **attributes}
    exact = is_exact(name, scalars, int(np.prod(shape)), rows=False)
    compare(ours(name, arrays, scalars, kind, **others), asked(name, arrays, scalars, kind, **others), exact=exact)


# Those that TensorFlow has a kernel for.
HALF_CASES = [
    (*case, dtype)
    for case in CASES
    for dtype in (np.float16, ml_dtypes.bfloat16)
    if case[0] not in WITHOUT_HALF and (dtype is np.float16 or "RMSProp" not in case[0])
]


@pytest.mark.parametrize("name, scalars, attributes, dtype", HALF_CASES, ids=str)
def test_half_types(name: str, scalars: Any, attributes: Any, dtype: Any) -> None:
    """TensorFlow rounds after every operation, rowgrad once."""
    arrays, ids = drawn(name, (6, 3), dtype, 1), np.array([4, 0, 2])
    others = {"grad": np.random.default_rng(7).standard_normal((3, 3)).astype(dtype), "indices": ids, **attributes}
    scalars = scalars | ({"l1": 0.0} if "l1" in scalars else {})  # what l1 makes 0 in one type need not be in another
    found, expected = ours(name, arrays, scalars, dtype, **others), asked(name, arrays, scalars, dtype, **others)
    tolerance = 2e-2 if dtype is np.float16 else 1.5e-1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["Ftrl", "FtrlV2", "ProximalAdagrad"])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0, np.nan])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("multiply", [True, False])
def test_the_same_scalars_are_refused(name: str, value: float, rows: bool, multiply: bool) -> None:
    case = {"lr": 0.3, "l1": 0.4, "l2": 0.2} | ({"lr_power": -0.5} if "Ftrl" in name else {})
    case |= {"l2_shrinkage": 0.1} if name == "FtrlV2" else {}
    attributes = {"multiply_linear_by_lr": multiply} if "Ftrl" in name else {}
    arrays = drawn(name, (3, 2), np.float32, 1)
    others: dict[str, Any] = {"grad": np.ones((3, 2), np.float32), **attributes}
    if rows:
        others["indices"] = np.arange(3)
    for scalar in case:
        outcomes = []
        for call in (asked, ours):
            try:
                call(name, arrays, case | {scalar: value}, np.float32, **others)
                outcomes.append("taken")
            except (ValueError, tf.errors.InvalidArgumentError):
                outcomes.append("refused")
        assert outcomes[0] == outcomes[1], scalar


CLASSES: list[tuple[Any, str, dict[str, float], dict[str, bool], dict[str, str]]] = [
    (optim.FTRL(0.3, l1=0.4, l2=0.2), "Ftrl", FTRL, {}, {"accum": "sum", "linear": "linear"}),
    (optim.FTRL(0.3, l1=0.4, l2=0.2, l2_shrinkage=0.1), "FtrlV2", FTRL | {"l2_shrinkage": 0.1}, {},
     {"accum": "sum", "linear": "linear"}),
    (optim.FTRL(0.3, l1=0.4, l2=0.2, lr_power=-0.3), "Ftrl", FTRL | {"lr_power": -0.3}, {},
     {"accum": "sum", "linear": "linear"}),
    (optim.Momentum(0.3), "Momentum", {"lr": 0.3, "momentum": 0.9}, {}, {"accum": "momentum"}),
    (optim.Momentum(0.3, nesterov=True), "Momentum", {"lr": 0.3, "momentum": 0.9}, {"use_nesterov": True},
     {"accum": "momentum"}),
    (optim.RMSprop(0.3, eps=1e-3), "RMSProp", RMSPROP | {"momentum": 0.0}, {}, {"ms": "ms"}),
    (optim.RMSprop(0.3, eps=1e-3, momentum=0.8), "RMSProp", RMSPROP, {}, {"ms": "ms", "mom": "momentum"}),
    (optim.RMSprop(0.3, eps=5.0, centered=True), "CenteredRMSProp", RMSPROP | {"epsilon": 5.0, "momentum": 0.0}, {},
     {"mg": "mg", "ms": "ms"}),
    (optim.RMSprop(0.3, eps=5.0, momentum=0.8, centered=True), "CenteredRMSProp", RMSPROP | {"epsilon": 5.0}, {},
     {"mg": "mg"}),
    (optim.Adadelta(0.3, rho=0.9, eps=1e-3), "Adadelta", {"lr": 0.3, "rho": 0.9, "epsilon": 1e-3}, {},
     {"accum": "squares", "accum_update": "steps"}),
    (optim.Adagrad(0.3, eps=1e-3), "AdagradV2", {"lr": 0.3, "epsilon": 1e-3}, {}, {"accum": "sum"}),
    (optim.AdagradDA(0.3, l1=0.1, l2=0.2), "AdagradDA", {"lr": 0.3, "l1": 0.1, "l2": 0.2, "global_step": 1}, {},
     {"gradient_accumulator": "sum", "gradient_squared_accumulator": "squares"}),
    (optim.AdagradDA(0.3, l2=0.2), "AdagradDA", {"lr": 0.3, "l1": 0.0, "l2": 0.2, "global_step": 1}, {},
     {"gradient_accumulator": "sum", "gradient_squared_accumulator": "squares"}),
    (optim.ProximalAdagrad(0.3, l1=0.1, l2=0.2), "ProximalAdagrad", {"lr": 0.3, "l1": 0.1, "l2": 0.2}, {},
     {"accum": "sum"}),
    (optim.ProximalSGD(0.3, l1=0.1, l2=0.2), "ProximalGradientDescent", {"alpha": 0.3, "l1": 0.1, "l2": 0.2}, {}, {}),
]  # fmt: skip


@pytest.mark.parametrize("optimizer, name, scalars, attributes, slots", CLASSES, ids=str)
@pytest.mark.parametrize("width, dtype", [(1, "float32"), (21, "float32"), (3, "float64")])
def test_classes(optimizer: Any, name: str, scalars: Any, attributes: Any, slots: Any, width: int, dtype: str) -> None:
    """Several steps; a table and its state stay TensorFlow's."""
    kind, rng = DTYPES[dtype], np.random.default_rng(width)
    table = rng.standard_normal((9, width)).astype(kind)
    state = optimizer.init(table)
    arrays = {"var": table.copy(), **{slot: np.zeros_like(table) for slot in SLOTS[name]}}
    arrays |= {slot: state[own].copy() for slot, own in slots.items()}
    exact = is_exact(name, scalars, width, rows=True)
    for number in range(1, 4):
        rows = np.sort(rng.choice(9, 4, replace=False))
        grad = rng.standard_normal((4, width)).astype(kind)
        now = scalars | ({"global_step": number} if "global_step" in scalars else {})
        optimizer.step(table, RowGradient(grad, rows), state)
        expected = asked(name, arrays, now, kind, grad=grad, indices=rows, **attributes)
        arrays = dict(zip(arrays, expected, strict=True))
    compare([table, *(state[own] for own in slots.values())], [arrays["var"], *(arrays[slot] for slot in slots)],
            exact=exact)  # fmt: skip
    if "ms_momentum" in state:
        compare([state["ms_momentum"][:, 0], state["ms_momentum"][:, 1]], [arrays["ms"], arrays["mom"]], exact=exact)
