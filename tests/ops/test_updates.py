"""The optimizers' steps against their formulas, in float64 and one row after the other."""

import ml_dtypes
import numpy as np
import pytest

import rowgrad
from rowgrad._ops.shapes import infer
from rowgrad.blocks import raw_ops
from rowgrad.blocks.operators import OPERATORS

RNG = np.random.default_rng(11)
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
TOLERANCE = {np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2, np.float32: 2e-6, np.float64: 1e-13}
ADAM = {"beta1_power": 0.5, "beta2_power": 0.75, "lr": 0.125, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.0625}
UPDATES = [operator for operator in OPERATORS.values() if operator.updates]


def descend(alpha):
    return lambda grad, var: (var - alpha * grad,)


def adagrad(lr, update_slots=True):
    def step(grad, var, accum):
        accum = accum + grad**2 if update_slots else accum
        return var - lr * grad / np.sqrt(accum), accum

    return step


def adam(use_nesterov=False):
    rate = ADAM["lr"] * np.sqrt(1 - ADAM["beta2_power"]) / (1 - ADAM["beta1_power"])
    beta1, beta2, epsilon = ADAM["beta1"], ADAM["beta2"], ADAM["epsilon"]

    def step(grad, var, m, v):
        m = beta1 * m + (1 - beta1) * grad
        v = beta2 * v + (1 - beta2) * grad**2
        used = beta1 * m + (1 - beta1) * grad if use_nesterov else m
        return var - rate * used / (np.sqrt(v) + epsilon), m, v

    return step


CASES = {
    "GradientDescent": (("var",), {"alpha": 0.375}, {}, descend(0.375)),
    "Adagrad": (("var", "accum"), {"lr": 0.25}, {}, adagrad(0.25)),
    "Adagrad, slots kept": (("var", "accum"), {"lr": 0.25}, {"update_slots": False}, adagrad(0.25, False)),
    "Adam": (("var", "m", "v"), ADAM, {}, adam()),
    "Adam, Nesterov": (("var", "m", "v"), ADAM, {"use_nesterov": True}, adam(True)),
}
BY_CASE = pytest.mark.parametrize("case", CASES)
BY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)


def states_of(case, shape, dtype):
    return {name: (RNG.uniform(0.5, 2, shape)).astype(dtype) for name in CASES[case][0]}


def check(results, expected, dtype):
    results = results if isinstance(results, tuple) else (results,)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@BY_CASE
@BY_DTYPE
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (5, 2, 3), (70_001,)], ids=str)
def test_whole_variables(case, dtype, shape):
    _, scalars, attributes, step = CASES[case]
    states, grad = states_of(case, shape, dtype), RNG.standard_normal(shape).astype(dtype)
    before = {name: array.copy() for name, array in states.items()}
    operator = getattr(raw_ops, f"Apply{case.partition(',')[0]}")
    results = operator(*states.values(), *(np.array(value, dtype) for value in scalars.values()), grad, **attributes)
    check(results, step(*(x.astype(np.float64) for x in (grad, *states.values()))), dtype)
    for name, array in states.items():
        np.testing.assert_array_equal(array, before[name])


@BY_DTYPE
@pytest.mark.parametrize("case", [case for case in CASES if "Nesterov" not in case])
@pytest.mark.parametrize("indices", [[], [0], [1, 3, 4], [4, 0, 2], [2, 0, 2, 2, 4, 0]], ids=str)
@pytest.mark.parametrize("tail", [(), (3,), (2, 2)], ids=str)
def test_rows(case, dtype, indices, tail):
    _, scalars, attributes, step = CASES[case]
    states = states_of(case, (6, *tail), dtype)
    grad = RNG.standard_normal((len(indices), *tail)).astype(dtype)
    expected = [array.astype(np.float64) for array in states.values()]
    for row, one in zip(indices, grad.astype(np.float64), strict=True):
        for array, new in zip(expected, step(one, *(array[row] for array in expected)), strict=True):
            array[row] = new
    operator = getattr(raw_ops, f"SparseApply{case.partition(',')[0]}")
    for ids in (indices, np.array(indices, np.int64), np.array(indices, np.int32)):
        results = operator(
            *states.values(), *(np.array(value, dtype) for value in scalars.values()), grad, ids, **attributes
        )
        check(results, expected, dtype)
    untouched = sorted(set(range(6)) - set(indices))
    for result, array in zip(results if isinstance(results, tuple) else [results], states.values(), strict=True):
        np.testing.assert_array_equal(result[untouched], array[untouched])
        assert not np.shares_memory(result, array)


def test_half_is_rounded_once():
    """4096 steps of 2⁻¹² in bfloat16, each too small to be seen alone, meet in one row."""
    var = np.ones((1, 1), ml_dtypes.bfloat16)
    grad = np.full((4096, 1), 2.0**-12, ml_dtypes.bfloat16)
    out = raw_ops.SparseApplyGradientDescent(var, np.ones((), var.dtype), grad, np.zeros(4096, np.int64))
    assert out.tolist() == [[0.0]]


