"""New values of variables by TensorFlow's other optimizers: FTRL, momentum, RMSProp, Adadelta and proximal ones.

The operators are of the family of `updates`, which also has what they are made of. Each step is TensorFlow's operation
by operation, so that float32 and float64 results have its bits; where the operators for rows differ from those for
whole variables, or those for rows of one element from those for longer ones, there are several forms.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._runtime.dtypes import FLOATS, IDS, Array
from rowgrad.blocks.operators import updates
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.results import (
    AdadeltaUpdate,
    AdagradDAUpdate,
    AdagradUpdate,
    CenteredRMSPropUpdate,
    FtrlUpdate,
    MomentumUpdate,
    RMSPropUpdate,
)
from rowgrad.errors import InvalidArgumentError

Step = updates.Step


class Form(NamedTuple):
    """Which of TensorFlow's forms of a step is wanted: of `rows`, and if so, of rows of one element (`narrow`)."""

    rows: bool
    narrow: bool


def _power(value: Array, exponent: Any) -> Array:
    """Rounded once, as a processor's power is not."""
    found: Array = np.power(value, exponent, dtype=np.float64).astype(value.dtype)
    return found


def _ftrl(form: Form, lr: Any, l1: Any, l2: Any, *more: Any, multiply_linear_by_lr: bool = False) -> Step:
    *shrinkage, lr_power = more
    two, one = type(lr)(2), type(lr)(1)
    by_lr, divisor = (lr, one) if multiply_linear_by_lr else (one, lr)

    def step(var: Array, accum: Array, linear: Array, grad: Array) -> tuple[Array, ...]:
        total = accum + grad * grad
        with_shrinkage = grad + two * shrinkage[0] * var if shrinkage else grad
        if lr_power == -0.5:
            before, after = np.sqrt(accum), np.sqrt(total)
        else:
            before, after = _power(accum, -lr_power), _power(total, -lr_power)
        moved = (after - before) / divisor * var
        bound, quotient = l1 * by_lr, after / divisor + two * l2 * by_lr
        if form.narrow:
            linear = linear + with_shrinkage * by_lr - moved
            signed = np.where(linear < 0, -bound, bound)
            return np.where(np.abs(linear) > bound, (signed - linear) / quotient, type(lr)(0)), total, linear
        linear = linear + (with_shrinkage * by_lr - moved)
        return (np.clip(linear, -bound, bound) - linear) / quotient, total, linear

    return step


def _momentum(form: Form, lr: Any, momentum: Any, *, use_nesterov: bool = False) -> Step:
    def step(var: Array, accum: Array, grad: Array) -> tuple[Array, ...]:
        accum = accum * momentum + grad
        if not use_nesterov:
            return var - lr * accum, accum
        ahead = lr * momentum * accum if form.rows else accum * momentum * lr
        return var - (grad * lr + ahead), accum

    return step


def _rmsprop(form: Form, lr: Any, rho: Any, momentum: Any, epsilon: Any) -> Step:
    centred = _centred(form, lr, rho, momentum, epsilon)

    def step(var: Array, ms: Array, mom: Array, grad: Array) -> tuple[Array, ...]:
        out, _, ms, mom = centred(var, None, ms, mom, grad)
        return out, ms, mom

    return step


def _centred(form: Form, lr: Any, rho: Any, momentum: Any, epsilon: Any) -> Step:
    one = type(lr)(1)

    def average(old: Array, new: Array) -> Array:
        found: Array = old * rho + new * (one - rho) if form.rows else old + (new - old) * (one - rho)
        return found

    def step(var: Array, mg: Array | None, ms: Array, mom: Array, grad: Array) -> tuple[Any, ...]:
        ms = average(ms, grad * grad)
        variance = ms + epsilon
        if mg is not None:
            mg = average(mg, grad)
            variance = variance - mg * mg if form.rows else ms - mg * mg + epsilon
        moved = one / np.sqrt(variance) * lr * grad if form.rows else grad * lr / np.sqrt(variance)
        mom = mom * momentum + moved
        return var - mom, mg, ms, mom

    return step


