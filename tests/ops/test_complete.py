"""A new operator brings all that belongs to one; what is missing fails here, with the name of the operator.

Those that only `raw_ops` has, without a function, are compared with plain loops in a file of their family's name.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden
import naive
import strategies
from adversary import targets
from optional import framework
from rowgrad._cli import warm
from rowgrad._ops import OPERATORS, Operator

EVERY = pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
FUNCTIONS = [operator for operator in OPERATORS.values() if operator.function]
EACH = pytest.mark.parametrize("operator", FUNCTIONS, ids=lambda operator: operator.name)
OTHERS = [operator for operator in OPERATORS.values() if not operator.function]


@EACH
def test_there_is_a_naive_form(operator: Operator) -> None:
    assert hasattr(naive, str(operator.function)), f"tests/naive.py has no {operator.function} for {operator.name}"


@EACH
def test_there_is_a_strategy_for_every_type(operator: Operator) -> None:
    assert operator.function in strategies.OPERATORS, f"tests/strategies.py has none for {operator.name}"
    _, drawn = strategies.OPERATORS[operator.function]
    missing = set(operator.types.get("T", ())) - set(map(golden.dtype_name, drawn))
    assert not missing, f"the strategy of tests/strategies.py for {operator.name} draws no {sorted(missing)}"


def example(operator: Operator) -> list[Any]:
    """The arguments of the worked example, text as numbers."""
    inputs = operator.example.inputs
    many = {pin.name for pin in operator.inputs if pin.many}
    plain = {name: list(map(ord, value)) if name not in many and np.array(value).dtype.kind == "U" and np.ndim(value)
             else value for name, value in inputs.items()}  # fmt: skip
    plain = {name: ord(value) if isinstance(value, str) else value for name, value in plain.items()}
    return [fitter.fit(plain[fitter.pin.name]) for fitter in operator.fitters]


def check(operator: Operator, found: Any) -> None:
    """The same as NumPy's result, to rounding."""
    expected = operator(*example(operator), **operator.example.attributes)
    both = (expected, found) if isinstance(expected, tuple) else ((expected,), (found,))
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(np.asarray(other), one, rtol=1e-5)


@EACH
@pytest.mark.parametrize("has_form", [True, False], ids=["by its form", "by way of the host"])
def test_it_works_on_other_devices_in_jax(operator: Operator, has_form: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a form of its own, or, where it has none yet, by the kernels on the host."""
    framework("jax")
    import rowgrad.jax
    from rowgrad.jax import _forms, _functions

    monkeypatch.setattr(_forms, "FORMS", _forms.FORMS if has_form else {})
    with rowgrad.jax.portable():
        function = _functions.FUNCTIONS[str(operator.function)]
        check(operator, function(*example(operator), **operator.example.attributes))


@EACH
@pytest.mark.parametrize("has_form", [True, False], ids=["by its form", "by way of the CPU"])
def test_it_works_on_other_devices_in_pytorch(operator: Operator, has_form: bool) -> None:
    torch = framework("torch")
    from rowgrad.torch import _kernels
    from rowgrad.torch._schema import Role, roles

    values = [
        array.tolist() if role is Role.SIZES
        else list(map(torch.from_numpy, array)) if role is Role.TENSORS
        else torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        for role, array in zip(roles(operator), example(operator), strict=True)
    ]  # fmt: skip
    kernel = _kernels.device_kernel(operator) if has_form else _kernels._by_way_of_cpu(operator)
    given = {attribute.name: attribute.default for attribute in operator.attributes} | operator.example.attributes
    check(operator, kernel(*values, **given))


@EVERY
def test_it_is_compiled_beforehand(operator: Operator) -> None:
    labels = {label for label, _ in warm.tasks()}
    missing = {dtype for dtype in operator.types.get("T", ("",)) if f"{operator.name} {dtype}".strip() not in labels}
    assert not missing, f"`rowgrad doctor --warm` does not compile {operator.name} for {sorted(missing)}"


@EVERY
def test_it_can_be_attacked(operator: Operator) -> None:
    """The adversary enlarges the worked example, and raises if that gives no call that works."""
    assert targets.of_operator(operator, targets.REPEATS[1]).results()


@pytest.mark.parametrize("operator", OTHERS, ids=lambda operator: operator.name)
def test_one_without_a_function_is_tested_by_family(operator: Operator) -> None:
    path = Path(__file__).with_name(f"test_{operator.family}.py")
    assert re.search(rf"\b{operator.name}\b", path.read_text()), f"{path.name} does not name {operator.name}"
