"""New values of variables: assignment and the optimizers' steps, for whole variables and for some of their rows.

TensorFlow's operators of these names change a variable where it is. Here they are functions: what goes in stays as it
was, and every state that TensorFlow would change comes out. `updates` in a declaration says which output is the new
value of which input, so that a session can put it there.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rowgrad._ops import checks
from rowgrad._ops.broadcasting import copied, of_rank, same
from rowgrad._ops.catalogue import Attribute, Example, Operator
from rowgrad._ops.pins import Pin
from rowgrad._ops.shapes import Shape
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import FLOATS, IDS, PLAIN, Array
from rowgrad._runtime.memory import allocate, check_room
from rowgrad.blocks.operators.catalogue import declare
from rowgrad.blocks.operators.results import AdagradUpdate, AdamUpdate
from rowgrad.errors import InvalidArgumentError

BLOCK = 1 << 15  # elements that are worked on together: few enough that all their states stay in the cache

ADAM_SCALARS = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")

# A step takes the states and the gradient, in the type of the computation, and gives the new states.
Step = Callable[..., tuple[Array, ...]]


def _assign(ref: Array, value: Array, *, validate_shape: bool = True) -> Array:
    if validate_shape:
        same(("ref", "value"), ref.shape, value.shape)
    return copied(value, "value")


# The formulas. Each is a function of its scalars that gives a step.


def _descent(alpha: Any) -> Step:
    return lambda var, delta: (var - alpha * delta,)


def _adagrad(update_slots: bool, lr: Any) -> Step:
    def step(var: Array, accum: Array, grad: Array) -> tuple[Array, ...]:
        if update_slots:
            accum = accum + grad * grad
        return var - lr * grad / np.sqrt(accum), accum

    return step


def _adam(use_nesterov: bool, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any,
          epsilon: Any) -> Step:  # fmt: skip
    one = type(lr)(1)
    rate = lr * np.sqrt(one - beta2_power) / (one - beta1_power)

    def step(var: Array, m: Array, v: Array, grad: Array) -> tuple[Array, ...]:
        m = m + (grad - m) * (one - beta1)
        v = v + (grad * grad - v) * (one - beta2)
        direction = grad * (one - beta1) + beta1 * m if use_nesterov else m
        return var - direction * rate / (np.sqrt(v) + epsilon), m, v

    return step


# Whole variables


def _apply(states: Mapping[str, Array], scalars: Mapping[str, Array], gradient: tuple[str, Array],
           formula: Callable[..., Step]) -> tuple[Array, ...]:  # fmt: skip
    """The new states, block by block: nothing of the size of the variable is made but the results."""
    (var_name, var), *others = states.items()
    for other, array in [*others, gradient]:
        same((var_name, other), var.shape, array.shape)
    results = tuple(allocate(var.shape, var.dtype, argument=state) for state in states)
    sums = dtypes.summing(var.dtype).sums
    flat = [array.reshape(-1) for array in (*states.values(), gradient[1])]
    targets = [result.reshape(-1) for result in results]
    with np.errstate(all="ignore"):  # what overflows or is divided by 0 is infinite or NaN, as in TensorFlow
        step = formula(*_numbers(scalars, sums))
        for start in range(0, var.size, BLOCK):
            window = slice(start, start + BLOCK)
            for target, new in zip(targets, step(*(a[window].astype(sums, copy=False) for a in flat)), strict=True):
                target[window] = new
    return results


def _numbers(scalars: Mapping[str, Array], sums: "np.dtype[Any]") -> Iterator[Any]:
    for name, scalar in scalars.items():
        checks.rank(name, scalar, 0)
        yield scalar.astype(sums)[()]


def _apply_gradient_descent(var: Array, alpha: Array, delta: Array) -> Array:
    (out,) = _apply({"var": var}, {"alpha": alpha}, ("delta", delta), _descent)
    return out


def _apply_adagrad(var: Array, accum: Array, lr: Array, grad: Array, *, update_slots: bool = True) -> AdagradUpdate:
    states = {"var": var, "accum": accum}
    return AdagradUpdate(*_apply(states, {"lr": lr}, ("grad", grad), lambda lr: _adagrad(update_slots, lr)))


def _apply_adam(var: Array, m: Array, v: Array, *rest: Array, use_nesterov: bool = False) -> AdamUpdate:
    *numbers, grad = rest
    scalars = dict(zip(ADAM_SCALARS, numbers, strict=True))
    states = {"var": var, "m": m, "v": v}
    return AdamUpdate(*_apply(states, scalars, ("grad", grad), lambda *numbers: _adam(use_nesterov, *numbers)))


# Rows of variables


def _apply_rows(states: Mapping[str, Array], scalars: Mapping[str, Array], grad: Array, indices: Array,
                formula: Callable[..., Step]) -> tuple[Array, ...]:  # fmt: skip
    """The new states, of which only the rows in `indices` have changed."""
    (_, var), *others = states.items()
    checks.at_least_vector("var", var)
    for other, array in others:
        same(("var", other), var.shape, array.shape)
    checks.rank("indices", indices, 1)
    _check_rows(grad, indices, var)
    sums = dtypes.summing(var.dtype).sums
    with np.errstate(all="ignore"):
        step = formula(*_numbers(scalars, sums))
        results = tuple(copied(array, name) for name, array in states.items())
        check_room(3 * (len(states) + 1) * grad.size * sums.itemsize, "grad")
        rows, places = _distinct(indices)
        work = tuple(array[rows].astype(sums, copy=False) for array in states.values())
        grads = grad.astype(sums, copy=False)
        if places is None:
            work = step(*work, grads)
        else:
            for wave in _waves(places):
                now = places[wave]
                for array, new in zip(work, step(*(a[now] for a in work), grads[wave]), strict=True):
                    array[now] = new
        for result, new in zip(results, work, strict=True):
            result[rows] = new
    return results


def _check_rows(grad: Array, indices: Array, var: Array) -> None:
    checks.at_least_vector("grad", grad)
    checks.same_length("grad", grad.shape[0], "indices", indices.size)
    if grad.shape[1:] != var.shape[1:]:
        raise InvalidArgumentError(
            f"a row of grad has shape {list(grad.shape[1:])}, but a row of var {list(var.shape[1:])}; they must be the "
            "same. Pass the gradient of this variable.",
            code="shape-mismatch",
            argument="grad",
            value=grad.shape,
        )
    wrong = (indices < 0) | (indices >= var.shape[0])
    if wrong.any():
        position = int(wrong.argmax())
        found, rows = int(indices[position]), var.shape[0]
        raise checks.out_of_range("indices", position, found, rows, "the number of rows of var", "index-out-of-range",
                                  "Drop the entry, or fix the index.")  # fmt: skip


def _distinct(indices: Array) -> tuple[Array, Array | None]:
    """The rows that change, and, where some occur more than once, the place of each entry among them."""
    if (indices[1:] > indices[:-1]).all():  # what compact gradients bring
        return indices, None
    rows, places = np.unique(indices, return_inverse=True)
    return (indices, None) if rows.size == indices.size else (rows, places)


def _waves(places: Array) -> Iterator[Array]:
    """The entries in rounds in which each row occurs at most once: its first entry, its second one, and so on.

    A row's steps depend on that row alone, so this is the same as going through the entries one after the other.
    """
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(is_first)
    turns = np.arange(places.size) - starts[np.cumsum(is_first) - 1]
    by_turn = np.argsort(turns, kind="stable")
    yield from np.split(order[by_turn], np.cumsum(np.bincount(turns))[:-1])


def _sparse_descent(var: Array, alpha: Array, grad: Array, indices: Array) -> Array:
    (out,) = _apply_rows({"var": var}, {"alpha": alpha}, grad, indices, _descent)
    return out


def _sparse_adagrad(var: Array, accum: Array, lr: Array, grad: Array, indices: Array, *,
                    update_slots: bool = True) -> AdagradUpdate:  # fmt: skip
    states = {"var": var, "accum": accum}
    return AdagradUpdate(*_apply_rows(states, {"lr": lr}, grad, indices, lambda lr: _adagrad(update_slots, lr)))


def _sparse_adam(var: Array, m: Array, v: Array, *rest: Array) -> AdamUpdate:
    *numbers, grad, indices = rest
    scalars = dict(zip(ADAM_SCALARS, numbers, strict=True))
    states = {"var": var, "m": m, "v": v}
    return AdamUpdate(*_apply_rows(states, scalars, grad, indices, lambda *numbers: _adam(False, *numbers)))


# Shapes


def _shape_rule(states: tuple[str, ...], scalars: tuple[str, ...], gradient: str, outputs: tuple[str, ...], *,
                rows: bool) -> Callable[..., Mapping[str, Any]]:  # fmt: skip
    def rule(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        for scalar in scalars:
            of_rank(scalar, shapes.get(scalar), 0)
        variable: Shape | None = None
        for state in states:
            variable = same((states[0], state), variable, shapes.get(state))
        found = shapes.get(gradient)
        if not rows:
            variable = same((states[0], gradient), variable, found)
        else:
            (length,) = of_rank("indices", shapes.get("indices"), 1)
            if variable == ():
                checks.at_least_vector("var", np.empty(()))
            whole = found if variable is None else variable
            same(("a row of var for each of indices", gradient), whole and (length, *whole[1:]), found)
        return dict.fromkeys(outputs, variable)

    return rule


def _assigned(shapes: Mapping[str, Any], values: Mapping[str, Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    found = shapes.get("value")
    validate = attributes.get("validate_shape", True)
    return {"output_ref": same(("ref", "value"), shapes.get("ref"), found) if validate else found}


# Declarations

OF_ONE_SHAPE = "InvalidArgumentError: {} differ in shape"
SCALARS = "InvalidArgumentError: {} is not a scalar"
MEMORY = "OutOfMemoryError: the results do not fit into memory"
TYPES = "DTypeError: a type that is not listed"
ROW_ERRORS = (
    "InvalidArgumentError: var is a scalar, indices is not a vector, or grad has not one row, like those of var, for "
    "each index",
    "OutOfRangeError: an index is not in [0, rows of var)",
)
ROUNDED = "Half and bfloat16 are computed in float32, and each result is rounded once; TensorFlow rounds in between."
IN_ORDER = (
    "Only the rows in indices change. A row that occurs more than once is changed each time, in the order of indices, "
    "which is slow if it occurs very often: sum such gradients first, as the compact gradients (GradV2) do."
)
STATES = {
    "var": "The variable.",
    "accum": "Its sums of squared gradients.",
    "m": "Its first moment: the decaying mean of the gradients.",
    "v": "Its second moment: the decaying mean of their squares.",
}
SCALAR_DOCS = {
    "alpha": "The learning rate.",
    "lr": "The learning rate.",
    "beta1_power": "beta1 to the power of the number of steps so far, this one included.",
    "beta2_power": "beta2 to the power of the number of steps so far, this one included.",
    "beta1": "The decay rate of the first moment.",
    "beta2": "The decay rate of the second moment.",
    "epsilon": "Added to the root of the second moment, to avoid division by 0.",
}
ADAGRAD_FORMULA = "accum_out = accum + grad²   (accum, without update_slots)\nout = var − lr · grad / sqrt(accum_out)"
ADAM_FORMULA = (
    "rate = lr · sqrt(1 − beta2_power) / (1 − beta1_power)\n"
    "m_out = m + (grad − m) · (1 − beta1)\n"
    "v_out = v + (grad² − v) · (1 − beta2)\n"
    "out = var − rate · m_out / (sqrt(v_out) + epsilon)"
)
USE_LOCKING = Attribute("use_locking", False, "Has no effect: nothing is changed in place.", passed=False)
UPDATE_SLOTS = Attribute("update_slots", True, "Whether the sums of squares grow; without it they stay as they are.")
USE_NESTEROV = Attribute(
    "use_nesterov", False, "Whether the gradient counts once more: grad · (1 − beta1) + beta1 · m_out for m_out."
)


def _declare(name: str, summary: str, states: tuple[str, ...], scalars: tuple[str, ...], formula: str,
             compute: Callable[..., Any], example: Mapping[str, Any], results: Mapping[str, Any], *,
             gradient: str = "grad", result: type | None = None, attributes: tuple[Attribute, ...] = (),
             rows: bool = False, in_tensorflow: bool = True) -> None:  # fmt: skip
    outputs = {state: "out" if state == "var" else f"{state}_out" for state in states}
    whole, part = ("[V, ...]", "[N, ...]") if rows else ("[...]", "[...]")
    same = [*states] if rows else [*states, gradient]
    declare(Operator(
        name=name,
        function=None,
        family="updates",
        summary=summary,
        inputs=(
            *(Pin(state, "T", whole, STATES[state]) for state in states),
            *(Pin(scalar, "T", "[]", SCALAR_DOCS[scalar]) for scalar in scalars),
            Pin(gradient, "T", part, f"The gradient of {'each row in indices' if rows else 'the variable'}."),
            *((Pin("indices", "Tindices", "[N]", "The rows that change."),) if rows else ()),
        ),
        outputs=tuple(Pin(out, "T", whole, f"The new value of {state}.") for state, out in outputs.items()),
        types={"T": FLOATS} | ({"Tindices": IDS} if rows else {}),
        attributes=(USE_LOCKING, *attributes) if in_tensorflow else attributes,
        formula=("for each i, in order, with row indices[i] of each state, and row i of grad:\n"
                 if rows else "") + formula,
        errors=(
            *((OF_ONE_SHAPE.format(" or ".join([", ".join(same[:-1]), same[-1]])),) if len(same) > 1 else ()),
            SCALARS.format(" or ".join([", ".join(scalars[:-1]), scalars[-1]] if len(scalars) > 1 else scalars)),
            *(ROW_ERRORS if rows else ()),
            MEMORY,
            TYPES,
        ),
        cost="O(V · width), to copy what does not change, and O(N · (width + log N))." if rows else "O(size of var).",
        example=Example(example, results),
        compute=compute,
        result=result,
        notes=f"{IN_ORDER} {ROUNDED}" if rows else ROUNDED,
        in_tensorflow=in_tensorflow,
        shape_rule=_shape_rule(states, scalars, gradient, tuple(outputs.values()), rows=rows),
        updates=outputs,
    ))  # fmt: skip


declare(Operator(
    name="Assign",
    function=None,
    family="updates",
    summary="Give a variable a new value.",
    inputs=(
        Pin("ref", "T", "[...]", "The variable."),
        Pin("value", "T", "[...]", "Its new value, of the same shape."),
    ),
    outputs=(Pin("output_ref", "T", "[...]", "The new value."),),
    types={"T": PLAIN},
    formula="output_ref = value",
    errors=(OF_ONE_SHAPE.format("ref and value"), MEMORY, TYPES),
    cost="O(size of value).",
    example=Example({"ref": [1.0, 2.0], "value": [3.0, 4.0]}, {"output_ref": [3.0, 4.0]}),
    compute=_assign,
    attributes=(
        Attribute("validate_shape", True, "Whether the new value must have the shape of the variable."),
        Attribute("use_locking", True, USE_LOCKING.doc, passed=False),
    ),
    shape_rule=_assigned,
    updates={"ref": "output_ref"},
))  # fmt: skip

ADAM_NUMBERS = dict(zip(ADAM_SCALARS, (0.5, 0.75, 0.5, 0.5, 0.75, 1.0), strict=True))

_declare(
    "ApplyGradientDescent", "One step of gradient descent.", ("var",), ("alpha",), "out = var − alpha · delta",
    _apply_gradient_descent, {"var": [[1.0, 2.0], [3.0, 4.0]], "alpha": 0.5, "delta": [[2.0, 0.0], [-2.0, 1.0]]},
    {"out": [[0.0, 2.0], [4.0, 3.5]]}, gradient="delta",
)  # fmt: skip
_declare(
    "ApplyAdagrad", "One step of Adagrad: gradients are divided by the root of the sum of all squares so far.",
    ("var", "accum"), ("lr",), ADAGRAD_FORMULA, _apply_adagrad,
    {"var": [1.0, 2.0], "accum": [7.0, 0.0], "lr": 0.5, "grad": [3.0, -1.0]},
    {"out": [0.625, 2.5], "accum_out": [16.0, 1.0]}, result=AdagradUpdate, attributes=(UPDATE_SLOTS,),
)  # fmt: skip
_declare(
    "ApplyAdam", "One step of Adam.", ("var", "m", "v"), ADAM_SCALARS, ADAM_FORMULA, _apply_adam,
    {"var": [1.0, 2.0], "m": [0.0, 1.0], "v": [0.0, 4.0], **ADAM_NUMBERS, "grad": [2.0, -2.0]},
    {"out": [0.75, 2.083333], "m_out": [1.0, -0.5], "v_out": [1.0, 4.0]}, result=AdamUpdate, attributes=(USE_NESTEROV,),
)  # fmt: skip

_declare(
    "SparseApplyGradientDescent", "One step of gradient descent for some rows of a variable.", ("var",), ("alpha",),
    "out = var − alpha · grad", _sparse_descent,
    {"var": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "alpha": 0.5, "grad": [[2.0, 4.0], [1.0, 1.0]], "indices": [2, 0]},
    {"out": [[0.5, 1.5], [3.0, 4.0], [4.0, 4.0]]}, rows=True, in_tensorflow=False,
)  # fmt: skip
_declare(
    "SparseApplyAdagrad", "One step of Adagrad for some rows of a variable.", ("var", "accum"), ("lr",),
    ADAGRAD_FORMULA, _sparse_adagrad,
    {"var": [[1.0], [2.0], [3.0]], "accum": [[7.0], [1.0], [0.0]], "lr": 0.5, "grad": [[3.0], [-1.0]],
     "indices": [0, 2]},
    {"out": [[0.625], [2.0], [3.5]], "accum_out": [[16.0], [1.0], [1.0]]}, result=AdagradUpdate,
    attributes=(UPDATE_SLOTS,), rows=True,
)  # fmt: skip
_declare(
    "SparseApplyAdam", "One step of lazy Adam: only some rows of a variable, and of its moments, change.",
    ("var", "m", "v"), ADAM_SCALARS, ADAM_FORMULA, _sparse_adam,
    {"var": [[1.0], [2.0]], "m": [[0.5], [0.0]], "v": [[0.5], [0.0]], **ADAM_NUMBERS, "grad": [[2.0]], "indices": [1]},
    {"out": [[1.0], [1.75]], "m_out": [[0.5], [1.0]], "v_out": [[0.5], [1.0]]}, result=AdamUpdate, rows=True,
    in_tensorflow=False,
)  # fmt: skip