def _adadelta(form: Form, lr: Any, rho: Any, epsilon: Any) -> Step:
    one = type(lr)(1)

    def step(var: Array, accum: Array, accum_update: Array, grad: Array) -> tuple[Array, ...]:
        accum = accum * rho + grad * grad * (one - rho)
        update = np.sqrt(accum_update + epsilon) * (one / np.sqrt(accum + epsilon)) * grad
        return var - update * lr, accum, accum_update * rho + update * update * (one - rho)

    return step


def _adagrad_v2(form: Form, lr: Any, epsilon: Any, *, update_slots: bool = True) -> Step:
    def step(var: Array, accum: Array, grad: Array) -> tuple[Array, ...]:
        if update_slots:
            accum = accum + grad * grad
        return var - grad * lr / (np.sqrt(accum) + epsilon), accum

    return step


def _adagrad_da(form: Form, lr: Any, l1: Any, l2: Any, global_step: Any) -> Step:
    kind = type(lr)
    number, minus, wide = kind(global_step), kind(-1), np.float64
    share = number * lr

    def step(var: Array, total: Array, squares: Array, grad: Array) -> tuple[Array, ...]:
        total = total + grad
        if form.narrow:
            squares = (squares.astype(wide) + grad.astype(wide) ** 2).astype(squares.dtype)
            quotient, wanted = wide(l2) * wide(share) + np.sqrt(squares), total.astype(wide)
            if l1 > 0:
                wanted = np.sign(wanted) * np.maximum(np.abs(wanted) - wide(number) * wide(l1), 0)
            return (-wanted * wide(lr) / quotient).astype(total.dtype), total, squares
        squares = squares + grad * grad
        if form.rows:
            quotient, wanted = l2 + np.sqrt(squares) / share, total / number
            if l1 > 0:
                return minus * np.sign(total) * np.maximum(np.abs(wanted) - l1, kind(0)) / quotient, total, squares
            return minus * wanted / quotient, total, squares
        quotient = l2 * share + np.sqrt(squares)
        if l1 > 0:
            left = np.maximum(np.abs(total) - number * l1, kind(0))
            return minus * lr * np.sign(total) * left / quotient, total, squares
        return minus * lr * total / quotient, total, squares

    return step


def _shrunk(form: Form, value: Array, rate: Any, l1: Any, l2: Any) -> Array:
    """What is left of a value by l1 and l2."""
    if l1 > 0:
        value = np.sign(value) * np.maximum(np.abs(value) - rate * l1, type(l1)(0))
    if form.narrow:
        return (value.astype(np.float64) / (1 + np.asarray(rate * l2, np.float64))).astype(value.dtype)
    shrunk: Array = value / (type(l1)(1) + rate * l2)
    return shrunk


def _proximal_adagrad(form: Form, lr: Any, l1: Any, l2: Any) -> Step:
    def step(var: Array, accum: Array, grad: Array) -> tuple[Array, ...]:
        accum = accum + grad * grad
        rate = lr / np.sqrt(accum) if form.narrow else type(lr)(1) / np.sqrt(accum) * lr
        return _shrunk(form, var - rate * grad, rate, l1, l2), accum

    return step


def _proximal_descent(form: Form, alpha: Any, l1: Any, l2: Any) -> Step:
    return lambda var, grad: (_shrunk(form, var - alpha * grad, alpha, l1, l2),)


# What TensorFlow requires of scalars.

ABOVE_0 = ("above 0", lambda value: value > 0)
FROM_0 = ("0 or more", lambda value: value >= 0)
UP_TO_0 = ("0 or less", lambda value: value <= 0)
FTRL_BOUNDS = {"lr": ABOVE_0, "l1": FROM_0, "l2": FROM_0, "l2_shrinkage": FROM_0, "lr_power": UP_TO_0}
PROXIMAL_BOUNDS = {"lr": ABOVE_0, "l1": FROM_0, "l2": FROM_0}
Bounds = Mapping[str, tuple[str, Callable[[Any], Any]]]
NO_BOUNDS: Bounds = {}


