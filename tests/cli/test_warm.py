"""Everything that can be compiled is compiled beforehand, and people are told while it takes long."""

import sys
from contextlib import suppress
from importlib import util
from typing import Any

import pytest

import rowgrad
from rowgrad import _kernels as kernels
from rowgrad._cli.warm import tasks
from rowgrad._ops import OPERATORS, Operator
from rowgrad._ops.attributes import check_attributes
from rowgrad._ops.enlarged import backwards, enlarged, entries, first_accepted
from rowgrad._runtime import dtypes, team


def test_every_operator_is_warmed_for_every_type() -> None:
    labels = {label for label, _ in tasks()}
    for operator in OPERATORS.values():
        for dtype in operator.types.get("T", ("",)):
            assert f"{operator.name} {dtype}".strip() in labels


ENTRIES = (1, 700, 20_000, 400_000)
# Some types and one width: whatever can be compiled would take ten minutes.
OTHERS = {*dtypes.NUMPY, "string"} - {"float32", "int32", "complex64"}


def _is_sample(label: str) -> bool:
    """Whether it is one of the tasks that reach every kernel."""
    if label.endswith(" wide"):
        return label.endswith(" 64 wide")
    return label.startswith("large ") or not OTHERS & set(label.split())


def test_a_team_that_was_late_is_warmed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "_alone", 5)
    next(task for label, task in tasks() if label == "SparseSegmentSum float32")()
    assert not team.is_left_alone()


@pytest.mark.slow
def test_every_kernel_is_warmed() -> None:
    for label, task in tasks():
        if _is_sample(label):
            task()
    for module in kernels.MODULES:
        getattr(kernels, module)  # loads it
    cold = {name for name, kernel in kernels.compile.KERNELS.items() if not kernel.signatures}
    for framework, modules in (("torch", ("tables", "tables_grad", "tables_step", "exchanging")), ("jax", ("xla_",))):
        if util.find_spec(framework) is None:
            cold = {name for name in cold if not name.startswith(modules)}
    assert cold <= {"clear.clear", "sharing.watch"}  # the first large result, the first helper
    for operator in OPERATORS.values():
        for size in ENTRIES:
            _check_nothing_is_compiled(operator, size)


def _check_nothing_is_compiled(operator: Operator, size: int) -> None:
    attributes = check_attributes(operator, dict(operator.example.attributes))
    dtype = "float32" if "float32" in operator.types.get("T", ()) else None
    forms = enlarged(operator, size // entries(operator) + 1, dtype)
    before = _compiled()
    form = first_accepted(lambda form: operator(*form.values(), **attributes), forms)
    with suppress(rowgrad.InvalidArgumentError):  # some ask for an order
        operator(*backwards(operator, form).values(), **attributes)
    new = {name: found - before[name] for name, found in _compiled().items() if found != before[name]}
    assert new.keys() <= {"clear.clear", "sharing.watch"}, f"{operator.name} with {size} entries compiles {new}"


def _compiled() -> dict[str, set[Any]]:
    return {name: set(kernel.signatures) for name, kernel in kernels.compile.KERNELS.items()}


def test_a_person_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import numba

    monkeypatch.setattr(kernels.compile, "PATIENCE", 0.0)
    slow = numba.njit(lambda x: sum([x * 2 for _ in range(3)]))
    monkeypatch.setitem(kernels.compile.KERNELS, "slow", slow)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert slow(1) == 6
    assert "rowgrad: compiling kernels" in capsys.readouterr().err


def test_nobody_is_told_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import numba

    monkeypatch.setattr(kernels.compile, "PATIENCE", 0.0)
    slow = numba.njit(lambda x: sum([x * 3 for _ in range(3)]))
    monkeypatch.setitem(kernels.compile.KERNELS, "slow", slow)
    assert slow(1) == 9
    assert capsys.readouterr().err == ""
