"""Errors become one line, a hint, and a code."""

import pytest
import typer
from typer.testing import CliRunner

from rowgrad._cli.problems import Problem, QuietGroup
from rowgrad.errors import OutOfRangeError


def outcome(error):
    app = typer.Typer(cls=QuietGroup, pretty_exceptions_enable=False)
    app.callback()(lambda: None)

    @app.command()
    def go():
        raise error

    return CliRunner().invoke(app, ["go"])


def test_problem_with_hint():
    result = outcome(Problem("the [red]file[/red] is odd.", "fix it.", code=2))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "error: the [red]file[/red] is odd.\nhint: fix it.\n"


def test_rowgrad_error_names_the_operator():
    error = OutOfRangeError("indices[2] is 9; allowed: 0 to 2.", code="index-out-of-range", op="SparseSlice")
    result = outcome(error)
    assert (result.exit_code, result.stderr) == (1, "error: SparseSlice: indices[2] is 9; allowed: 0 to 2.\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (PermissionError(13, "Permission denied", "a.npy"), "a.npy: Permission denied."),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_other_errors_are_one_line_too(error, words):
    result = outcome(error)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == f"error: {words}" or words in result.stderr.splitlines()[0]
    assert "Traceback" not in result.stderr


def test_a_fault_of_our_own_can_be_traced(monkeypatch):
    assert "ROWGRAD_TRACEBACK" in outcome(KeyError("x")).stderr
    monkeypatch.setenv("ROWGRAD_TRACEBACK", "1")
    assert isinstance(outcome(KeyError("x")).exception, KeyError)


def test_long_messages_stay_one_line():
    assert outcome(Problem("long " * 100)).stderr.count("\n") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_interrupt(error):
    result = outcome(error)
    assert (result.exit_code, result.output) == (130, "")


def test_exit_codes_pass():
    assert outcome(typer.Exit(7)).exit_code == 7