def test_a_variable_is_given_a_value():
    value = np.array(["a", "longer"])
    output = raw_ops.Assign(ref=np.array(["x", "y"]), value=value)
    assert output.tolist() == ["a", "longer"]
    assert raw_ops.Assign(1.0, 2.0) == 2.0
    value = np.arange(3)
    value.flags.writeable = False
    output = raw_ops.Assign(np.zeros(3, np.int64), value)
    output[0] = 7
    assert value.tolist() == [0, 1, 2]


def test_what_is_divided_by_zero_is_not_a_number():
    out, accum = raw_ops.ApplyAdagrad([1.0], [0.0], 0.5, [0.0])
    assert np.isnan(out).all()
    assert accum.tolist() == [0.0]


@pytest.mark.parametrize(
    ("call", "argument", "code", "position"),
    [
        (lambda: raw_ops.Assign([1.0], [1.0, 2.0]), "value", "shape-mismatch", None),
        (lambda: raw_ops.ApplyGradientDescent([1.0], [0.5], [1.0]), "alpha", "wrong-rank", None),
        (lambda: raw_ops.ApplyGradientDescent([1.0], 0.5, [[1.0]]), "delta", "shape-mismatch", None),
        (lambda: raw_ops.ApplyAdagrad([1.0], [1.0, 1.0], 0.5, [1.0]), "accum", "shape-mismatch", None),
        (lambda: raw_ops.ApplyAdagrad([1.0], [1.0], 0.5, [1.0], update_slots=1), "update_slots", "wrong-attribute",
         None),
        (lambda: raw_ops.SparseApplyAdagrad([1.0], [1.0], 0.5, [1.0], [1]), "indices", "index-out-of-range", 0),
        (lambda: raw_ops.SparseApplyGradientDescent([1.0], 0.5, [1.0, 1.0], [0, -1]), "indices", "index-out-of-range",
         1),
        (lambda: raw_ops.SparseApplyGradientDescent([[1.0]], 0.5, [[1.0, 2.0]], [0]), "grad", "shape-mismatch", None),
        (lambda: raw_ops.SparseApplyGradientDescent([[1.0]], 0.5, [[1.0]], [[0]]), "indices", "wrong-rank", None),
        (lambda: raw_ops.SparseApplyGradientDescent([[1.0]], 0.5, [[1.0]], [0, 0]), "grad", "length-mismatch", None),
        (lambda: raw_ops.SparseApplyGradientDescent(1.0, 0.5, [1.0], [0]), "var", "wrong-rank", None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, argument, code, position):
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        call()
    assert (info.value.argument, info.value.code, info.value.position) == (argument, code, position)


def test_only_floating_point_numbers_have_gradients():
    with pytest.raises(rowgrad.DTypeError) as info:
        raw_ops.ApplyGradientDescent(np.zeros(2, np.int32), 1, np.zeros(2, np.int32))
    assert info.value.argument == "var"


@pytest.mark.parametrize("operator", UPDATES, ids=lambda operator: operator.name)
def test_every_state_has_a_new_value(operator):
    outputs = {pin.name: pin for pin in operator.outputs}
    assert set(operator.updates.values()) == set(outputs)
    for name, output in operator.updates.items():
        pin = next(pin for pin in operator.inputs if pin.name == name)
        assert (outputs[output].dtype, outputs[output].shape) == (pin.dtype, pin.shape)
    assert not operator.gradient


def test_shapes_before_anything_runs():
    adam = OPERATORS["ApplyAdam"]
    known = {"var": ("batch", 3), "m": None, "grad": (7, None)}
    assert infer(adam, known, {}) == dict.fromkeys(("out", "m_out", "v_out"), (7, 3))
    assert infer(adam, {}, {}) == dict.fromkeys(("out", "m_out", "v_out"))
    rows = OPERATORS["SparseApplyAdagrad"]
    assert infer(rows, {"var": ("vocabulary", 3), "grad": (5, 3)}, {})["accum_out"] == ("vocabulary", 3)
    for operator, shapes, argument in [
        (adam, {"var": (2,), "v": (3,)}, "v"),
        (adam, {"var": (2,), "grad": (2, 2)}, "grad"),
        (adam, {"lr": (1,)}, "lr"),
        (rows, {"var": (9, 3), "grad": (5, 4)}, "grad"),
        (rows, {"grad": (5, 4), "indices": (6,)}, "grad"),
        (rows, {"grad": (5, 4), "indices": (5, 1)}, "indices"),
        (rows, {"var": ()}, "var"),
    ]:
        with pytest.raises(rowgrad.InvalidArgumentError) as info:
            infer(operator, shapes, {})
        assert info.value.argument == argument
