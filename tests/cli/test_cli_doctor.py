"""`rowgrad doctor` says what is there and whether it works, and can say so when it does not."""

import dataclasses
import json
import platform
from importlib import metadata

import pytest
from typer.testing import CliRunner

import rowgrad
from rowgrad._cli import app, doctor
from rowgrad.blocks.operators import OPERATORS


def run(*args, **env):
    return CliRunner().invoke(app, ["doctor", *args], env={"COLUMNS": "100", "ROWGRAD_NUM_THREADS": None, **env})


@pytest.fixture
def broken(monkeypatch):
    operator = OPERATORS["SparseSliceGrad"]
    wrong = dataclasses.replace(operator.example, outputs={"val_grad": [9.0, 9.0, 9.0, 9.0]})
    monkeypatch.setitem(OPERATORS, "SparseSliceGrad", dataclasses.replace(operator, example=wrong))


def test_all_is_well():
    result = run()
    assert result.exit_code == 0, result.output
    assert f"numba       {metadata.version('numba')}" in result.stdout
    assert all(f"✓ {name}\n" in result.stdout for name in OPERATORS)
    assert f"No problems found: {len(OPERATORS)} operators" in result.stdout


def test_json():
    findings = json.loads(run("--json").stdout)
    assert findings["ok"] is True
    assert findings["versions"]["rowgrad"] == rowgrad.__version__
    assert findings["versions"]["python"] == platform.python_version()
    assert {"numpy", "numba", "llvmlite", "ml_dtypes", "torch", "jax", "tensorflow", "pyarrow"} <= set(
        findings["versions"]
    )
    assert findings["threads"] == {
        "count": rowgrad.get_num_threads(),
        "source": "the cores this process may use",
        "problem": "",
    }
    assert findings["cache"]["variants"] >= findings["cache"]["kernels"] > 0
    assert findings["cache"]["megabytes"] > 0
    assert findings["cpu"]["name"]
    assert sorted(test["operator"] for test in findings["self_test"]) == sorted(OPERATORS)


def test_threads_from_the_environment():
    assert "3, from ROWGRAD_NUM_THREADS" in run(ROWGRAD_NUM_THREADS="3").stdout
    bad = run(ROWGRAD_NUM_THREADS="many")
    assert bad.exit_code == 1
    assert "'many'" in bad.stdout


def test_a_failing_operator_is_named(broken):
    result = run()
    assert result.exit_code == 1
    assert "✗ SparseSliceGrad  val_grad not as stated" in result.stdout
    assert f"1 of {len(OPERATORS)} operators fail" in result.stdout
    failed = json.loads(run("--json").stdout)
    assert failed["ok"] is False
    assert [test["operator"] for test in failed["self_test"] if test["problem"]] == ["SparseSliceGrad"]


def test_frameworks_that_are_missing(monkeypatch):
    def version(name):
        if name in ("torch", "numba"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor.metadata, "version", version)
    lines = run().stdout.splitlines()
    assert any(line.split() == ["torch", "not", "installed"] for line in lines)
    assert any(line.split() == ["jax", "1.0"] for line in lines)


def test_a_broken_part_does_not_silence_the_rest(monkeypatch):
    def fail():
        raise ImportError("no LLVM here")

    monkeypatch.setattr(doctor, "_cpu", fail)
    result = run()
    assert result.exit_code == 1
    assert "ImportError: no LLVM here" in result.stdout
    assert "✓ SparseSliceGrad" in result.stdout


def test_no_folder_for_kernels(monkeypatch):
    from rowgrad import _kernels as kernels

    monkeypatch.setattr(kernels.compile, "cache_folder", lambda: None)
    result = run()
    assert result.exit_code == 1
    assert "ROWGRAD_CACHE_DIR" in result.stdout
