"""The model of docs/leaving_tensorflow.md continues with TensorFlow's losses, as recorded and as its table says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optional import framework

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/leaving_tensorflow.md").read_text(encoding="utf-8")


def losses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of the guide's model, continued from the checkpoint in `folder`."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        exec(compile(code, "leaving_tensorflow.md", "exec"), names)
    found: list[float] = names["losses"]
    return found


def test_training_continues_with_tensorflows_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    framework("torch")
    for file in (ROOT / "examples" / "data").glob("recommender.*"):
        shutil.copy(file, tmp_path)
    recorded = json.loads((tmp_path / "recommender.json").read_text())
    found = losses(tmp_path, monkeypatch)
    np.testing.assert_allclose(found, recorded["after"], rtol=2e-6)
    table = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert [int(step) for step, _, _ in table] == [len(recorded["before"]) + number for number in range(1, 9)]
    assert [theirs for _, theirs, _ in table] == [f"{loss:.5f}" for loss in recorded["after"]]
    assert [ours for _, _, ours in table] == [theirs for _, theirs, _ in table]
