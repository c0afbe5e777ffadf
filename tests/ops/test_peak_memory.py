"""Gradients and pooled sums of many ids take little memory beside their inputs and results.

Measured in a process of its own, whose peak the operating system keeps.
"""

import subprocess
import sys
from pathlib import Path

import pytest

MOST = 24  # bytes an id
MEASURE = """
import re, sys
from pathlib import Path
import numpy as np
import rowgrad

def status(field):
    return int(re.search(rf"^{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1]) * 1024

def call(name, count):
    random = np.random.default_rng(1)
    ids, bags = random.integers(0, 1_000_000, count), np.repeat(np.arange(count // 20, dtype=np.int32), 20)
    rows = random.random((1_000_000 if name == "sparse_segment_mean" else count // 20, 16), dtype=np.float32)
    size = () if name == "sparse_segment_mean" else (1_000_000,)
    return lambda: getattr(rowgrad, name)(rows, ids, bags, *size)

call(sys.argv[1], 1000)()  # code, threads and whatever is loaded on first use are not what is measured
run = call(sys.argv[1], int(sys.argv[2]))
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = status("VmRSS")
results = run()
results = results if isinstance(results, tuple) else (results,)
print((status("VmHWM") - before - sum(result.nbytes for result in results)) / int(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell a process's peak")
@pytest.mark.parametrize("name", ["sparse_segment_mean_grad_v2", "sparse_segment_mean_grad", "sparse_segment_mean"])
def test_peak_memory(name):
    command = [sys.executable, "-c", MEASURE, name, "4000000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert float(done.stdout) <= MOST