def _check_scalars(bounds: Bounds, scalars: Mapping[str, Array]) -> None:
    for name, (allowed, holds) in bounds.items():
        if name in scalars:
            checks.rank(name, scalars[name], 0)
            if not holds(scalars[name]):
                raise InvalidArgumentError(
                    f"{name} is {scalars[name]}; it must be {allowed}. Change it.",
                    code="bad-setting",
                    argument=name,
                    value=float(scalars[name]),
                )


class _Optimizer(NamedTuple):
    """An optimizer: its states, its scalars, the formula of its step, and how it is described."""

    states: tuple[str, ...]
    scalars: tuple[str, ...]
    formula: Callable[..., Step]
    result: type | None
    text: str
    attributes: tuple[Attribute, ...] = ()
    bounds: Bounds = NO_BOUNDS
    dense_bounds: Bounds = NO_BOUNDS


def _compute(optimizer: _Optimizer, order: tuple[str, ...], rows: bool, *values: Any, **attributes: bool) -> Any:
    given = dict(zip(order, values, strict=True))
    states = {name: given[name] for name in optimizer.states}
    scalars = {name: np.asarray(given[name]) for name in optimizer.scalars}
    bounds = dict(optimizer.bounds if rows else optimizer.dense_bounds)
    if attributes.get("multiply_linear_by_lr") and "lr" in bounds:
        bounds["lr"] = FROM_0
    _check_scalars(bounds, scalars)
    narrow = rows and given["var"].ndim > 0 and prod(given["var"].shape[1:]) == 1
    formula = partial(optimizer.formula, Form(rows, narrow), **attributes)
    if rows:
        results = updates._apply_rows(states, scalars, given["grad"], given["indices"], formula)
    else:
        gradient = "delta" if "delta" in given else "grad"
        results = updates._apply(states, scalars, (gradient, given[gradient]), formula)
    return results[0] if optimizer.result is None else optimizer.result(*results)


USE_LOCKING = updates.USE_LOCKING
MULTIPLY = Attribute(
    "multiply_linear_by_lr",
    False,
    "Whether linear is kept multiplied by lr, which then may be 0: linear · lr for linear.",
)
NESTEROV = Attribute("use_nesterov", False, "Whether to look ahead by the momentum.")
DOCS = {
    **updates.STATES,
    **updates.SCALAR_DOCS,
    "linear": "FTRL's sum of gradients, minus what the row has moved.",
    "momentum": "The momentum factor.",
    "ms": "The decaying mean of squared gradients.",
    "mg": "The decaying mean of gradients.",
    "mom": "Its momentum: the last step subtracted from the variable.",
    "accum_update": "The decaying mean of squared steps.",
    "gradient_accumulator": "The sum of all gradients.",
    "gradient_squared_accumulator": "The sum of all squared gradients.",
    "l1": "The strength of L1 regularisation.",
    "l2": "The strength of L2 regularisation.",
    "l2_shrinkage": "The strength of L2 regularisation of the loss itself.",
    "lr_power": "How the learning rate falls with the sum of squares: −0.5 is a root.",
    "rho": "The decay rate of the means.",
    "epsilon": "Added to a root, or under it, to avoid division by 0.",
    "global_step": "The number of this step.",
}
OTHER_DOCS = {"Momentum": {"accum": "Its momentum."}, "Adadelta": {"accum": "The decaying mean of squared gradients."}}
FTRL_TEXT = (
    "accum_out = accum + grad²\n"
    "linear_out = linear + grad{shrinkage} − (accum_out^−lr_power − accum^−lr_power) / lr · var\n"
    "out = (clip(linear_out, −l1, l1) − linear_out) / (accum_out^−lr_power / lr + 2 · l2)"
)
PROXIMAL_TEXT = "step = var − rate · {grad}\nout = sign(step) · max(|step| − rate · l1, 0) / (1 + rate · l2)"
STRENGTHS = ("lr", "l1", "l2")

