"""The command as a whole: what users type first, what loads, and how it ends."""

import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import rowgrad
from rowgrad._cli import app
from signals import heed_ctrl_c


def run(*args):
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "100"}, prog_name="rowgrad")


def shell(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, **kwargs)


def test_version():
    done = shell("-m", "rowgrad", "--version")
    assert (done.returncode, done.stdout) == (0, f"rowgrad {rowgrad.__version__}\n")


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",)])
def test_help_names_every_command_and_gives_examples(args):
    result = run(*args)
    assert result.exit_code == 0
    for word in ("ops", "op", "doctor", "tour", "Examples", "rowgrad ops sparse_slice_grad"):
        assert word in result.output


def test_help_loads_neither_numba_nor_pyarrow():
    code = (
        "import sys; from rowgrad._cli import app; from typer.testing import CliRunner;"
        "r = CliRunner().invoke(app, ['op', 'SparseSliceGrad', '--help']); assert r.exit_code == 0;"
        "print(sorted({'numba', 'pyarrow', 'torch', 'jax', 'tensorflow'} & set(sys.modules)))"
    )
    done = shell("-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_unknown_command_is_one_line_and_code_2():
    done = shell("-m", "rowgrad", "opps")
    assert done.returncode == 2
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: No such command 'opps'")
    assert all(line.startswith("hint: ") for line in rest)


def test_unknown_option_names_the_command_to_ask():
    result = run("ops", "--jsn")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: No such option: --jsn")
    assert "rowgrad ops --help" in result.stderr


@pytest.mark.parametrize("args", [(), ("--json",)])
def test_a_reader_that_leaves_early_is_no_error(args):
    command = [sys.executable, "-m", "rowgrad", "ops", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()  # before anything is written
        assert process.stderr.read() == b""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_quiet_and_130():
    code = (
        "import sys, time; import rowgrad._cli.doctor as doctor\n"
        "def examine(): print('ready', flush=True); time.sleep(60)\n"
        "doctor.examine = examine; sys.argv = ['rowgrad', 'doctor']\n"
        "from rowgrad._cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"")


def test_a_terminal_without_sigma_gets_question_marks():
    done = shell("-m", "rowgrad", "ops", "SparseSegmentMeanGrad", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "output[r] = ? over i" in done.stdout
