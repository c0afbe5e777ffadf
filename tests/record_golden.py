"""Record the golden file anew from an installed TensorFlow: `python tests/record_golden.py [--check]`.

The calls are those of the existing file: to add one, add a line with `id`, `op`, `tags` and `args`, then run
this. Cases marked `undefined` are kept as they stand: TensorFlow's answer to them is uninitialised memory, an
accident of overflow, or the end of the process. `--check` compares and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import golden
from rowgrad.blocks.operators import BLOCKS

Array = np.ndarray[Any, Any]


def as_tensor(array: Array) -> tf.Tensor:
    if array.dtype.names:  # a quantised type: TensorFlow makes it from the bits only
        return tf.bitcast(tf.constant(array.view(array.dtype[0])), tf.as_dtype(array.dtype.names[0]))
    return tf.constant(array)


def as_array(tensor: tf.Tensor) -> Array:
    array = tensor.numpy()
    return np.asarray(array, object) if tensor.dtype == tf.string else np.asarray(array)


def run_operator(case: golden.Case) -> dict[str, Array]:
    tensors = {
        name: [as_tensor(each) for each in value] if isinstance(value, list) else as_tensor(value)
        for name, value in case.args.items()
    }
    result = getattr(tf.raw_ops, case.op)(**tensors, **case.attrs)
    if isinstance(result, tuple):
        return {name: _arrays(part) for name, part in result._asdict().items()}
    return {"output": as_array(result)}


def _arrays(part: Any) -> Any:
    return [as_array(each) for each in part] if isinstance(part, list) else as_array(part)


def run_step(case: golden.Case) -> dict[str, Array]:
    """A step of an optimizer: what it makes of its variables."""
    states = BLOCKS[case.op].updates
    variables = {name: tf.Variable(case.args[name]) for name in states}
    others = {name: tf.constant(value) for name, value in case.args.items() if name not in states}
    handles = {name: variable.handle for name, variable in variables.items()}
    getattr(tf.raw_ops, f"Resource{case.op}")(**handles, **others, **case.attrs)
    return {states[name]: variable.numpy() for name, variable in variables.items()}


def run_look_up(case: golden.Case) -> dict[str, Array]:
    """A look-up and its gradient to `params`, where 1, 2, 3, … flow into the output."""
    args = {name: tf.constant(array) for name, array in case.args.items()}
    ids = tf.SparseTensor(args["ids_indices"], args["ids_values"], args["ids_shape"])
    weights = None
    if "weights" in args:
        weights = tf.SparseTensor(args["ids_indices"], args["weights"], args["ids_shape"])
    look_up = getattr(tf.nn, case.op.removeprefix("nn."))
    params = args["params"]
    with tf.GradientTape() as tape:
        tape.watch(params)
        output = look_up(params, ids, weights, **case.attrs)
    upstream = tf.cast(tf.reshape(tf.range(1, tf.size(output) + 1), output.shape), output.dtype)
    d_params = tf.convert_to_tensor(tape.gradient(output, params, upstream))
    return {"output": as_array(output), "d_params": as_array(d_params)}


def record(line: dict[str, Any]) -> dict[str, Any]:
    """The line with TensorFlow's answer of today."""
    if "undefined" in line:
        return line
    case = golden.as_case({key: value for key, value in line.items() if key not in ("out", "error")})
    answer: dict[str, Any]
    try:
        run = run_look_up if case.op.startswith("nn.") else run_step if "Apply" in case.op else run_operator
        results = run(case)
        answer = {"out": {name: golden.encode(array) for name, array in results.items()}}
    except tf.errors.OpError as error:
        answer = {"error": {"class": type(error).__name__}}
    return {key: value for key, value in line.items() if key not in ("out", "error")} | answer


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    if old == new:
        return ""
    before, after = golden.as_case(old), golden.as_case(new)
    if before.out is None or after.out is None:
        return f"was {old.get('error', 'an answer')}, is {new.get('error', 'an answer')}"
    if list(before.out) != list(after.out):
        return f"results were {list(before.out)}, are {list(after.out)}"
    try:
        for name, array in before.out.items():
            pairs = zip(array, after.out[name], strict=True) if isinstance(array, list) else [(array, after.out[name])]
            for old_array, new_array in pairs:
                golden.assert_same(old_array, new_array, before.cmp)
    except AssertionError as error:
        return str(error)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check

    header, lines = golden.read_lines()
    machine = platform.machine().replace("_", "-")
    header["source"] = f"tensorflow-cpu {tf.__version__}, {sys.platform} {machine}"
    recorded = [record(line) for line in lines]
    if not check:
        text = (json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in recorded)
        golden.FILE.write_text("\n".join([json.dumps(header), *text]) + "\n")
        return 0
    changed = 0
    for old, new in zip(lines, recorded, strict=True):
        if found := differences(old, new):
            changed += 1
            print(f"{old['id']}: {found}")
    print(f"{len(lines)} cases, {changed} differ")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
