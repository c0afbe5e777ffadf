"""The backward passes of a collection: what they have for each table becomes a step of its fused optimizer, or is kept.

`_collection.py` makes a `Pass` for each call, whose `update` the pooling of each table calls in the backward pass.
"""

from typing import Any

from torch import Tensor

from rowgrad.torch import _fused as fused


class Held:
    """What the passes within `accumulate` have for each table, and whether one of them has overflowed."""

    def __init__(self) -> None:
        self.passes: dict[str, list[fused.Pass]] = {}
        self.spoiled = False


class Pass:
    """One pass forward and backward; where the loss is scaled, `begin` sees the gradients of all tables first."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection
        self.skipped = False

    def begin(self, grad: Tensor) -> Tensor | None:
        """Decide for all tables together whether the step is made; gives the gradient without the scale of the loss."""
        layer, optimizer = self.collection, self.collection.optimizer
        if optimizer is None or optimizer.grad_scaler is None:
            return grad
        for bag in layer.embedding_bags.values():
            if bag.fused_optimizer is not None:
                fused.unscaled(grad.new_empty(0, dtype=bag.weight.dtype), optimizer.grad_scaler)  # refuses float16
        found: Tensor | None = optimizer.unscaled(grad)
        self.skipped = found is None
        if self.skipped and layer._held is not None:
            optimizer.skipped_steps -= layer._held.spoiled  # the passes of a block are one step
            layer._held.spoiled = True
        return found

    def look(self, grad: Tensor) -> None:
        """The same as a hook, which leaves the gradient as it is."""
        self.begin(grad)

    def update(self, name: str, weight: Tensor, grad: Tensor, *entries: Tensor) -> None:
        """Change a table by the gradient of its pooled rows, or keep that until later."""
        layer = self.collection
        if self.skipped:
            return
        if layer.grad_scaler is not None:
            grad = grad * (1 / layer.grad_scaler.get_scale())
        self.settle(name, fused.Pass(weight, grad, *entries))

    def settle(self, name: str, one: fused.Pass) -> None:
        """Make the step of a table, or keep what it has until later."""
        layer = self.collection
        if layer._held is not None:
            layer._held.passes.setdefault(name, []).append(one.kept())
        else:
            change(layer, name, one)


def change(layer: Any, name: str, one: fused.Pass) -> None:
    """Make the step of one table."""
    layer.embedding_bags[name]._make_step(one, layer.optimizer.optimizer_for(name))
