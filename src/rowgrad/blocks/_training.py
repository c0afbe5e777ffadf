"""Training as a derived group: for each variable its slots and its update, by one of the catalogue's optimizers.

An optimizer is read off its operators (``ApplyAdagrad``, ``SparseApplyAdagrad``): what they update are the variable and
its slots, and what else they take are the gradient and the settings. Only the defaults stand here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rowgrad._ops.attributes import check_attribute
from rowgrad._ops.results import RowGradient
from rowgrad._runtime import dtypes
from rowgrad.blocks._core import Core
from rowgrad.blocks._gradients import Builder
from rowgrad.blocks.groups import Recipe
from rowgrad.blocks.model import Block, Wire, upstream
from rowgrad.blocks.operators import BLOCKS
from rowgrad.errors import PageError, RowgradError

GRADIENT, INDICES = ("grad", "delta"), "indices"
# Settings that change from step to step: a variable of their own, its first value, and what each step makes of it.
POWERS = {"beta1_power": "beta1", "beta2_power": "beta2"}
COUNT = "global_step"


@dataclass(frozen=True)
class Optimizer:
    """An optimizer: its settings with their defaults, its slots with their initial values, its attributes."""

    name: str
    settings: Mapping[str, float]
    slots: Mapping[str, float]
    attributes: tuple[str, ...]


def _optimizer(name: str, slots: Mapping[str, float], **settings: float) -> Optimizer:
    operator = BLOCKS[f"Apply{name}"]
    states = [state for state in operator.updates if state != "var"]
    attributes = tuple(attribute.name for attribute in operator.attributes if attribute.name != "use_locking")
    return Optimizer(name, settings, {state: slots.get(state, 0.0) for state in states}, attributes)


OPTIMIZERS: dict[str, Optimizer] = {
    optimizer.name: optimizer
    for optimizer in (
        _optimizer("GradientDescent", {}, alpha=0.01),
        _optimizer("Momentum", {}, lr=0.01, momentum=0.9),
        _optimizer("Adagrad", {"accum": 0.1}, lr=0.01),
        _optimizer("AdagradV2", {"accum": 0.1}, lr=0.01, epsilon=1e-7),
        _optimizer("Adam", {}, lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8),
        _optimizer("Ftrl", {"accum": 0.1}, lr=0.01, l1=0.0, l2=0.0, lr_power=-0.5),
        _optimizer("FtrlV2", {"accum": 0.1}, lr=0.01, l1=0.0, l2=0.0, l2_shrinkage=0.0, lr_power=-0.5),
        _optimizer("RMSProp", {}, lr=0.001, rho=0.9, momentum=0.0, epsilon=1e-7),
        _optimizer("CenteredRMSProp", {}, lr=0.001, rho=0.9, momentum=0.0, epsilon=1e-7),
        _optimizer("Adadelta", {}, lr=0.001, rho=0.95, epsilon=1e-7),
        _optimizer("AdagradDA", {"gradient_squared_accumulator": 0.1}, lr=0.01, l1=0.0, l2=0.0),
        _optimizer("ProximalAdagrad", {"accum": 0.1}, lr=0.01, l1=0.0, l2=0.0),
        _optimizer("ProximalGradientDescent", {}, alpha=0.01, l1=0.0, l2=0.0),
    )
}
OTHER_NAMES = {"sgd": "GradientDescent", **{name.casefold(): name for name in OPTIMIZERS}}


def optimizer_called(name: Any) -> Optimizer:
    """The optimizer of that name, in any case; ``SGD`` is gradient descent."""
    found = OTHER_NAMES.get(name.casefold()) if isinstance(name, str) else None
    if found is None:
        raise PageError(f"there is no optimizer {name!r}; there are: {', '.join(OPTIMIZERS)}.",
                        code="unknown-optimizer", value=name)  # fmt: skip
    return OPTIMIZERS[found]


def check_recipe(page: Core, recipe: Recipe) -> Recipe:
    """`recipe` in its plain form; what does not fit is refused."""
    optimizer = optimizer_called(recipe.optimizer)
    for wire in recipe.xs:
        if page[wire.block].operator.role != "variable":
            raise PageError("it is not a Variable; only variables can be trained.", block=wire.block,
                            code="not-a-variable", op=page[wire.block].op)  # fmt: skip
    settings: dict[str, Any] = {}
    for name, value in recipe.settings.items():
        if name == "lr" and "alpha" in optimizer.settings:
            name = "alpha"
        settings[name] = _setting(page, optimizer, name, value)
    order = [*optimizer.settings, *optimizer.slots, *optimizer.attributes]
    return replace(recipe, optimizer=optimizer.name, settings={name: settings[name] for name in order
                                                               if name in settings})  # fmt: skip


def _setting(page: Core, optimizer: Optimizer, name: str, value: Any) -> Any:
    if name in optimizer.attributes:
        operator = BLOCKS[f"Apply{optimizer.name}"]
        declared = next(attribute for attribute in operator.attributes if attribute.name == name)
        try:
            return check_attribute(operator, declared, value)
        except RowgradError as error:
            raise PageError(error.message, code=error.code or "wrong-attribute", value=value) from error
    if name not in optimizer.settings and name not in optimizer.slots:
        listed = ", ".join([*optimizer.settings, *optimizer.slots, *optimizer.attributes])
        raise PageError(f"{optimizer.name} has no setting {name}; it has: {listed}.", code="unknown-pin", value=name)
    if isinstance(value, str | Wire | Block):
        if name in optimizer.slots:
            raise PageError(f"the initial value of the slot {name} is a number, not a wire.", code="bad-literal")
        return page.wire(value)
    if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0:
        value = value.item()
    if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value):
        raise PageError(
            f"the setting {name} is a finite number or a wire, not {value!r}.", code="bad-literal", value=name
        )
    return value


def trainable(page: Core, loss: Wire) -> list[Wire]:
    """The variables of floating-point numbers that `loss` depends on, in the order of the page."""
    needed = upstream(page.__getitem__, [loss.block])
    return [Wire(block.id, "ref") for block in page
            if block.id in needed and block.operator.role == "variable"
            and page.signal(f"{block.id}:ref").dtype in (None, *dtypes.FLOATS)]  # fmt: skip


# The blocks


def add_updates(page: Core, build: Builder, recipe: Recipe, gradients: Mapping[Wire, Any]) -> set[str]:
    """Add slots and updates to the page of a derivation; gives the blocks that update something."""
    updates = _Updates(page, build, recipe)
    for wire, gradient in gradients.items():
        updates.add(wire, gradient)
    return updates.last


class _Updates:
    def __init__(self, page: Core, build: Builder, recipe: Recipe) -> None:
        self.page = page
        self.build = build
        self.recipe = recipe
        self.optimizer = optimizer_called(recipe.optimizer)
        self.shared: dict[tuple[str, str], Wire] = {}
        self.last: set[str] = set()

    def add(self, variable: Wire, gradient: Any) -> None:
        """The update of one variable."""
        rows = isinstance(gradient, RowGradient)
        operator = BLOCKS[f"{'Sparse' if rows else ''}Apply{self.optimizer.name}"]
        name = variable.block.replace("/", "_")
        given: dict[str, Any] = {}
        for pin in operator.inputs:
            if pin.name == "var":
                given["var"] = variable
            elif pin.name in operator.updates:
                given[pin.name] = self._slot(variable, name, pin.name)
            elif pin.name in GRADIENT:
                given[pin.name] = gradient.output if rows else gradient
            elif pin.name == INDICES:
                given[INDICES] = gradient.sorted_unique_indices
            elif pin.name == COUNT or pin.name in POWERS:
                given[pin.name] = self._changing(pin.name, str(self.page.signal(variable).dtype))
            else:
                given[pin.name] = self._number(pin.name)
        known = [attribute.name for attribute in operator.attributes]
        given |= {name: value for name, value in self.recipe.settings.items() if name in known}
        self.last.add(self.page.add(operator.name, self.build.free(f"train_{name}"), **given).id)

    def _number(self, name: str) -> Any:
        return self.recipe.settings.get(name, self.optimizer.settings[name])

    def _slot(self, variable: Wire, name: str, slot: str) -> Wire:
        """A variable of the shape of another, filled with one number."""
        signal = self.page.signal(variable)
        value = self.recipe.settings.get(slot, self.optimizer.slots[slot])
        number = {"value": float(value), "dtype": signal.dtype or "float32"}
        shape: Any = signal.shape
        if shape is None or not all(isinstance(size, int) for size in shape):
            first = self.page[variable.block].inputs["initial_value"]  # has its shape before there are any variables
            shape = self.page.add("Shape", self.build.free(f"{name}_{slot}_shape"), input=first)["output"]
        else:
            shape = {"value": list(shape), "dtype": "int32"} if max(shape, default=0) < 2**31 else list(shape)
        start = self.page.add("BroadcastTo", self.build.free(f"{name}_{slot}_start"), input=number, shape=shape)
        return self.page.add("Variable", self.build.free(f"{name}_{slot}"), initial_value=start)["ref"]

    def _changing(self, name: str, dtype: str) -> Wire:
        """A number that each step changes, the same for all variables of a type: a power of beta, or a count."""
        dtype = "int64" if name == COUNT else dtype
        if (name, dtype) in self.shared:
            return self.shared[name, dtype]
        label = name if all(known != name for known, _ in self.shared) else f"{name}_{dtype}"
        source: Any = None
        if name == COUNT:
            first: Any = {"value": 1, "dtype": dtype}
        else:
            source = self._number(POWERS[name])
            first = source if isinstance(source, Wire) else {"value": float(source), "dtype": dtype}
        variable = self.page.add("Variable", self.build.free(label), initial_value=first)["ref"]
        self.shared[name, dtype] = variable
        if name == COUNT:
            after = self.page.add("Add", self.build.free(f"next_{label}"), x=variable, y={"value": 1, "dtype": dtype})
        else:
            after = self.page.add("Mul", self.build.free(f"next_{label}"), x=variable, y=source)
        self.last.add(self.page.add("Assign", self.build.free(f"train_{label}"), ref=variable, value=after).id)
        return variable
