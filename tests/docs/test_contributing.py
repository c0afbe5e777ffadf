"""The map of CONTRIBUTING.md is true: what it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# A path ends with a slash or has an ending; the rest are names of code and commands.
PATHS = sorted({name for name in re.findall(r"`([\w./]+)`", TEXT) if re.search(r"/$|\.\w{2,4}$", name)})


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "src" / "rowgrad" / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)`", TEXT))))
def test_targets_exist(target: str) -> None:
    assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
