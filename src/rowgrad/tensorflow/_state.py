"""The state of TensorFlow's and Keras' optimizers, as `rowgrad.optim` keeps it: Adagrad, Adam and FTRL."""

from collections.abc import Mapping
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowgrad import optim
from rowgrad._runtime import dtypes
from rowgrad._runtime.dtypes import Array
from rowgrad.errors import InvalidArgumentError

if TYPE_CHECKING:
    from rowgrad.tensorflow._checkpoint import Checkpoint

# Which optimizer has which slots, and what `rowgrad.optim` calls them. Keras' names, then TensorFlow's.
_KINDS: dict[frozenset[str], tuple[str, dict[str, str]]] = {
    frozenset({"accumulator"}): ("Adagrad", {"sum": "accumulator"}),
    frozenset({"accumulator", "linear"}): ("FTRL", {"sum": "accumulator", "linear": "linear"}),
    frozenset({"momentum", "velocity"}): ("Adam", {"m": "momentum", "v": "velocity"}),
    frozenset({"m", "v"}): ("Adam", {"m": "m", "v": "v"}),
}
# Keras' names of settings, and ours. What has no counterpart must be off.
_SETTINGS = {
    "Adagrad": {},
    "Adam": {},
    "FTRL": {"l1_regularization_strength": "l1", "l2_regularization_strength": "l2", "beta": "beta",
             "l2_shrinkage_regularization_strength": "l2_shrinkage", "learning_rate_power": "lr_power"},
}  # fmt: skip
_WITHOUT = ("clipnorm", "global_clipnorm", "use_ema", "amsgrad", "loss_scale_factor", "gradient_accumulation_steps")


class Moved(NamedTuple):
    """An optimizer of `rowgrad.optim`, and where its state of one variable comes from."""

    optimizer: optim.Optimizer
    slots: dict[str, str]  # names of variables of the checkpoint, by ours
    added: float  # to the sums of Adagrad
    steps: int | None  # those made, where the optimizer counts them

    def array(self, checkpoint: "Checkpoint", name: str) -> Array:
        """The state `name`."""
        return self._summed(name, checkpoint[self.slots[name]])

    def rows(self, checkpoint: "Checkpoint", name: str, first: int, last: int) -> Array:
        """A range of its rows."""
        return self._summed(name, checkpoint.rows(self.slots[name], first, last))

    def state(self, checkpoint: "Checkpoint") -> dict[str, Array]:
        """All of it, as arrays of its own that optimizers can change."""
        found = {name: np.array(self.array(checkpoint, name)) for name in self.slots}
        return found if self.steps is None else {**found, "step": np.array(self.steps, np.int64)}

    def _summed(self, name: str, values: Array) -> Array:
        """In the type that steps are computed in, which is float32 for 16-bit variables."""
        values = values.astype(dtypes.summing(values.dtype).sums, copy=False)
        return values + values.dtype.type(self.added) if self.added and name == "sum" else values


def moved(checkpoint: "Checkpoint", name: str, settings: Mapping[str, Any]) -> Moved:
    """The optimizer that `checkpoint` has for the variable `name`; `settings` are ours, and go before the file's."""
    slots = checkpoint.slots(name)
    if frozenset(slots) not in _KINDS:
        has = f"has the state {', '.join(sorted(slots))}" if slots else "has no state of an optimizer"
        raise InvalidArgumentError(
            f"{name!r} {has}; Adagrad, Adam and FTRL can be moved.",
            code="unknown-optimizer",
            argument="name",
            value=name,
        )
    kind, ours = _KINDS[frozenset(slots)]
    kept = checkpoint.settings
    lost = [setting for setting in _WITHOUT if kept.get(setting)]
    if lost:
        raise InvalidArgumentError(
            f"the optimizer has {lost[0]} = {kept[lost[0]]!r}, which rowgrad's do not have.",
            code="bad-setting",
            argument=lost[0],
        )
    iteration = _number(checkpoint, "iteration")
    is_keras = iteration is not None or bool(kept)
    epsilon = float(kept.get("epsilon", 1e-7 if is_keras else 1e-8))
    chosen: dict[str, Any] = {}
    if (lr := settings.get("lr", _learning_rate(checkpoint))) is not None:
        chosen["lr"] = lr
    chosen |= {our: kept[theirs] for theirs, our in _SETTINGS[kind].items() if theirs in kept}
    if kept.get("clipvalue"):
        chosen["clip_value"] = kept["clipvalue"]
    added, steps = 0.0, None
    if kind == "Adagrad":
        # Keras divides by √(sum + epsilon), TensorFlow by √sum; rowgrad by √sum + eps.
        added, chosen["eps"] = (epsilon if is_keras else 0.0), 0.0
    if kind == "Adam":
        chosen |= {"eps": epsilon, "decay_untouched": True}
        chosen["betas"] = settings.get("betas", (kept.get("beta_1", 0.9), kept.get("beta_2", 0.999)))
        steps = iteration if iteration is not None else _steps(checkpoint, chosen["betas"])
    if kept.get("weight_decay"):
        kind = "AdamW" if kind == "Adam" else kind
        chosen |= {"weight_decay": kept["weight_decay"]} | (
            {} if kind == "AdamW" else {"weight_decay_mode": "decoupled"}
        )
    chosen |= settings
    if "lr" not in chosen:
        raise InvalidArgumentError(
            f"{checkpoint.path} does not have the learning rate; pass lr.", code="missing-setting", argument="lr"
        )
    optimizer = optim.from_dict({"name": kind, **chosen})
    return Moved(optimizer, {our: slots[slot] for our, slot in ours.items()}, added, steps)


def _number(checkpoint: "Checkpoint", last: str) -> Any:
    """The value of the only number whose name ends so, or None."""
    found = [v.name for v in checkpoint.variables.values() if v.shape == () and v.name.rpartition("/")[2] == last]
    return checkpoint[found[0]].item() if len(found) == 1 else None


def _learning_rate(checkpoint: "Checkpoint") -> float | None:
    kept = checkpoint.settings.get("learning_rate")
    found = kept if isinstance(kept, float) else _number(checkpoint, "learning_rate")
    return None if found is None else float(found)


def _steps(checkpoint: "Checkpoint", betas: tuple[float, float]) -> int:
    """Steps that TensorFlow's Adam has made: it keeps powers of its betas, one ahead, not the number."""
    for name, beta in zip(("beta1_power", "beta2_power"), betas, strict=True):
        power = _number(checkpoint, name)
        if power is not None and 1e-30 < power < 1 and 0 < beta < 1:
            return max(0, round(log(power) / log(beta)) - 1)
    return int(_number(checkpoint, "global_step") or 0)
