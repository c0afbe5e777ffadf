"""`rowgrad tour` and its pictures."""

import dataclasses
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import rowgrad
from rowgrad._cli import app, examples
from rowgrad._cli.tour import stops
from rowgrad._ops import OPERATORS
from rowgrad._ops.rule_text import text

FIVE = [
    "SparseSegmentSqrtNGrad",
    "SparseSegmentMeanGrad",
    "SparseSegmentMeanGradV2",
    "SparseFillEmptyRowsGrad",
    "SparseSliceGrad",
]


def run(columns=100):
    return CliRunner().invoke(app, ["tour"], env={"COLUMNS": str(columns)})


def test_five_stops_each_with_its_forward_operator():
    way = stops()
    assert [stop.gradient.name for stop in way] == FIVE
    for stop in way:
        rules = [text(rule) for rule in (*stop.forward.gradient.values(), *stop.forward.compact_gradient.values())]
        assert any(rule.startswith(f"{stop.gradient.name}(") for rule in rules)
        assert stop.inputs == dict(stop.gradient.example.inputs)
        stop.call()
        assert stop.differing() == []


def test_forward_results_fit_the_gradients():
    for stop in stops():
        stop.call()
        forth = next(stop.forward_results[name] for name in ("output_values", "output") if name in stop.forward_results)
        back = next(stop.inputs[n] for n in ("grad", "grad_values", "backprop_val_grad") if n in stop.inputs)
        assert len(forth) == len(back)


def test_what_is_printed():
    result = run()
    assert result.exit_code == 0, result.output
    for name in FIVE:
        operator = OPERATORS[name]
        assert f"  {name}  after " in result.stdout
        assert operator.formula.splitlines()[0] in result.stdout
    assert result.stdout.count("as the catalogue states\n") == 5
    assert re.search(r"Ran 10 operators, 5 forward and 5 backward, in \d+\.\d\d s; 5 of 5 gradients", result.stdout)


@pytest.mark.parametrize(
    "line",
    [
        r"row 0 ← segment 0 +0\.707107 +1\.41421 +2\.12132",
        r"row 2 ← segment 2 +1 +0\.333333 +1\.66667",
        r"row 7 ← segment \d \+ segment \d",
        r"filled 2 +3 +→ default_value",
        r"entry 1 ← slice 0 +5",
        r"entry 3 ← nothing +0",
        r"0 +a +· +· +b +c +□",
    ],
)
def test_one_sees_which_row_gets_which_gradient(line):
    assert re.search(line, run().stdout)


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_it_fits_the_screen(columns):
    lines = run(columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    frames = [line for line in lines if set(line) & set("╭│╰")]
    assert frames
    # Nothing is cut: every frame that is opened is closed.
    assert all(line.count("╭") == line.count("╮") and line.count("╰") == line.count("╯") for line in frames)
    assert "…" not in "".join(frames)


def test_the_numbers_come_from_the_functions(monkeypatch):
    calls = []
    original = examples.call

    def call(operator, inputs):
        calls.append(operator.name)
        results = original(operator, inputs)
        if operator.name == "SparseSliceGrad":
            return {"val_grad": results["val_grad"] + np.float32(0.125)}
        return results

    monkeypatch.setattr(examples, "call", call)
    result = run()
    assert [name for name in calls if name in FIVE] == FIVE
    assert len(calls) == 10
    assert result.exit_code == 1
    assert "✗ not as the catalogue states: val_grad" in result.stdout
    assert "7.125" in result.stdout
    assert "4 of 5 gradients" in result.stdout


def test_public_functions_are_called(monkeypatch):
    seen = []
    original = rowgrad.sparse_slice_grad
    monkeypatch.setattr(rowgrad, "sparse_slice_grad", lambda **inputs: seen.append(inputs) or original(**inputs))
    assert run().exit_code == 0
    assert len(seen) == 1


def test_a_stated_result_that_is_wrong_is_found(monkeypatch):
    operator = OPERATORS["SparseSegmentMeanGrad"]
    wrong = dataclasses.replace(operator.example, outputs={"output": [[0.0] * 3] * 3})
    monkeypatch.setitem(OPERATORS, "SparseSegmentMeanGrad", dataclasses.replace(operator, example=wrong))
    assert run().exit_code == 1
