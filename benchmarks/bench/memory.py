"""The memory a call needs beside its inputs and results, at its peak.

Measured in a process of its own, whose peak the operating system keeps; `python -m bench.memory OPERATION`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.work import OPERATORS, Work, sized

OPERATIONS = ("mean_grad_v2", "mean_grad", "mean")
FOLDER = Path(__file__).parents[1]  # where `python -m bench` is run
IDS, FEW = 10_000_000, 1_000
STATUS, PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure(operation: str, ids: int = IDS) -> dict[str, Any]:
    """The peak of `operation` on `ids` ids, as plain data; nothing where the system does not tell."""
    if not PEAK.exists():
        return {}
    command = [sys.executable, "-m", __name__, operation, str(ids)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {operation} failed: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def measure_here(operation: str, ids: int) -> dict[str, Any]:
    """The same, in this process, which should not have done anything else before."""
    from bench.contestants import ours

    # Code, threads and whatever is loaded on first use are not what is measured.
    ours.entry(Work(operation, "memory", sized(FEW))).run()
    entry = ours.entry(Work(operation, "memory", sized(ids)))
    if entry.prepare is not None:
        entry.prepare()
    PEAK.write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    results = entry.answer(entry.run())
    extra = _status("VmHWM") - before - sum(array.nbytes for array in results)
    per_id = round(extra / ids, 2)
    return {"operator": OPERATORS[operation], "ids": ids, "extra_bytes": extra, "bytes_per_id": per_id}


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found is not None, f"no {field} in {STATUS}"
    return int(found[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]))))
