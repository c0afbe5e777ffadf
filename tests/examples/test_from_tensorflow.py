"""The moved model gives TensorFlow's recorded numbers, as a user would run it, and tells when it does not."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import rowgrad
from optional import framework

framework("torch")
framework("matplotlib")
ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", str(folder / "from_tensorflow.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_numbers_are_those_of_tensorflow(tmp_path: Path) -> None:
    picture = tmp_path / "losses.png"
    done = run(ROOT / "examples", "--plot", str(picture))
    assert done.returncode == 0, done.stderr + done.stdout
    assert "seed 11: 512 visits, 96 steps" in done.stdout
    assert done.stdout.rstrip().endswith("the same")
    assert picture.read_bytes().startswith(PNG)
    # The guide's figures, and what other processors may add to them.
    guide = (ROOT / "docs" / "from_tensorflow.md").read_text(encoding="utf-8")
    stated = {}
    for title, *figures in re.findall(r"^\| (losses|predictions|gradients|tables).*\| (\S+) \| (\S+) \|$", guide, re.M):
        stated[title] = [float(figure) for figure in figures]
    rows = re.findall(r"│ (losses|predictions|first gradient|table at).*?│ (\S+) +│ (\S+) +│", done.stdout)
    found = {"losses": [], "predictions": [], "gradients": [], "tables": []}
    for title, *figures in rows:
        name = {"first gradient": "gradients", "table at": "tables"}.get(title, title)
        found[name].append([float(figure) for figure in figures])
    assert len(rows) == 6 and stated.keys() == found.keys()
    for name, figures in found.items():
        assert (np.max(figures, axis=0) <= 20 * np.array(stated[name])).all(), name


def test_a_difference_is_an_error(tmp_path: Path) -> None:
    """With one recorded table changed by a thousandth, the numbers are no longer the same."""
    shutil.copy(ROOT / "examples" / "from_tensorflow.py", tmp_path)
    (tmp_path / "data").mkdir()
    with np.load(ROOT / "examples" / "data" / "from_tensorflow.npz", allow_pickle=False) as file:
        record = dict(file)
    record["first_pages"] = record["first_pages"] * np.float32(1.001)
    np.savez(tmp_path / "data" / "from_tensorflow.npz", **record)
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.rstrip().endswith("DIFFERENT: more than allowed")
