"""A new operator brings all that belongs to one; what is missing fails here, with the name of the operator.

Operators of families without kernels are made of NumPy. They are compared with NumPy in a file of their family's name.
"""

from pathlib import Path

import pytest

import golden
import naive
import strategies
from adversary import targets
from optional import framework
from rowgrad import _kernels as kernels
from rowgrad._cli import warm
from rowgrad._ops import OPERATORS, Operator

COMPILED = [operator for operator in OPERATORS.values() if operator.family in kernels.MODULES]
EACH = pytest.mark.parametrize("operator", COMPILED, ids=lambda operator: operator.name)


@EACH
def test_there_is_a_naive_form(operator: Operator) -> None:
    assert hasattr(naive, str(operator.function)), f"tests/naive.py has no {operator.function} for {operator.name}"


@EACH
def test_there_is_a_strategy_for_every_type(operator: Operator) -> None:
    assert operator.function in strategies.OPERATORS, f"tests/strategies.py has none for {operator.name}"
    _, drawn = strategies.OPERATORS[operator.function]
    missing = set(operator.types.get("T", ())) - set(map(golden.dtype_name, drawn))
    assert not missing, f"the strategy of tests/strategies.py for {operator.name} draws no {sorted(missing)}"


@EACH
def test_there_is_a_form_in_jax(operator: Operator) -> None:
    framework("jax")
    from rowgrad.jax._forms import FORMS

    assert operator.name in FORMS, f"rowgrad/jax/_forms has none for {operator.name}"


@EACH
def test_there_is_a_portable_form_in_pytorch(operator: Operator) -> None:
    framework("torch")
    from rowgrad.torch._portable import PATHS

    assert operator.name in PATHS, f"rowgrad/torch/_portable has none for {operator.name}"


@EACH
def test_it_is_compiled_beforehand(operator: Operator) -> None:
    labels = {label for label, _ in warm.tasks()}
    missing = {dtype for dtype in operator.types.get("T", ("",)) if f"{operator.name} {dtype}".strip() not in labels}
    assert not missing, f"`rowgrad doctor --warm` does not compile {operator.name} for {sorted(missing)}"


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_it_can_be_attacked(operator: Operator) -> None:
    """The adversary enlarges the worked example, and raises if that gives no call that works."""
    assert targets.of_operator(operator, targets.REPEATS[1]).results()


@pytest.mark.parametrize("family", sorted({operator.family for operator in OPERATORS.values()} - set(kernels.MODULES)))
def test_operators_made_of_numpy_are_tested_by_family(family: str) -> None:
    assert Path(__file__).with_name(f"test_{family}.py").exists()
