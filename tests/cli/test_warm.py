"""Everything that can be compiled is compiled beforehand, and people are told while it takes long."""

import sys

import pytest

from rowgrad import _kernels as kernels
from rowgrad._cli.warm import tasks
from rowgrad._ops import OPERATORS


def test_every_operator_with_a_kernel_is_warmed_for_every_type() -> None:
    labels = {label for label, _ in tasks()}
    for operator in OPERATORS.values():
        for dtype in operator.types.get("T", ("",)):
            has_kernels = operator.family in kernels.MODULES
            assert (f"{operator.name} {dtype}".strip() in labels) == has_kernels
    assert any(label.startswith("SparseSliceGrad ") for label in labels)


@pytest.mark.slow
def test_every_kernel_is_warmed() -> None:
    for _, task in tasks():
        task()
    kernels.fill_empty_rows, kernels.optim, kernels.clear  # noqa: B018 (loads them)
    cold = {name for name, kernel in kernels.compile.KERNELS.items() if not kernel.signatures}
    assert cold <= {"clear.clear", "sharing.watch"}  # the first large result, the first helper


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
