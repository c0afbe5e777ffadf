"""What `docs/deviations.md` says of TensorFlow is so: each of its numbers has a call here that shows it.

The other tests of this folder compare everything else, and leave out what has a number, so that the list is whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowgrad import raw_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("CI"):
    import tensorflow as tf  # missing there is a failure, not a reason to skip
else:
    tf = pytest.importorskip("tensorflow")

TEXT = (Path(__file__).parents[2] / "docs/deviations.md").read_text()
NUMBERS = [number for line in re.findall(r"^## (D\d.*?)\.", TEXT, re.M) for number in line.split(", ")]
SMALL = np.float32([[1e-40], [1e-40]])
ONES = np.ones((4096, 1), np.float16)
ZEROS = np.zeros(4096, np.int32)
NOTHING = np.empty(0, np.int64)
START = "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\nimport numpy as np, tensorflow as tf\n"


def theirs(name: str, **given: Any) -> Any:
    result = getattr(tf.raw_ops, name)(**given)
    if isinstance(result, tuple):
        return tuple(part.numpy() for part in result if not isinstance(part, list))
    return result.numpy()


def refused(name: str, **given: Any) -> bool:
    try:
        theirs(name, **given)
    except (tf.errors.OpError, TypeError):
        return True
    return False


def dies(code: str) -> bool:
    """Whether TensorFlow ends the process."""
    return subprocess.run([sys.executable, "-c", START + code], capture_output=True, timeout=120).returncode < 0


# 300 MB more than TensorFlow takes when both operators have run once.
LITTLE_MEMORY = """
import resource
tf.raw_ops.SparseSegmentSumGrad(grad=np.ones((1, 64), np.float16), indices=[0], segment_ids=[0], output_dim0=10)
tf.raw_ops.SparseFillEmptyRows(indices=[[0, 0]], values=[1.0], dense_shape=[4, 2], default_value=0.0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (used, used))
"""


def sums_by_threads() -> bool:
    """Whether TensorFlow's sum depends on the number of its threads, and ours is that of one."""
    count = 3_000_001
    entries = {"input_indices": np.arange(count)[:, None], "input_shape": [count], "reduction_axes": [0],
               "input_values": np.random.default_rng(0).standard_normal(count).astype(np.float32)}  # fmt: skip
    code = f"""
import sys
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
values = np.random.default_rng(0).standard_normal({count}).astype(np.float32)
found = tf.raw_ops.SparseReduceSum(input_indices=np.arange({count})[:, None], input_values=values,
                                   input_shape=[{count}], reduction_axes=[0])
print(float(found).hex())
"""
    sums = []
    for threads in ("1", "2", "5"):
        done = subprocess.run(
            [sys.executable, "-c", START + code, threads], capture_output=True, timeout=120, text=True
        )
        sums.append(float.fromhex(done.stdout.split()[-1]))
    return len(set(sums)) > 1 and float(raw_ops.SparseReduceSum(**entries)) == sums[0]


def loses_what_it_found() -> bool:
    """Whether a failed attempt has taken the first tensor."""
    named = {"shared_name": "deviation"}
    handle = theirs("AddSparseToTensorsMap", sparse_indices=[[0]], sparse_values=[1.0], sparse_shape=[1], **named)
    for handles in ([handle, 99], [handle]):
        if not refused("TakeManySparseFromTensorsMap", sparse_handles=handles, dtype=tf.float32, **named):
            return False
    return True


def no_gradient() -> bool:
    with tf.GradientTape() as tape:
        grad = tf.constant([[1.0]])
        tape.watch(grad)
        found = tf.raw_ops.SparseSegmentSumGrad(grad=grad, indices=[0], segment_ids=[0], output_dim0=1)
    try:
        return tape.gradient(found, grad) is None
    except LookupError:
        return True


SPARSE = {"input_indices": [[0, 4], [1, 1]], "input_values": [1.0, 2.0], "input_shape": [2, 3]}
SLICE = {"indices": [[2]], "values": [1.0], "shape": [4], "start": [2]}
FILL = {"indices": np.empty((0, 2), np.int64), "values": tf.zeros(0, tf.float64), "dense_shape": [1, 2]}
RAGGED = {"params_nested_splits": [[0, 1, 1]], "params_dense_values": [1.0, 2.0], "indices": [0]}
NAN = np.array([0xFFC00001, 0x7FC00002], np.uint32).view(np.float32)[:, None]

