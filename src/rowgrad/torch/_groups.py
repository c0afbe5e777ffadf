"""Settings of `rowgrad.optim` in the parameter groups of a PyTorch optimizer."""

from typing import Any

import torch

from rowgrad.optim import Optimizer


def settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """All settings, as a parameter group holds them."""
    return {name: getattr(optimizer, name) for name in optimizer.settings()}


class GroupSettings:
    """The optimizer that a parameter group describes, rebuilt only when a setting of the group has changed."""

    def __init__(self, rule: type[Optimizer], defaults: dict[str, Any]) -> None:
        self._rule = rule
        self._names, self._defaults = rule.settings(), defaults
        self._values: list[Any] | None = None
        self._optimizer: Optimizer

    def of(self, group: dict[str, Any]) -> Optimizer:
        """The optimizer with the settings that the group has now; schedulers may keep numbers as tensors."""
        values: list[Any] = [*map(group.get, self._names)]
        if values == self._values:
            return self._optimizer
        settings: dict[str, Any] = {
            name: value.item() if isinstance(value, torch.Tensor) else value
            for name, value in ((name, group.get(name, self._defaults.get(name))) for name in self._names)
        }
        self._optimizer = self._rule(**settings)
        # A tensor may be filled with another number, and has to be looked at each time.
        self._values = None if any(isinstance(value, torch.Tensor) for value in values) else values
        return self._optimizer