OPTIMIZERS = {
    "Ftrl": _Optimizer(("var", "accum", "linear"), (*STRENGTHS, "lr_power"), _ftrl, FtrlUpdate,
                       FTRL_TEXT.format(shrinkage=""), (USE_LOCKING, MULTIPLY), FTRL_BOUNDS),
    "FtrlV2": _Optimizer(("var", "accum", "linear"), (*STRENGTHS, "l2_shrinkage", "lr_power"), _ftrl, FtrlUpdate,
                         FTRL_TEXT.format(shrinkage=" + 2 · l2_shrinkage · var"), (USE_LOCKING, MULTIPLY), FTRL_BOUNDS),
    "Momentum": _Optimizer(("var", "accum"), ("lr", "momentum"), _momentum, MomentumUpdate,
                           "accum_out = momentum · accum + grad\nout = var − lr · accum_out", (USE_LOCKING, NESTEROV)),
    "RMSProp": _Optimizer(("var", "ms", "mom"), ("lr", "rho", "momentum", "epsilon"), _rmsprop, RMSPropUpdate,
                          "ms_out = rho · ms + (1 − rho) · grad²\n"
                          "mom_out = momentum · mom + lr · grad / sqrt(ms_out + epsilon)\nout = var − mom_out",
                          (USE_LOCKING,)),
    "CenteredRMSProp": _Optimizer(("var", "mg", "ms", "mom"), ("lr", "rho", "momentum", "epsilon"), _centred,
                                  CenteredRMSPropUpdate,
                                  "mg_out = rho · mg + (1 − rho) · grad\nms_out = rho · ms + (1 − rho) · grad²\n"
                                  "mom_out = momentum · mom + lr · grad / sqrt(ms_out − mg_out² + epsilon)\n"
                                  "out = var − mom_out", (USE_LOCKING,)),
    "Adadelta": _Optimizer(("var", "accum", "accum_update"), ("lr", "rho", "epsilon"), _adadelta, AdadeltaUpdate,
                           "accum_out = rho · accum + (1 − rho) · grad²\n"
                           "step = sqrt(accum_update + epsilon) / sqrt(accum_out + epsilon) · grad\n"
                           "accum_update_out = rho · accum_update + (1 − rho) · step²\nout = var − lr · step",
                           (USE_LOCKING,)),
    "AdagradV2": _Optimizer(("var", "accum"), ("lr", "epsilon"), _adagrad_v2, AdagradUpdate,
                            "accum_out = accum + grad²   (accum, without update_slots)\n"
                            "out = var − lr · grad / (sqrt(accum_out) + epsilon)",
                            (USE_LOCKING, updates.UPDATE_SLOTS)),
    "AdagradDA": _Optimizer(("var", "gradient_accumulator", "gradient_squared_accumulator"),
                            (*STRENGTHS, "global_step"), _adagrad_da, AdagradDAUpdate,
                            "gradient_accumulator_out = gradient_accumulator + grad\n"
                            "gradient_squared_accumulator_out = gradient_squared_accumulator + grad²\n"
                            "rest = max(|gradient_accumulator_out| − global_step · l1, 0)\n"
                            "out = −lr · sign(gradient_accumulator_out) · rest / "
                            "(l2 · global_step · lr + sqrt(gradient_squared_accumulator_out))", (USE_LOCKING,)),
    "ProximalAdagrad": _Optimizer(("var", "accum"), STRENGTHS, _proximal_adagrad, AdagradUpdate,
                                  "accum_out = accum + grad²\nrate = lr / sqrt(accum_out)\n"
                                  + PROXIMAL_TEXT, (USE_LOCKING,), PROXIMAL_BOUNDS, PROXIMAL_BOUNDS),
    "ProximalGradientDescent": _Optimizer(("var",), ("alpha", "l1", "l2"), _proximal_descent, None,
                                          "rate = alpha\n" + PROXIMAL_TEXT, (USE_LOCKING,)),
}  # fmt: skip

