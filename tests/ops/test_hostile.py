"""No input, however hostile, may crash the process, hang it, or be answered as if it were good.

A good call of each operator is bent, one argument at a time, in every way that its pin forbids; then pairs of
such faults. Another process makes the calls: each must raise a RowgradError, with little memory and within a
time limit. What the operators allow (unsorted ids in gradients, any column in a fill, a
start outside the shape, int16 indices, …) is no fault and is not in the lists.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hostile_faults import (
    no_array_at_all,
    no_whole_numbers,
    wrong_lengths,
    wrong_numbers,
    wrong_ranks,
    wrong_sizes,
    wrong_types,
)

import rowgrad
from rowgrad._ops import functions

Array = np.ndarray[Any, Any]
Args = dict[str, Any]

SECONDS = 120
MEMORY = 8 * 2**30
LEAST, MOST = 100, 400
ENDED = re.compile(r"\d+ calls, \d+ wrong")

FAR = [2**40, 2**62, 2**63 - 1, -(2**40), -(2**63)]
NEGATIVE = [-1, -2, -(2**31), -(2**62), -(2**63)]


@dataclass(frozen=True)
class Good:
    """A call that works, and what may not be done to its arguments."""

    args: Args
    # Whole numbers that may stand nowhere in an argument (or, of a matrix, nowhere in its first column).
    numbers: dict[str, list[int]]
    # Arguments whose length another one prescribes.
    tied: tuple[str, ...] = ()
    # Arguments that take any rank but 0.
    any_rank: tuple[str, ...] = ()
    # Row counts that are too small for the ids, or that no memory holds where the operator has to build them.
    sizes: dict[str, list[int]] = field(default_factory=dict)
    # Value types the operator does not take, besides those that none takes.
    not_taken: tuple[Any, ...] = ()
    # Arguments that take the type of another one, and are converted to it where nothing is lost.
    follow: tuple[str, ...] = ()
    # Arguments that may be left out.
    optional: tuple[str, ...] = ()


# ---------------------------------------------------------------- good calls

TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)
INDICES = np.array([3, 0, 2, 3, 1, 0], np.int64)
SEGMENT_IDS = np.array([0, 0, 1, 2, 2, 2], np.int64)
IDS = {"indices": INDICES, "segment_ids": SEGMENT_IDS}
NOT_FLOATS = (np.int32, np.uint8, np.bool_, np.complex64, "S3")
NOT_NUMBERS = (np.bool_, "S3")
UNHOLDABLE = [2**40, 2**50, 2**62, 2**63 - 1]


def segment(optional: bool, not_taken: tuple[Any, ...]) -> Good:
    args = {"data": TABLE, **IDS}
    numbers = {"indices": [-1, 4, 5, *FAR], "segment_ids": [*NEGATIVE]}
    if not optional:
        args["num_segments"] = np.array(3)
        numbers |= {"num_segments": [*NEGATIVE, 0, 1, 2], "segment_ids": [-1, 3, 9, *FAR]}
    return Good(
        args,
        numbers,
        tied=("indices", "segment_ids"),
        any_rank=("data",),
        sizes={} if optional else {"num_segments": UNHOLDABLE},
        not_taken=not_taken,
        optional=("num_segments",),
    )


def segment_grad(compact: bool) -> Good:
    size = "dense_output_dim0" if compact else "output_dim0"
    return Good(
        {"grad": TABLE[:3], **IDS, size: np.array(4)},
        {"indices": [-1, 4, 5, *FAR], "segment_ids": [-1, 3, 4, *FAR], size: [*NEGATIVE, 1, 2, 3]},
        tied=("indices", "segment_ids"),
        any_rank=("grad",),
        sizes={} if compact else {size: UNHOLDABLE},
        not_taken=NOT_FLOATS,
    )


SEGMENT_GRAD_GRAD = Good(
    {"grad": TABLE, **IDS, "num_segments": np.array(3)},
    {"indices": [-1, 4, 5, *FAR], "segment_ids": [-1, 3, 4, *FAR], "num_segments": [*NEGATIVE, 1, 2]},
    tied=("indices", "segment_ids"),
    any_rank=("grad",),
    sizes={"num_segments": UNHOLDABLE},
    not_taken=NOT_FLOATS,
)

WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32)


def weighted(compact: bool) -> Good:
    """A weighted sum and its compact gradient take the same ids; what differs is who looks up and who is summed."""
    table, size, rows = ("grad", "dense_output_dim0", 4) if compact else ("data", "num_segments", 3)
    return Good(
        {table: TABLE[:3] if compact else TABLE, "weights": WEIGHTS, **IDS, size: np.array(rows)},
        {"indices": [-1, 4, 5, *FAR], "segment_ids": [-1, 3, 4, *FAR], size: [*NEGATIVE, *range(rows)]},
        tied=("weights", "indices", "segment_ids"),
        any_rank=(table,),
        sizes={} if compact else {size: UNHOLDABLE},
        not_taken=NOT_FLOATS,
    )


CHOSEN = np.array([[3, 0], [-1, 2], [1, 3]], np.int64)
NOT_CHOSEN = [-2, 4, 5, *FAR]


def max_grad(compact: bool) -> Good:
    size = "dense_output_dim0" if compact else "output_dim0"
    return Good(
        {"grad": TABLE[:3], "chosen": CHOSEN, size: np.array(4)},
        {"chosen": NOT_CHOSEN, size: [*NEGATIVE, 1, 2, 3]},
        tied=("grad", "chosen"),
        sizes={} if compact else {size: UNHOLDABLE},
        not_taken=NOT_FLOATS,
    )


ROWS = np.array([0, 2, 2, 5, 3], np.int64)
VALUES = np.arange(5, dtype=np.float32)
DEFAULT = np.array(9, np.float32)
ENTRIES = np.array([[0, 1], [0, 5], [1, 2], [2, 0], [3, 5]], np.int64)

GOOD: dict[str, Good] = {
    "sparse_segment_sum": segment(True, (np.bool_, np.complex64, "S3")),
    "sparse_segment_mean": segment(False, NOT_FLOATS),
    "sparse_segment_sqrt_n": segment(True, NOT_FLOATS),
    **{f"sparse_segment_{kind}_grad": segment_grad(False) for kind in ("sum", "mean", "sqrt_n")},
    **{f"sparse_segment_{kind}_grad_v2": segment_grad(True) for kind in ("sum", "mean", "sqrt_n")},
    **{f"sparse_segment_{kind}_grad_grad": SEGMENT_GRAD_GRAD for kind in ("sum", "mean", "sqrt_n")},
    "sparse_segment_weighted_sum": weighted(False),
    "sparse_segment_weighted_sum_grad_v2": weighted(True),
    "row_dot": Good(
        {"a": TABLE, "b": TABLE[:3], "a_rows": INDICES, "b_rows": SEGMENT_IDS},
        {"a_rows": [-1, 4, 5, *FAR], "b_rows": [-1, 3, 4, *FAR]},
        tied=("a_rows", "b_rows"),
        any_rank=("a", "b"),
        not_taken=NOT_FLOATS,
        follow=("b",),
    ),
    "sparse_segment_max": Good(
        {"data": TABLE, **IDS, "num_segments": np.array(3)},
        {"indices": [-1, 4, 5, *FAR], "segment_ids": [-1, 3, 4, *FAR], "num_segments": [*NEGATIVE, 0, 1, 2]},
        tied=("indices", "segment_ids"),
        any_rank=("data",),
        sizes={"num_segments": UNHOLDABLE},
        not_taken=NOT_FLOATS,
    ),
    "sparse_segment_max_grad": max_grad(False),
    "sparse_segment_max_grad_v2": max_grad(True),
    "sparse_segment_max_grad_grad": Good(
        {"grad": TABLE, "chosen": CHOSEN},
        {"chosen": NOT_CHOSEN},
        not_taken=NOT_FLOATS,
    ),
    "chosen_rank": Good(
        {"sorted_unique_indices": np.arange(4), "chosen": CHOSEN},
        {"sorted_unique_indices": [7, *FAR], "chosen": NOT_CHOSEN},
        any_rank=("chosen",),
    ),
    "segment_ids_from_offsets": Good(
        {"offsets": np.array([0, 2, 2, 5]), "size": np.array(6)},
        {"offsets": [-1, 7, *FAR], "size": [*NEGATIVE, *range(5)]},
        sizes={"size": UNHOLDABLE},
    ),
    "index_rank": Good(
        {"sorted_unique_indices": np.arange(4), "indices": INDICES},
        {"sorted_unique_indices": [7, *FAR], "indices": [-1, 4, 5, *FAR]},
    ),
    "sparse_fill_empty_rows": Good(
        {
            "indices": np.stack([ROWS, ROWS], axis=1),
            "values": VALUES,
            "dense_shape": np.array([6, 6]),
            "default_value": DEFAULT,
        },
        {"indices": [-1, 6, 7, *FAR]},
        tied=("indices", "values", "dense_shape"),
        sizes={"dense_shape": [*NEGATIVE, 0, 1, 5, *UNHOLDABLE]},
    ),
    "ragged_fill_empty_rows": Good(
        {"value_rowids": ROWS, "values": VALUES, "nrows": np.array(6), "default_value": DEFAULT},
        {"value_rowids": [-1, 6, 7, *FAR], "nrows": [*NEGATIVE, 0, 1, 5]},
        tied=("value_rowids", "values"),
        sizes={"nrows": UNHOLDABLE},
    ),
    **{
        f"{kind}_fill_empty_rows_grad": Good(
            {"reverse_index_map": np.array([0, 4, 2, 4]), "grad_values": VALUES},
            {"reverse_index_map": [-1, 5, 6, 2**31, *FAR]},
            not_taken=NOT_NUMBERS,
        )
        for kind in ("sparse", "ragged")
    },
    "sparse_fill_empty_rows_grad_grad": Good(
        {
            "reverse_index_map": np.array([0, 4, 2, 4, 1]),
            "d_values_grad": VALUES,
            "d_default_value_grad": DEFAULT,
            "full_size": np.array(6),
        },
        {"reverse_index_map": [-1, 6, 7, *FAR], "full_size": [*NEGATIVE, 0, 1, 4]},
        tied=("reverse_index_map", "d_values_grad"),
        sizes={"full_size": UNHOLDABLE},
        not_taken=NOT_NUMBERS,
    ),
    "sparse_slice": Good(
        {
            "indices": ENTRIES,
            "values": VALUES,
            "shape": np.array([4, 6]),
            "start": np.array([0, 1]),
            "size": np.array([3, 4]),
        },
        {"shape": NEGATIVE, "size": NEGATIVE},
        tied=("indices", "values", "shape", "start", "size"),
    ),
    # All of the inputs are selected, so that any entry that moves leaves one unmatched.
    "sparse_slice_grad": Good(
        {
            "backprop_val_grad": VALUES,
            "input_indices": ENTRIES,
            "input_start": np.array([0, 1]),
            "output_indices": ENTRIES - [0, 1],
        },
        {"input_indices": [-1, 9, *FAR], "output_indices": [-1, 9, *FAR], "input_start": [-1, 2, *FAR]},
        tied=("backprop_val_grad", "input_start", "output_indices"),
        not_taken=NOT_NUMBERS,
    ),
    "sparse_slice_grad_grad": Good(
        {
            "grad": VALUES,
            "input_indices": ENTRIES,
            "input_start": np.array([0, 1]),
            "output_indices": ENTRIES - [0, 1],
        },
        {"input_indices": [-1, 9, *FAR], "output_indices": [-1, 9, *FAR], "input_start": [-1, 2, *FAR]},
        tied=("grad", "input_indices", "input_start"),
        not_taken=NOT_NUMBERS,
    ),
}


# ---------------------------------------------------------------- the faults


def single_faults(op: str) -> Iterator[tuple[str, str, Any, bool]]:
    """Argument, what is wrong, the bad value, and whether it is wrong whatever the others are."""
    good = GOOD[op]
    for name, array in good.args.items():
        ids = array.dtype.kind == "i"
        always = list(no_array_at_all(array))
        if ids:
            always += no_whole_numbers(array)
        elif name not in good.follow:
            always += wrong_types(array, good.not_taken)
        if name not in good.optional:
            always.append(("None", None))
        yield from ((name, what, bad, True) for what, bad in always)
        sometimes = list(wrong_ranks(array, name in good.any_rank))
        if name in good.tied:
            sometimes += wrong_lengths(array)
        sometimes += wrong_numbers(array, good.numbers.get(name, []))
        sometimes += wrong_sizes(array, good.sizes.get(name, []))
        yield from ((name, what, bad, False) for what, bad in sometimes)


def hostile_calls(op: str) -> list[tuple[str, Args]]:
    """Each single fault; then pairs of faults, drawn with a fixed seed, until there are enough."""
    good, faults = GOOD[op].args, list(single_faults(op))
    calls = [(f"{name}: {what}", good | {name: bad}) for name, what, bad, _ in faults]
    random = np.random.default_rng(0)
    surely = [fault for fault in faults if fault[3]]
    while len(calls) < MOST:
        # The first is wrong by itself, so that the second cannot correct it.
        first, second = surely[random.integers(len(surely))], faults[random.integers(len(faults))]
        if first[0] != second[0]:
            both = {first[0]: first[2], second[0]: second[2]}
            calls.append((f"{first[0]}: {first[1]}; {second[0]}: {second[1]}", good | both))
    return calls


# ---------------------------------------------------------------- special faults, and the public advisories

EMPTY, NO_ENTRIES = np.zeros(0, np.float32), np.zeros((0, 0), np.int64)

SPECIAL: dict[str, tuple[str, Args]] = {
    "CVE-2020-15194 a matrix of gradients": (
        "sparse_fill_empty_rows_grad",
        {"reverse_index_map": [0], "grad_values": [[1.0, 2.0], [3.0, 4.0]]},
    ),
    "CVE-2020-15194 a scalar map": (
        "sparse_fill_empty_rows_grad",
        {"reverse_index_map": 0, "grad_values": [1.0]},
    ),
    "CVE-2020-15195 a map out of range": (
        "sparse_fill_empty_rows_grad",
        {"reverse_index_map": [1, 2, 2**31, -(2**31)], "grad_values": [1.0, 2.0, 3.0]},
    ),
    "CVE-2022-41898 a map into nothing": (
        "sparse_fill_empty_rows_grad",
        {"reverse_index_map": [0], "grad_values": EMPTY},
    ),
    "CVE-2021-29565 an empty dense_shape": (
        "sparse_fill_empty_rows",
        {"indices": NO_ENTRIES, "values": EMPTY, "dense_shape": np.zeros(0, np.int64), "default_value": 0.0},
    ),
    "CVE-2021-37676 an empty dense_shape with entries": (
        "sparse_fill_empty_rows",
        {
            "indices": np.zeros((3, 0), np.int64),
            "values": VALUES[:3],
            "dense_shape": np.zeros(0, np.int64),
            "default_value": 0.0,
        },
    ),
    "CVE-2021-41224 fewer values than indices": (
        "sparse_fill_empty_rows",
        {
            "indices": np.zeros((3, 2), np.int64),
            "values": VALUES[:1],
            "dense_shape": [5, 3],
            "default_value": 0.0,
        },
    ),
    "decreasing ids": (
        "sparse_segment_sum",
        {"data": TABLE, "indices": [0, 1, 2], "segment_ids": [0, 2, 1]},
    ),
    "an id that no int32 can follow": (
        "sparse_segment_sum",
        {"data": TABLE, "indices": [0], "segment_ids": np.array([2**31 - 1], np.int32)},
    ),
    "an id that no int64 can follow": (
        "sparse_segment_sum",
        {"data": TABLE, "indices": [0], "segment_ids": [2**63 - 1]},
    ),
    "rows that no memory holds": (
        "sparse_segment_mean",
        {"data": TABLE, "indices": [0], "segment_ids": [2**50]},
    ),
    "a size past 64 bits": (
        "sparse_segment_mean_grad",
        {"grad": TABLE[:3].reshape(3, 1, 2), **IDS, "output_dim0": 2**63 - 1},
    ),
    "ids in a table without rows": (
        "sparse_segment_sum",
        {"data": TABLE[:0], "indices": [0], "segment_ids": [0]},
    ),
    "ids of a gradient without rows": (
        "sparse_segment_sum_grad_v2",
        {"grad": TABLE[:0], "indices": [0], "segment_ids": [0], "dense_output_dim0": 4},
    ),
    "two endless batches": (
        "sparse_segment_sum_grad",
        {
            "grad": TABLE,
            "indices": np.broadcast_to(np.int64(0), (2**50,)),
            "segment_ids": np.broadcast_to(np.int64(0), (2**50,)),
            "output_dim0": 4,
        },
    ),
    "an endless map": (
        "sparse_fill_empty_rows_grad",
        {"reverse_index_map": np.broadcast_to(np.int64(0), (2**50,)), "grad_values": VALUES},
    ),
    "a fractional default for whole values": (
        "sparse_fill_empty_rows",
        GOOD["sparse_fill_empty_rows"].args | {"values": np.arange(5), "default_value": 0.5},
    ),
    "a text default for numbers": (
        "sparse_fill_empty_rows",
        GOOD["sparse_fill_empty_rows"].args | {"default_value": b"x"},
    ),
    "a slice of 255 dimensions": (
        "sparse_slice",
        {
            "indices": np.zeros((1, 255), np.int64),
            "values": VALUES[:1],
            **dict.fromkeys(("shape", "start", "size"), np.ones(255, np.int64)),
        },
    ),
    "outputs in another order": (
        "sparse_slice_grad",
        GOOD["sparse_slice_grad"].args | {"output_indices": (ENTRIES - [0, 1])[::-1]},
    ),
    "more outputs than inputs": (
        "sparse_slice_grad",
        GOOD["sparse_slice_grad"].args | {"input_indices": ENTRIES[:4]},
    ),
}


# ---------------------------------------------------------------- running them


def refuse(name: str, op: str, args: Args) -> str:
    """What is wrong with the way that the call ended; empty if nothing is."""
    try:
        result = getattr(functions, op)(**args)
    except rowgrad.RowgradError as error:
        return "" if error.op and error.code and str(error) else f"{name}: the error lacks op, code or message"
    except BaseException as error:
        return f"{name}: {type(error).__name__}: {error}"
    return f"{name}: answered {str(result)[:200]}"


def make_calls(what: str) -> None:
    """Make the calls of an operator, or a special one, and print how they ended."""
    if what in SPECIAL:
        calls = [(what, *SPECIAL[what])]
    else:
        getattr(functions, what)(**GOOD[what].args)  # the call that all the others are bent from works
        calls = [(name, what, args) for name, args in hostile_calls(what)]
    wrong = 0
    for name, op, args in calls:
        print(f"calling {name}", flush=True)  # the last one named is the one that hung or crashed
        if complaint := refuse(name, op, args):
            wrong += 1
            print(f"WRONG {complaint}", flush=True)
    print(f"{len(calls)} calls, {wrong} wrong", flush=True)


class Child:
    """A process with little memory that makes the calls it is told to; after a crash or a hang there is another."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def run(self, what: str) -> str:
        """The last line that the calls of `what` print."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", __file__],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        lines: list[str] = []
        limit = threading.Timer(SECONDS, self.process.kill)
        limit.start()
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if ENDED.fullmatch(lines[-1]):
                break
        else:
            self.end()
        limit.cancel()
        wrong = [line for line in lines if line.startswith("WRONG")]
        assert not wrong, "\n".join(wrong[:30])
        assert self.process is not None, "\n".join(lines[-30:])
        return lines[-1]

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    found = Child()
    yield found
    found.end()


@pytest.mark.parametrize("op", GOOD)
def test_hostile_calls_are_refused(op: str, child: Child) -> None:
    assert child.run(op) == f"{len(hostile_calls(op))} calls, 0 wrong"


@pytest.mark.parametrize("what", SPECIAL)
def test_refused(what: str, child: Child) -> None:
    assert child.run(what) == "1 calls, 0 wrong"


@pytest.mark.parametrize("op", GOOD)
def test_there_are_enough_calls(op: str) -> None:
    assert len(hostile_calls(op)) >= LEAST


def test_cve_2022_41898_nothing_to_map_is_no_error() -> None:
    d_values, d_default_value = rowgrad.sparse_fill_empty_rows_grad(np.zeros(0, np.int64), EMPTY)
    assert d_values.shape == (0,) and d_default_value == 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for asked in sys.stdin:
        make_calls(asked.rstrip("\n"))
