"""The optimizers of `rowgrad.optim` as a PyTorch optimizer, for parameters whose gradients are sparse.

Gradients that are not coalesced, as `torch.nn.EmbeddingBag(sparse=True)` makes them, are summed and applied in one
pass.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch

from rowgrad._ops.results import RowGradient
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.optim import Optimizer


class RowOptimizer(torch.optim.Optimizer):
    """Changes the rows of parameters that their sparse gradients have, by an optimizer of `rowgrad.optim`.

    Settings stand in the parameter groups, so learning-rate schedulers work, and groups may differ in each of them.
    State is kept as PyTorch keeps it, in `state`, and goes with `state_dict`; a run that is saved and loaded continues
    bit for bit.

    Parameters
    ----------
    params : iterable of parameters, or of dicts that define groups
        They must be on the CPU, of a float type; 16-bit types have float32 state.
    optimizer : rowgrad.optim.Optimizer
        The formula, and the settings of groups that have no others.

    Raises
    ------
    DTypeError
        `optimizer` is none of `rowgrad.optim`.
    InvalidArgumentError
        A setting of a group has a value that is not allowed.

    Examples
    --------
    >>> import torch
    >>> from rowgrad import optim
    >>> from rowgrad.torch._optim import RowOptimizer
    >>> bag = torch.nn.EmbeddingBag(1000, 4, mode="sum", sparse=True)
    >>> optimizer = RowOptimizer(bag.parameters(), optim.Adagrad(lr=0.5))
    >>> before = bag.weight.detach().clone()
    >>> bag(torch.tensor([7, 7, 1]), torch.tensor([0])).sum().backward()
    >>> optimizer.step()
    >>> changed = before - bag.weight.detach()
    >>> torch.nonzero(changed.sum(1)).flatten().tolist()
    [1, 7]
    """

    def __init__(self, params: Any, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DTypeError(
                f"optimizer is a {type(optimizer).__name__}; pass one of rowgrad.optim, such as optim.Adagrad(lr=0.1).",
                code="wrong-dtype",
                argument="optimizer",
                value=type(optimizer).__name__,
            )
        self.rule = type(optimizer)
        super().__init__(params, {name: getattr(optimizer, name) for name in optimizer.settings()})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rule": self.rule}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own; those that are missing are as given to the optimizer."""
        if isinstance(param_group, dict):
            self._of({**self.defaults, **param_group})  # wrong settings are told now
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        super().load_state_dict(state_dict)
        # PyTorch casts state to the type of its parameter, which would round that of 16-bit tables.
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(numbers, own, strict=True):
            if number in state_dict["state"]:
                saved = state_dict["state"][number]
                self.state[parameter] = {
                    name: value.detach().clone(memory_format=torch.contiguous_format)
                    if isinstance(value, torch.Tensor)
                    else value
                    for name, value in saved.items()
                }

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change all parameters that have a gradient.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss again, and its gradients; what it returns is returned.

        Raises
        ------
        InvalidArgumentError
            A gradient is dense, or sparse in more than its rows; then no parameter is changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [
            (self._of(group), parameter, _checked(parameter.grad))
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        for optimizer, parameter, grad in work:
            if not self.state[parameter]:
                self.state[parameter] = optimizer.init(parameter)
            rows, values = grad._indices()[0], grad._values()
            if grad.is_coalesced():
                optimizer.step(parameter, RowGradient(values, rows), self.state[parameter])
            else:
                # Each entry is a segment of its own: sum and step in one pass, and PyTorch need not sort.
                entries = torch.arange(rows.numel())
                optimizer.step_pooled(parameter, values, rows, entries, self.state[parameter], combiner="sum")
        return loss

    def _of(self, group: dict[str, Any]) -> Optimizer:
        """The optimizer with the settings of a group; schedulers may keep numbers as tensors."""
        settings = {name: group.get(name, self.defaults[name]) for name in self.rule.settings()}
        return self.rule(
            **{name: value.item() if isinstance(value, torch.Tensor) else value for name, value in settings.items()}
        )


def _checked(grad: Any) -> Any:
    grad = grad.detach()
    if grad.layout is not torch.sparse_coo:
        raise InvalidArgumentError(
            f"a gradient is {str(grad.layout).removeprefix('torch.')}, and a RowOptimizer changes the rows that sparse "
            "gradients have. Give this parameter to an optimizer of torch.optim, or look it up with sparse=True.",
            code="not-sparse",
            argument="params",
            value=str(grad.layout),
        )
    if grad.sparse_dim() != 1:
        raise InvalidArgumentError(
            f"a gradient is sparse in {grad.sparse_dim()} dimensions; it must have whole rows, and be sparse in the "
            "first dimension alone.",
            code="not-sparse",
            argument="params",
            value=grad.sparse_dim(),
        )
    return grad
