"""Tables larger than memory train, and give the same numbers; limits of memory are found wherever they are set."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from table_groups import little_memory
from table_large import expected

import rowgrad

HERE = Path(__file__).parent
MEGABYTE = 1 << 20


def run(*arguments: object, join: Callable[[], None] | None = None) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(HERE / "table_large.py"), *map(str, arguments)],
        preexec_fn=join, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_table_of_four_times_the_memory_trains(tmp_path: Path) -> None:
    limit, width, steps = 256 * MEGABYTE, 64, 12
    rows = 4 * limit // (2 * width * 4)  # as much state as rows
    run("make", tmp_path / "small", 10, width, 1)  # kernels are compiled with all the memory there is
    with little_memory(limit) as (group, join):
        made = run("make", tmp_path / "table", rows, width, 0, join=join)
        trained = run("train", tmp_path / "table", rows, width, steps, join=join)
        peaks = [int(path.read_text()) for path in group.glob("memory.*") if path.name in PEAKS]
    print(made, trained, peaks)
    assert trained["bytes"] == 4 * limit
    assert 0 < trained["allowed"] < limit  # type: ignore[operator]
    assert max(peaks, default=0) <= limit
    assert len(trained["flushes"]) > 1, "memory was never short"  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    touched = np.concatenate([np.random.default_rng(step).integers(0, rows, 10) for step in range(steps)])
    sample = np.unique(np.concatenate([rng.integers(0, rows, 5000), touched, [0, rows - 1]]))
    values, sums = expected(sample, rows, width, steps)
    assert (sums != 0.5).any()
    with rowgrad.Table.open(tmp_path / "table", mode="r") as table:
        assert table.steps == steps
        np.testing.assert_array_equal(table.array[sample], values)
        np.testing.assert_array_equal(table.state["sum"][sample], sums)


PEAKS = ("memory.max_usage_in_bytes", "memory.peak")
