"""Files that are to be written are refused before anything runs."""

import pytest

from rowgrad._cli import targets
from rowgrad._cli.problems import Problem


def test_targets(tmp_path):
    def check(name, results=("output",), force=False):
        with pytest.raises(Problem) as caught:
            targets.check_target(tmp_path / name, list(results), force=force)
        return caught.value

    assert ".npz or .npy" in check("x.csv").message
    several = check("x.npy", ["output", "sorted_unique_indices"])
    assert "2 results (output, sorted_unique_indices)" in several.message
    assert several.hint.endswith("x.npz")
    assert "no folder" in check("missing/x.npz").message
    (tmp_path / "x.npz").write_bytes(b"precious")
    assert "--force" in check("x.npz").hint
    targets.check_target(tmp_path / "x.npz", ["output"], force=True)
    targets.check_target(tmp_path / "new.npz", ["a", "b"], force=False)
    (tmp_path / "d.npz").mkdir()
    assert "folder" in check("d.npz", force=True).message
