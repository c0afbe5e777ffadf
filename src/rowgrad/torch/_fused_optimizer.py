"""A fused optimizer as a `torch.optim.Optimizer`, for schedulers, gradient scalers, checkpoints and trainers.

The layers change their tables in the backward pass; here are the settings that they use, and their state.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rowgrad.errors import InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.torch._fused import unscaled
from rowgrad.torch._groups import GroupSettings, settings_of


class HasFusedOptimizer(Protocol):
    """A table, its optimizer and its state: an `EmbeddingBag`, or a `FusedTable`."""

    @property
    def weight(self) -> Tensor: ...
    @property
    def fused_optimizer(self) -> Any: ...
    @property
    def fused_state(self) -> dict[str, Tensor]: ...


class FusedTable(NamedTuple):
    """A table that belongs to no layer of its own."""

    weight: Tensor
    fused_optimizer: Optimizer
    fused_state: dict[str, Tensor]


class FusedOptimizer(torch.optim.Optimizer):
    """The optimizer that a layer has fused into its backward pass, as PyTorch's tools know optimizers.

    What stands in the parameter groups is what the next backward pass uses, so learning-rate schedulers work. Each
    backward pass is a step; `step` and `zero_grad` do nothing, and may be called as those of any other optimizer.
    Layers make it: `EmbeddingBag.optimizer`.

    Parameters
    ----------
    tables : mapping of str
        By name, what has a `weight`, a `fused_optimizer` and a `fused_state`: layers, or `FusedTable`. Tables with one
        and the same optimizer are one parameter group.

    Attributes
    ----------
    skipped_steps : int
        How many steps were left out because gradients were not finite, under a gradient scaler.

    Examples
    --------
    >>> import torch
    >>> from rowgrad import optim
    >>> from rowgrad.torch import EmbeddingBag
    >>> from rowgrad.torch._fused_optimizer import FusedOptimizer
    >>> bag = EmbeddingBag(1000, 4, fused_optimizer=optim.Adagrad(lr=0.5))
    >>> optimizer = FusedOptimizer({"weight": bag})
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    >>> bag(torch.tensor([[7, 7, 1]])).sum().backward()
    >>> optimizer.step()
    >>> scheduler.step()
    >>> optimizer.optimizer_for("weight").lr
    0.05
    """

    def __init__(self, tables: Mapping[str, HasFusedOptimizer]) -> None:
        self._tables = dict(tables)
        self._scaler: torch.amp.GradScaler | None = None
        self._found = torch.zeros(())  # stands among the parameters under a scaler, with a gradient to look at
        self._found_in: Any = None
        self.skipped_steps = 0
        sharing: dict[int, list[str]] = {}
        for name, table in self._tables.items():
            sharing.setdefault(id(table.fused_optimizer), []).append(name)
        self._kept = [_Group(tuple(names), self._tables[names[0]].fused_optimizer) for names in sharing.values()]
        self._group_of = {name: place for place, kept in enumerate(self._kept) for name in kept.names}
        self._complete = False
        groups = [
            {"params": [self._tables[name].weight for name in kept.names], "param_names": list(kept.names),
             **settings_of(kept.given)}
            for kept in self._kept
        ]  # fmt: skip
        super().__init__(groups, {})
        # Schedulers look here for what all groups have.
        self.defaults = {key: value for key, value in groups[0].items() if all(key in each for each in groups)
                         and key not in ("params", "param_names")}  # fmt: skip
        self._complete = True

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_tables", "_scaler", "_found", "_found_in", "skipped_steps", "_kept", "_group_of", "_complete")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in kept}}

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """The state of each table, in the memory of its layer."""
        return {table.weight: dict(table.fused_state) for table in self._tables.values() if table.fused_state}

    @state.setter
    def state(self, value: Any) -> None:
        """Layers keep the state; PyTorch assigns an empty one at the beginning."""

    def groups(self) -> list[tuple[tuple[str, ...], Optimizer]]:
        """The names of the tables of each parameter group, and the optimizer with the settings that it has now.

        The optimizer is the same object as before unless a setting has changed.
        """
        return [(kept.names, self._current(place)) for place, kept in enumerate(self._kept)]

    def optimizer_for(self, name: str) -> Optimizer:
        """The optimizer of a table, with the settings that its parameter group has now."""
        return self._current(self._group_of[name])

    def _current(self, place: int) -> Optimizer:
        kept = self._kept[place]
        return kept.current(self.param_groups[place], self._tables[kept.names[0]].fused_optimizer)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: each table belongs to a layer."""
        if self._complete:
            raise InvalidArgumentError(
                "a fused optimizer changes the tables of its layer, and no other parameters. Give them to an optimizer "
                "of torch.optim.",
                code="wrong-argument",
                argument="param_group",
            )
        # PyTorch keeps its compiler out of this method, for which it loads it: a second of the first backward pass.
        add = torch.optim.Optimizer.add_param_group
        getattr(add, "__wrapped__", add)(self, param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do nothing: the backward pass was the step. A closure is called, and what it returns is returned."""
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: tables with a fused optimizer have no gradient."""

    # The scale of the loss

    @property
    def grad_scaler(self) -> torch.amp.GradScaler | None:
        """The scaler that multiplies the loss; assign it before the first backward pass.

        Gradients are then divided by its scale, and tables stay as they are where gradients are not finite. `step`,
        `unscale_` and `update` of the scaler may be called as for any other optimizer.
        """
        return self._scaler

    @grad_scaler.setter
    def grad_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        params = self.param_groups[0]["params"]
        params[:] = [each for each in params if each is not self._found]
        self._scaler = scaler
        if scaler is not None:
            self._found.grad, self._found_in = torch.zeros(()), None
            params.append(self._found)

    def unscaled(self, grad: Tensor) -> Tensor | None:
        """The gradient without the scale of the loss; None if it is not finite, and the step has to be left out."""
        if self._scaler is None:
            return grad
        found = unscaled(grad, self._scaler)
        state = self._scaler.state_dict()
        period = state.get("scale"), state.get("_growth_tracker")  # each `update` of the scaler changes one of them
        if period != self._found_in:
            self._found.grad, self._found_in = torch.zeros(()), period
        if found is None:
            self.skipped_steps += 1
            self._found.grad = torch.full((), torch.inf)
        return found

    # Saving and loading

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave: settings of groups, and the state of tables by their names.

        Raises `InvalidArgumentError`, before anything is changed, if it is of other tables or of another optimizer.
        """
        saved: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        for group in state_dict["param_groups"]:
            settings = {key: value for key, value in group.items() if key not in ("params", "param_names")}
            for number, name in zip(group["params"], group.get("param_names", ()), strict=False):
                saved[name] = settings, state_dict["state"].get(number, {})
        if saved.keys() != self._tables.keys():
            raise _misfit(f"it has the tables {sorted(saved)}, but this optimizer has {sorted(self._tables)}")
        for kept in self._kept:
            first = saved[kept.names[0]][0]
            if any(saved[name][0] != first for name in kept.names):
                raise _misfit(f"the tables {sorted(kept.names)} have one optimizer here, but had several")
            kept.check(first)
        for name, table in self._tables.items():
            shapes = {key: value.shape for key, value in table.fused_state.items()}
            found = {key: value.shape for key, value in saved[name][1].items()}
            if shapes != found:
                raise _misfit(f"the state of {name} is {_told(found)}, but that of the table here {_told(shapes)}")
        with torch.no_grad():
            for name, table in self._tables.items():
                for key, value in table.fused_state.items():
                    value.copy_(saved[name][1][key])
        for kept, group in zip(self._kept, self.param_groups, strict=True):
            group.update(saved[kept.names[0]][0])


class WithOptimizer:
    """What a layer and a collection have because of their `optimizer`."""

    @property
    def optimizer(self) -> FusedOptimizer | None:
        raise NotImplementedError

    @property
    def grad_scaler(self) -> torch.amp.GradScaler | None:
        """The scaler that multiplies the loss. Assign it: fused optimizers then divide gradients by its scale.

        Where gradients of one table are not finite, no table is changed.
        """
        return None if self.optimizer is None else self.optimizer.grad_scaler

    @grad_scaler.setter
    def grad_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        if self.optimizer is not None:
            self.optimizer.grad_scaler = scaler

    @property
    def skipped_steps(self) -> int:
        """How many steps were left out because gradients were not finite."""
        return 0 if self.optimizer is None else self.optimizer.skipped_steps


class _Group:
    """The settings of a parameter group: those that were given, and those that the group has now."""

    def __init__(self, names: tuple[str, ...], given: Optimizer) -> None:
        self.names = names
        self._take(given)

    def _take(self, given: Optimizer) -> None:
        self.given, self._seen = given, settings_of(given)
        self._settings = GroupSettings(type(given), self._seen)

    def current(self, group: dict[str, Any], given: Optimizer) -> Optimizer:
        """The settings of the group; what was assigned to the optimizer that was given goes into the group first."""
        if given is not self.given:
            for name in self._seen:
                group.pop(name, None)
            self._take(given)
            group.update(self._seen)
        elif vars(given) != self._seen:
            now = settings_of(given)
            group.update({name: value for name, value in now.items() if value != self._seen[name]})
            self._seen = now
        return self._settings.of(group)

    def check(self, settings: dict[str, Any]) -> None:
        """Whether these are settings of the optimizer, with allowed values."""
        GroupSettings(type(self.given), self._seen).of(settings)


def _told(shapes: dict[str, Any]) -> str:
    return ", ".join(f"{name} of shape {list(shape)}" for name, shape in sorted(shapes.items())) or "empty"


def _misfit(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the state_dict does not fit: {why}. Load one of the same tables and optimizers.",
        code="wrong-state",
        argument="state_dict",
    )