SUMMARIES = {
    "Ftrl": "One step of FTRL-Proximal",
    "FtrlV2": "One step of FTRL-Proximal, with shrinkage",
    "Momentum": "One step of gradient descent with momentum",
    "RMSProp": "One step of RMSProp",
    "CenteredRMSProp": "One step of centred RMSProp",
    "Adadelta": "One step of Adadelta",
    "AdagradV2": "One step of Adagrad with an epsilon",
    "AdagradDA": "One step of Adagrad with dual averaging",
    "ProximalAdagrad": "One step of Adagrad, followed by the proximal step of L1 and L2 regularisation",
    "ProximalGradientDescent": "One step of gradient descent, and of the proximal step of L1 and L2 regularisation",
}
# The order of inputs, and worked examples: states, scalars and a gradient of one element, and the results.
EXAMPLES: dict[str, tuple[str, dict[str, float], dict[str, float]]] = {
    "Ftrl": ("STATES grad lr l1 l2 lr_power",
             {"var": 1, "accum": 0, "linear": 0, "grad": 2, "lr": 0.5, "l1": 1, "l2": 0.5, "lr_power": -0.5},
             {"out": 0.2, "accum_out": 4, "linear_out": -2}),
    "FtrlV2": ("STATES grad lr l1 l2 l2_shrinkage lr_power",
               {"var": 1, "accum": 0, "linear": 0, "grad": 2, "lr": 0.5, "l1": 1, "l2": 0.5, "l2_shrinkage": 0.25,
                "lr_power": -0.5},
               {"out": 0.1, "accum_out": 4, "linear_out": -1.5}),
    "Momentum": ("STATES lr grad momentum", {"var": 1, "accum": 2, "lr": 0.5, "grad": 1, "momentum": 0.5},
                 {"out": 0, "accum_out": 2}),
    "RMSProp": ("STATES lr rho momentum epsilon grad",
                {"var": 1, "ms": 1, "mom": 1, "lr": 0.5, "rho": 0.5, "momentum": 0.25, "epsilon": 1.5, "grad": 2},
                {"out": 0.25, "ms_out": 2.5, "mom_out": 0.75}),
    "CenteredRMSProp": ("STATES lr rho momentum epsilon grad",
                        {"var": 1, "mg": 0, "ms": 1, "mom": 1, "lr": 0.5, "rho": 0.5, "momentum": 0.25, "epsilon": 2.5,
                         "grad": 2},
                        {"out": 0.25, "mg_out": 1, "ms_out": 2.5, "mom_out": 0.75}),
    "Adadelta": ("STATES lr rho epsilon grad",
                 {"var": 1, "accum": 2, "accum_update": 0, "lr": 0.5, "rho": 0.5, "epsilon": 1, "grad": 2},
                 {"out": 0.5, "accum_out": 3, "accum_update_out": 0.5}),
    "AdagradV2": ("STATES lr epsilon grad", {"var": 1, "accum": 7, "lr": 0.5, "epsilon": 2, "grad": 3},
                  {"out": 0.75, "accum_out": 16}),
    "AdagradDA": ("STATES grad lr l1 l2 global_step",
                  {"var": 1, "gradient_accumulator": 2, "gradient_squared_accumulator": 3, "grad": 1, "lr": 0.5,
                   "l1": 0.5, "l2": 2, "global_step": 2},
                  {"out": -0.25, "gradient_accumulator_out": 3, "gradient_squared_accumulator_out": 4}),
    "ProximalAdagrad": ("STATES lr l1 l2 grad", {"var": 1, "accum": 0, "lr": 0.5, "l1": 1, "l2": 4, "grad": 2},
                        {"out": 0.125, "accum_out": 4}),
    "ProximalGradientDescent": ("STATES alpha l1 l2 delta", {"var": 2, "alpha": 0.5, "l1": 1, "l2": 2, "delta": 1},
                                {"out": 0.5}),
}  # fmt: skip


