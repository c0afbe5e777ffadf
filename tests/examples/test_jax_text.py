"""The example of JAX, run as a user would; its figures are the ones that docs/jax.md states."""

import os
import re
import subprocess
import sys
from pathlib import Path

import rowgrad
from optional import framework

framework("jax")
framework("matplotlib")

ROOT = Path(__file__).parents[2]


def test_the_figures_are_those_of_the_guide(tmp_path: Path) -> None:
    picture = tmp_path / "loss.png"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "jax_text.py"), "--plot", str(picture)],
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "training" in done.stderr
    first, last, right = map(float, re.findall(r"\d+\.\d+", done.stdout)[:3])
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
    stated = re.search(r"loss falls from (\S+) to (\S+), and (\S+) % of", (ROOT / "docs/jax.md").read_text("utf-8"))
    assert stated is not None
    # The texts are seeded; only rounding may differ from machine to machine.
    assert abs(first - float(stated[1])) < 0.002
    assert abs(last - float(stated[2])) < 0.01
    assert abs(right - float(stated[3])) < 1


def test_steps_must_be_positive() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "jax_text.py"), "--steps", "0"],
        env={"PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2
    assert "--steps must be 1 or more" in done.stderr