SHOWN: dict[str, Callable[[], bool]] = {
    # What an uninitialised result holds cannot be told; that it is not looked after is all that can be seen.
    "D1": lambda: theirs("SparseSegmentMeanGrad", grad=[[1.0]], indices=NOTHING, segment_ids=NOTHING,
                         output_dim0=2).shape == (2, 1),
    "D2": lambda: refused("SparseFillEmptyRows", **FILL | {"dense_shape": [-5, 2]}, default_value=np.float64(0)),
    "D3": lambda: theirs("SparseSegmentSumWithNumSegments", data=np.ones((1, 0), np.float32), indices=[0],
                         segment_ids=[0], num_segments=np.int64(2**32 + 2)).shape[0] == 2,
    "D4": lambda: dies(LITTLE_MEMORY + "tf.raw_ops.SparseSegmentSumGrad(grad=np.ones((1, 64), np.float16), "
                       "indices=[0], segment_ids=[0], output_dim0=(200 << 20) // 128)"),
    "D5": lambda: dies(LITTLE_MEMORY + "tf.raw_ops.SparseFillEmptyRows(indices=[[0, 0]], values=[1.0], "
                       "dense_shape=[100 << 20, 2], default_value=0.0)"),
    "D6": lambda: theirs("SparseSlice", **SLICE, size=[2**63 - 1])[0].tolist() != [[0]],
    "D7": lambda: refused("SparseSlice", indices=[[5, 7]], values=[1.0], shape=[2**40, 2**40], start=[5, 7],
                          size=[1, 1]),
    "D8": lambda: theirs("RaggedFillEmptyRows", value_rowids=NOTHING, values=np.float32([]), nrows=np.int64(0),
                         default_value=1.0)[0].shape == (0, 1),
    "D9": lambda: theirs("SparseFillEmptyRowsGrad", reverse_index_map=NOTHING, grad_values=ONES[:, 0])[1] == 2048,
    "D10": no_gradient,
    "D11": lambda: refused("SparseSliceGrad", backprop_val_grad=tf.bitcast(np.int8([7]), tf.qint8),
                           input_indices=[[0]], input_start=[0], output_indices=[[0]]),
    "D12": lambda: theirs("SegmentSum", data=ONES, segment_ids=ZEROS)[0, 0] == 2048,
    "D13": lambda: dies("tf.raw_ops.SegmentMean(data=np.ones((256, 1), np.int8), segment_ids=np.zeros(256, np.int32))"),
    "D14": lambda: not np.isclose(theirs("SegmentMean", data=np.array([[complex(np.inf, 1)], [1]], np.complex64),
                                         segment_ids=[0, 0]).imag, 0.5).all(),
    "D15": lambda: refused("SegmentSumV2", data=[[1.0]], segment_ids=[0], num_segments=1),
    "D16": lambda: len(theirs("SparseReorder", input_indices=[[1], [0], [1]], input_values=[1.0, 2.0, 3.0],
                              input_shape=[2])[1]) == 3,
    "D17": lambda: not refused("SparseReduceSum", **SPARSE, reduction_axes=np.int32([])),
    "D18": sums_by_threads,
    "D19": lambda: all([
        not theirs("SegmentSum", data=SMALL, segment_ids=[0, 0]).any(),
        not theirs("SegmentMax", data=SMALL, segment_ids=[0, 0]).any(),
        not theirs("SparseSegmentSum", data=SMALL, indices=[0, 1], segment_ids=[0, 0]).any(),
        refused("RaggedRange", starts=np.float32([0]), limits=np.float32([3e-40]), deltas=np.float32([1e-40])),
        theirs("Bucketize", input=np.float32([1e-40, 0]), boundaries=[1e-41]).tolist() == [1, 1],
    ]),
    "D20": lambda: bool(np.isnan(theirs("SegmentSum", data=NAN, segment_ids=[0, 0])).all())
    and bool(np.isnan(raw_ops.SegmentSum(NAN, [0, 0])).all()),
    "D21": lambda: all(refused("SegmentSum", data=[[1.0]], segment_ids=np.zeros(1, kind))
                       for kind in ("int8", "int16", "uint8", "uint16", "uint32", "uint64")),
    "D22": lambda: refused("SparseFillEmptyRows", **FILL, default_value=tf.constant(1.0)),
    "D23": lambda: loses_what_it_found() and tf.raw_ops.SerializeSparse(
        sparse_indices=[[0]], sparse_values=[1.0], sparse_shape=[1], out_type=tf.variant).dtype == tf.variant,
    "D24": lambda: not refused("RaggedGather", **RAGGED, OUTPUT_RAGGED_RANK=1),
}  # fmt: skip


def test_every_number_is_shown() -> None:
    assert sorted(NUMBERS) == sorted(SHOWN)


@pytest.mark.parametrize("number", SHOWN)
def test_it_is_so(number: str) -> None:
    assert SHOWN[number]()
