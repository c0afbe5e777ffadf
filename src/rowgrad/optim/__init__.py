"""Optimizers that update only the rows of a table that have a gradient.

`step` takes a compact gradient. `step_pooled` takes the gradient of the pooled rows: it sums and updates each row in
one pass, without storing the gradient of the table. An optimizer holds settings only; its state for a table is a dict
of arrays that `init` returns and the caller keeps.
"""

from typing import Any

from rowgrad.errors import DTypeError, InvalidArgumentError
from rowgrad.optim._base import Optimizer
from rowgrad.optim._rules import LAMB, SGD, Adagrad, Adam, AdamW, PartialRowWiseAdam, RowWiseAdagrad
from rowgrad.optim._tensorflow import FTRL, Adadelta, AdagradDA, Momentum, ProximalAdagrad, ProximalSGD, RMSprop

OPTIMIZERS: dict[str, type[Optimizer]] = {
    cls.__name__: cls
    for cls in (
        SGD, Adagrad, RowWiseAdagrad, Adam, AdamW, PartialRowWiseAdam, LAMB,
        FTRL, Momentum, RMSprop, Adadelta, AdagradDA, ProximalAdagrad, ProximalSGD,
    )
}  # fmt: skip

__all__ = [
    "FTRL", "LAMB", "SGD", "Adadelta", "Adagrad", "AdagradDA", "Adam", "AdamW", "Momentum", "Optimizer",
    "PartialRowWiseAdam", "ProximalAdagrad", "ProximalSGD", "RMSprop", "RowWiseAdagrad", "from_dict",
]  # fmt: skip


def from_dict(settings: dict[str, Any]) -> Optimizer:
    """Return the optimizer that `as_dict` described.

    Parameters
    ----------
    settings : dict
        The name of the optimizer under "name", and its settings; missing settings have their defaults.

    Raises
    ------
    DTypeError
        `settings` is not a dict.
    InvalidArgumentError
        The optimizer or a setting does not exist, or a setting has a value that is not allowed.

    Examples
    --------
    >>> from rowgrad import optim
    >>> optim.from_dict(optim.Adagrad(lr=0.1).as_dict()).eps
    1e-10
    """
    if not isinstance(settings, dict):
        raise DTypeError(
            f"the settings are a {type(settings).__name__}; pass the result of `as_dict`.",
            code="wrong-dtype",
            argument="settings",
            value=type(settings).__name__,
        )
    name = settings.get("name")
    cls = OPTIMIZERS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise InvalidArgumentError(
            f"name is {name!r}; the optimizers are {', '.join(OPTIMIZERS)}.",
            code="unknown-optimizer",
            argument="name",
            value=name,
        )
    given = {key: value for key, value in settings.items() if key != "name"}
    unknown = [key for key in given if key not in cls.settings()]
    if unknown:
        raise InvalidArgumentError(
            f"{name} has no setting {unknown[0]!r}; it has {', '.join(cls.settings())}.",
            code="unknown-setting",
            argument=str(unknown[0]),
            value=given[unknown[0]],
        )
    if "lr" not in given:
        raise InvalidArgumentError(
            "the settings have no lr, which has no default. Add it.", code="missing-setting", argument="lr"
        )
    return cls(**given)


def __dir__() -> list[str]:
    return __all__
