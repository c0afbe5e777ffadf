"""The optimizers of `rowgrad.optim` as a PyTorch optimizer, for parameters whose gradients are sparse.

Gradients that are not coalesced, as `torch.nn.EmbeddingBag(sparse=True)` makes them, are summed and applied in one
pass. A small step is one kernel call, with addresses that were checked in an earlier step.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import torch

from rowgrad._ops.results import RowGradient
from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.optim import Optimizer
from rowgrad.optim.entries import MOST, Fitted
from rowgrad.torch._groups import GroupSettings, settings_of


class RowOptimizer(torch.optim.Optimizer):
    """Updates the rows of parameters that have sparse gradients, with an optimizer of `rowgrad.optim`.

    Settings are in the parameter groups, so learning-rate schedulers work, and groups may differ in any of them. As in
    PyTorch, state is in `state` and saved by `state_dict`; a run that is saved and loaded continues bit for bit.

    Parameters
    ----------
    params : iterable of parameters, or of dicts that define groups
        They must be on the CPU and of a floating-point type; 16-bit types have float32 state.
    optimizer : rowgrad.optim.Optimizer
        The formula, and the default settings of groups.

    Raises
    ------
    DTypeError
        `optimizer` is not one of `rowgrad.optim`.
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
        self._forget()
        super().__init__(params, settings_of(optimizer))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rule": self.rule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def _forget(self) -> None:
        """Drop what is cached of groups and parameters; it is rebuilt when it is needed."""
        self._settings: list[GroupSettings] = []
        self._fitted: dict[Any, _Fitted] = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own settings; missing ones are those of the optimizer."""
        if isinstance(param_group, dict):
            GroupSettings(self.rule, self.defaults).of(param_group)  # wrong settings are reported now
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`."""
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

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Parameters
        ----------
        closure : callable, optional
            Recomputes the loss and its gradients; `step` returns its result.

        Raises
        ------
        InvalidArgumentError
            A gradient is dense, or sparse in more than its rows; then no parameter is changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        while len(self._settings) < len(self.param_groups):
            self._settings.append(GroupSettings(self.rule, self.defaults))
        work = []
        for group, settings in zip(self.param_groups, self._settings, strict=True):
            optimizer = settings.of(group)
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is not None:
                    if grad.layout is not torch.sparse_coo or grad.sparse_dim() != 1:
                        raise _not_rows(grad)
                    work.append((optimizer, parameter, grad))
        for optimizer, parameter, grad in work:
            if not self._change(optimizer, parameter, grad):
                self._change_checked(optimizer, parameter, grad)
        return loss

    def _change(self, optimizer: Optimizer, parameter: Any, grad: Any) -> bool:
        """Make a step of few entries in one call; tells whether that was possible, and changes nothing if not."""
        fitted = self._fitted.get(parameter)
        if fitted is None or not fitted.holds(optimizer, self.state):
            fitted = self._fit(optimizer, parameter, self.state[parameter])
        ids, values = grad._indices(), grad._values()
        size = ids.numel()
        if not (
            fitted is not None
            and 0 < size <= MOST
            and values.numel() == size * fitted.entries.width
            and values.dtype is parameter.dtype
            and values.is_contiguous()
            and ids.is_contiguous()
            and values.is_cpu
        ):
            return False
        formula, addresses = fitted.formula(optimizer), (ids.data_ptr(), values.data_ptr())
        if fitted.entries.change(formula, *addresses, size, ascending=grad.is_coalesced()) >= 0:
            return False  # the slow way finds out what is wrong
        fitted.count()
        torch.autograd.graph.increment_version(fitted.tensors)
        return True

    def _fit(self, optimizer: Optimizer, parameter: Any, state: dict[str, Any]) -> "_Fitted | None":
        """What is to be known of a parameter, if it can be changed at its address."""
        self._fitted.pop(parameter, None)
        plain = type(parameter) in (torch.Tensor, torch.nn.Parameter) and parameter.is_cpu and parameter.numel() > 0
        if not plain or parameter.is_inference() or optimizer.decay_untouched:
            return None
        if not state:
            state.update(optimizer.init(parameter))
        with torch.no_grad():
            fitted = self._fitted[parameter] = _Fitted(optimizer, parameter, state)
        return fitted

    @torch.no_grad()
    def _change_checked(self, optimizer: Optimizer, parameter: Any, grad: Any) -> None:
        """Make a step of any gradient."""
        grad = grad.detach()
        if not self.state[parameter]:
            self.state[parameter] = optimizer.init(parameter)
        rows, values = grad._indices()[0], grad._values()
        if grad.is_coalesced():
            optimizer.step(parameter, RowGradient(values, rows), self.state[parameter])
        else:
            # Each entry is a segment of its own: sum and step in one pass, and PyTorch need not sort.
            entries = torch.arange(rows.numel())
            optimizer.step_pooled(parameter, values, rows, entries, self.state[parameter], combiner="sum")


class _Fitted:
    """A parameter and its state, as kernels know them, and how they were when they were checked."""

    def __init__(self, optimizer: Optimizer, parameter: Any, state: dict[str, Any]) -> None:
        self.entries = Fitted(optimizer, parameter, state)
        self.tensors = (parameter, *state.values())
        self._optimizer, self._names = optimizer, tuple(state)
        self._formula: tuple[Any, Any] | None = None
        self._seen = [(each.data_ptr(), each.numel(), each.dtype) for each in self.tensors]
        # A view of the number of steps, since PyTorch takes longer to add 1 than a kernel takes for a small step.
        self._steps = state["step"].numpy() if "step" in state else None

    def holds(self, optimizer: Optimizer, states: Any) -> bool:
        """Whether all of it is as it was, and the optimizer one that remembers the same."""
        if optimizer is not self._optimizer:
            if optimizer.layout() != self._optimizer.layout() or optimizer.decay_untouched:
                return False
            self._optimizer, self._formula = optimizer, None
        if self._names:
            state = states[self.tensors[0]]
            if any(state.get(name) is not tensor for name, tensor in zip(self._names, self.tensors[1:], strict=True)):
                return False
        if self._steps is not None and not 0 <= self._steps < 2**62:
            return False
        return [(each.data_ptr(), each.numel(), each.dtype) for each in self.tensors] == self._seen

    def formula(self, optimizer: Optimizer) -> tuple[Any, Any]:
        """What kernels are to do in the next step."""
        if self._formula is not None:
            return self._formula
        rule = optimizer.rule(1 if self._steps is None else int(self._steps) + 1)
        formula = rule.token, np.array(rule.numbers)
        if self._steps is None:  # the same in each step
            self._formula = formula
        return formula

    def count(self) -> None:
        """Count a step."""
        if self._steps is not None:
            self._steps += 1


def _not_rows(grad: Any) -> InvalidArgumentError:
    if grad.layout is not torch.sparse_coo:
        return InvalidArgumentError(
            f"a gradient is {str(grad.layout).removeprefix('torch.')}, and a RowOptimizer changes the rows that sparse "
            "gradients have. Give this parameter to an optimizer of torch.optim, or look it up with sparse=True.",
            code="not-sparse",
            argument="params",
            value=str(grad.layout),
        )
    return InvalidArgumentError(
        f"a gradient is sparse in {grad.sparse_dim()} dimensions; it must have whole rows, and be sparse in the "
        "first dimension alone.",
        code="not-sparse",
        argument="params",
        value=grad.sparse_dim(),
    )