def _declare(name: str, rows: bool) -> None:
    optimizer, (order, given, results) = OPTIMIZERS[name], EXAMPLES[name]
    names = tuple(order.replace("STATES", " ".join(optimizer.states)).split())
    if rows:
        names = tuple("grad" if each == "delta" else each for each in names)
        at = names.index("grad") + 1
        names = (*names[:at], "indices", *names[at:])
    gradient = "grad" if "grad" in names else "delta"
    outputs = {state: "out" if state == "var" else f"{state}_out" for state in optimizer.states}
    whole, part = ("[V, ...]", "[N, ...]") if rows else ("[...]", "[...]")
    docs = DOCS | OTHER_DOCS.get(name, {})

    def pin(each: str) -> Pin:
        if each in optimizer.states:
            return Pin(each, "T", whole, docs[each])
        if each == gradient:
            return Pin(each, "T", part, f"The gradient of {'each row in indices' if rows else 'the variable'}.")
        if each == "indices":
            return Pin(each, "Tindices", "[N]", "The rows that change.")
        return Pin(each, "int64" if each == "global_step" else "T", "[]", docs[each])

    def value(each: str) -> Any:
        number = given["delta" if each == "grad" and "delta" in given else each] if each != "indices" else 0
        if each == "indices":
            return [1]
        if each == "global_step":
            return int(number)
        if each in optimizer.states:
            return [[float(number)], [float(number)]] if rows else [float(number)]
        return ([[float(number)]] if rows else [float(number)]) if each == gradient else float(number)

    def result(out: str, state: str) -> Any:
        return [[float(given[state])], [float(results[out])]] if rows else [float(results[out])]

    text = optimizer.text.replace("{grad}", gradient)
    bounds = optimizer.bounds if rows else optimizer.dense_bounds
    named = ", ".join(f"{each} is not {allowed}" for each, (allowed, _) in bounds.items() if each in names)
    scalars = ", ".join(optimizer.scalars[:-1]) + " or " + optimizer.scalars[-1]
    same = [*optimizer.states] if rows else [*optimizer.states, gradient]
    declare(Operator(
        name=("SparseApply" if rows else "Apply") + name,
        function=None,
        family="updates",
        summary=SUMMARIES[name] + (" for some rows of a variable." if rows else "."),
        inputs=tuple(map(pin, names)),
        outputs=tuple(Pin(out, "T", whole, f"The new value of {state}.") for state, out in outputs.items()),
        types={"T": FLOATS} | ({"Tindices": IDS} if rows else {}),
        attributes=optimizer.attributes,
        formula=("for each i, in order, with row indices[i] of each state, and row i of grad:\n"
                 if rows else "") + text,
        errors=(
            *((updates.OF_ONE_SHAPE.format(" or ".join([", ".join(same[:-1]), same[-1]])),) if len(same) > 1 else ()),
            updates.SCALARS.format(scalars),
            *((f"InvalidArgumentError: {named}",) if named else ()),
            *(updates.ROW_ERRORS if rows else ()),
            updates.MEMORY,
            updates.TYPES,
        ),
        cost="O(V · width), to copy what does not change, and O(N · (width + log N))." if rows else "O(size of var).",
        example=Example({each: value(each) for each in names},
                        {out: result(out, state) for state, out in outputs.items()}),
        compute=partial(_compute, optimizer, names, rows),
        result=optimizer.result,
        notes=f"{updates.IN_ORDER} {updates.ROUNDED}" if rows else updates.ROUNDED,
        shape_rule=updates._shape_rule(optimizer.states, optimizer.scalars, gradient, tuple(outputs.values()),
                                       rows=rows),
        updates=outputs,
    ))  # fmt: skip


for _name in OPTIMIZERS:
    _declare(_name, rows=False)
    _declare(_name, rows=True)
