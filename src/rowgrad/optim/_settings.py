"""What the settings of optimizers may be. Each check returns the setting as it is kept."""

from collections.abc import Callable
from math import inf, isfinite
from numbers import Real
from typing import Any

from rowgrad.errors import InvalidArgumentError


def _bad(name: str, value: Any, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} is {value!r}; it must be {allowed}.",
        code="bad-lr" if name == "lr" else "bad-setting",
        argument=name,
        value=value,
    )


def _number(name: str, value: Any, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _bad(name, value, allowed)
    try:
        number = float(value)
    except OverflowError:  # a whole number that no float holds
        number = inf
    if not isfinite(number):
        raise _bad(name, value, allowed)
    return number


def _not_negative(name: str, value: Any) -> float:
    allowed = "a finite number, 0 or more"
    number = _number(name, value, allowed)
    if number < 0:
        raise _bad(name, value, allowed)
    return number


def _share(name: str, value: Any) -> float:
    allowed = "a number from 0 to just below 1"
    number = _number(name, value, allowed)
    if not 0 <= number < 1:
        raise _bad(name, value, allowed)
    return number


def _two_shares(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise _bad(name, value, "two numbers from 0 to just below 1")
    return _share(f"{name}[0]", value[0]), _share(f"{name}[1]", value[1])


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, value, "True or False")
    return value


def _not_positive(name: str, value: Any) -> float:
    allowed = "a finite number, 0 or less"
    number = _number(name, value, allowed)
    if number > 0:
        raise _bad(name, value, allowed)
    return number


def _limit(name: str, value: Any) -> float | None:
    allowed = "a finite number above 0, or None"
    if value is None:
        return None
    number = _number(name, value, allowed)
    if number <= 0:
        raise _bad(name, value, allowed)
    return number


def _mode(name: str, value: Any) -> str:
    if value not in ("l2", "decoupled"):
        raise _bad(name, value, "'l2' or 'decoupled'")
    return str(value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "lr": _not_negative,
    "momentum": _not_negative,
    "nesterov": _switch,
    "eps": _not_negative,
    "initial_accumulator": _not_negative,
    "betas": _two_shares,
    "l1": _not_negative,
    "l2": _not_negative,
    "l2_shrinkage": _not_negative,
    "beta": _not_negative,
    "lr_power": _not_positive,
    "rho": _share,
    "centered": _switch,
    "weight_decay": _not_negative,
    "weight_decay_mode": _mode,
    "decay_untouched": _switch,
    "clip_value": _limit,
    "clip_norm": _limit,
}
