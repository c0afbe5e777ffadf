"""The tests and attacks that docs/reliability.md names exist."""

import re
from pathlib import Path

import pytest

from adversary.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| .* \| .*(the attack|`tests/)", line)]


def test_every_attack_is_told_and_every_one_told_exists() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(ATTACKS)
    assert set(re.findall(r"the attack `(\w+)`", TEXT)) <= set(ATTACKS)


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_faults_have_tests(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`|`(test_\w+)`", row.rpartition("|")[0])
    assert named or "the attack" in row
    file = ""
    for path, first, further in named:
        file = path or file
        if file.startswith("tests/studio") and not (ROOT / "tests" / "studio").is_dir():
            continue  # as in an sdist
        content = (ROOT / file).read_text(encoding="utf-8")
        assert "def test_" in content
        assert not (first or further) or f"def {first or further}(" in content, f"{file} has no {first or further}"


def test_there_are_nineteen_classes_of_faults() -> None:
    assert len(ROWS) == 19
