"""The click model is trained three ways, as a user would run it: equal losses, the figures of the guide."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rowgrad
from optional import framework

torch = framework("torch")
framework("matplotlib")
ROOT = Path(__file__).parents[2]
WAYS = ["PyTorch", "rowgrad", "rowgrad fused"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "torch_ctr.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1]), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_the_guide_is_true(tmp_path: Path) -> None:
    """The run that the guide shows: loss, AUC and how equal the losses are; its times are nobody's promise."""
    picture, report = tmp_path / "losses.png", tmp_path / "report.json"
    done = run("--plot", str(picture), "--json", str(report))
    assert done.returncode == 0, done.stderr + done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    found = json.loads(report.read_text(encoding="utf-8"))
    assert list(found["ways"]) == WAYS
    guide = (ROOT / "docs" / "torch_ctr.md").read_text(encoding="utf-8")
    assert f"seed {found['seed']}: {found['steps']} steps of {found['batch']} examples" in guide
    stated = re.findall(r"^\| (PyTorch|rowgrad|rowgrad fused) \|.*\| (\S+) \| (\S+) \| \S+ \|$", guide, re.M)
    assert [name for name, *_ in stated] == WAYS
    for name, loss, area in stated:
        way = found["ways"][name]
        np.testing.assert_allclose([way["held_out_loss"], way["auc"]], [float(loss), float(area)], atol=2e-3)
        # It learns: from a coin's loss to near what the hidden model would reach.
        assert np.mean(way["losses"][:5]) > 0.6 > 0.52 > np.mean(way["losses"][-20:])
        assert found["best_auc"] > way["auc"] > 0.78
    for name in WAYS[1:]:
        np.testing.assert_allclose(found["ways"][name]["losses"], found["ways"]["PyTorch"]["losses"], rtol=1e-5)


def test_options_are_heeded(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    small = ("--steps", "6", "--batch", "64", "--rows", "500", "--json", str(report))
    assert run(*small, "--seed", "3").returncode == 0
    found = json.loads(report.read_text(encoding="utf-8"))
    assert (found["steps"], found["seed"], found["batch"], found["rows"]) == (6, 3, 64, 500)
    assert all(len(way["losses"]) == 6 for way in found["ways"].values())
    assert run(*small, "--seed", "4").returncode == 0
    assert (
        json.loads(report.read_text(encoding="utf-8"))["ways"]["rowgrad"]["losses"]
        != found["ways"]["rowgrad"]["losses"]
    )
    refused = run("--steps", "0")
    assert refused.returncode == 2 and "--steps must be 1 or more" in refused.stderr


def test_batches_depend_on_seed_and_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from ctr_model import Clicks, auc

    one, other = Clicks(5, 2000, 300), Clicks(5, 2000, 300)
    one.training(0)
    for name in one.training(7).ids:
        torch.testing.assert_close(one.training(7).ids[name], other.training(7).ids[name], rtol=0, atol=0)
        assert not torch.equal(one.training(7).offsets["history"], one.training(8).offsets["history"])
    # Zipf's law: the hottest of 2000 rows has about log 2 / log 2001 of all ids.
    ids = one.held_out(4000).ids["history"]
    assert np.bincount(ids).max() / len(ids) == pytest.approx(np.log(2) / np.log(2001), rel=0.1)
    assert ids.max() < 2000
    assert auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1])) == 0.875
