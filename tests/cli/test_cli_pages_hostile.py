"""`rowgrad run`, `check` and `convert` under odd circumstances: names, terminals, pipes, interruptions."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rowgrad
from rowgrad.blocks import Page
from signals import heed_ctrl_c

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "COLUMNS": "100"}
pytestmark = pytest.mark.slow  # each test starts a process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rowgrad_command(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rowgrad", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **{"env": ENVIRONMENT, **options})


def training() -> None:
    page = Page()
    page.add("Variable", "w", initial_value=[0.0])
    page.add("Sub", "d", x="w", y=3)
    page.add("ReduceSum", "loss", input="d", axis=0)
    page.add("ApplyGradientDescent", var="w", alpha=0.01, delta="d")
    page.save("p.page.json")


def test_names_that_look_like_markup_or_that_a_terminal_cannot_show() -> None:
    page = Page("[red]x[/blue] 𝄞")
    page.add("Const", "c", value=["[bold]", "𝄞"])
    page.save("p.page.json")
    for locale in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = rowgrad_command("check", "p.page.json", env={**ENVIRONMENT, **locale})
        assert (done.returncode, done.stderr) == (0, "")
        assert f"[red]x[/blue] {'?' if locale else '𝄞'}: 1 blocks" in done.stdout
        assert rowgrad_command("run", "p.page.json", env={**ENVIRONMENT, **locale}).returncode == 0
    done = rowgrad_command("convert", "p.page.json", "[red].svg")
    assert (done.returncode, done.stderr) == (0, "wrote [red].svg\n")


def test_arguments_that_are_not_utf_8_are_refused() -> None:
    Page("p").save("p.page.json")
    os.link("p.page.json", b"\xff.page.json")
    for arguments in ((b"check", b"\xff.page.json"), (b"run", b"p.page.json", b"\xff"), (b"ops", b"\xed\xa0\x80")):
        done = subprocess.run(
            [sys.executable, "-m", "rowgrad", *arguments], capture_output=True, timeout=60, env=ENVIRONMENT
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(b"error: the argument '\\udc")
        assert b"is not UTF-8 text" in done.stderr


def test_text_in_json_arguments_must_be_text() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="string", shape=[1])
    page.save("p.page.json")
    done = rowgrad_command("run", "p.page.json", "--feed", r'x=["\ud800"]')
    assert (done.returncode, done.stdout) == (2, "")
    assert r"line 1, column 3: \ud800 is half of a surrogate pair" in done.stderr
    done = rowgrad_command("run", "p.page.json", "--feed", r'x=["\ud834\udd1e"]')
    assert done.returncode == 0
    assert "𝄞" in done.stdout


def test_a_loop_that_fails_says_how_far_it_came() -> None:
    page = Page()
    page.add("Variable", "i", initial_value=0)
    page.add("Add", "next", x="i", y=1)
    page.add("Assign", ref="i", value="next")
    page.add("Gather", "g", params=[1.0, 2.0, 3.0], indices="i")
    page.save("p.page.json")
    done = rowgrad_command("run", "p.page.json", "--loop", "10", "--quiet")
    assert done.returncode == 1
    assert done.stdout == "g:output: 1 in step 1, 3 in step 3\n"


def test_numbers_that_are_too_large_are_not_infinite() -> None:
    page = Page()
    page.add("Placeholder", "x", dtype="float32", shape=[1])
    page.save("p.page.json")
    done = rowgrad_command("run", "p.page.json", "--feed", "x=[1e400]")
    assert (done.returncode, done.stdout) == (2, "")
    assert "1e400 is too large" in done.stderr
    assert rowgrad_command("run", "p.page.json", "--feed", "x=[Infinity]").returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="shells and signals differ")
def test_an_output_that_is_closed() -> None:
    training()
    command = f'"{sys.executable}" -m rowgrad check p.page.json >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="shells and signals differ")
def test_an_interrupted_loop_writes_nothing() -> None:
    training()
    command = [sys.executable, "-m", "rowgrad", "run", "p.page.json", "--loop", "100000000", "-o", "r.npz"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
                              preexec_fn=heed_ctrl_c)  # fmt: skip
    time.sleep(3)
    worker.send_signal(signal.SIGINT)
    output, errors = worker.communicate(timeout=30)
    assert (worker.returncode, output) == (130, "")
    assert "Traceback" not in errors
    assert os.listdir() == ["p.page.json"]
