"""Bad ids are reported, never dropped: at once as rowgrad's own errors, in a traced program within JAX's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_cases import CALLS, PATHS, STOPPED, jax, jnp, path, rj

import rowgrad
from rowgrad._ops.callables import by_function

WHICH = pytest.mark.parametrize("which", PATHS)
TABLE, MATRIX = np.ones((3, 2), np.float32), np.array([[0, 0], [0, 3], [2, 0]])

# What is wrong, the function, its arrays, its counts, and the argument, position and value that the error names.
BAD: dict[str, tuple[str, dict[str, Any], dict[str, int], tuple[str, Any, Any]]] = {
    "index": ("sparse_segment_sum", {"data": TABLE, "indices": [0, 5, 1], "segment_ids": [0, 0, 1]},
              {"num_segments": 2}, ("indices", 1, 5)),
    "negative index": ("sparse_segment_mean", {"data": TABLE, "indices": [0, -1, 1], "segment_ids": [0, 0, 1]},
                       {"num_segments": 2}, ("indices", 1, -1)),
    "segment": ("sparse_segment_sum", {"data": TABLE, "indices": [0, 1], "segment_ids": [0, 4]},
                {"num_segments": 2}, ("segment_ids", 1, 4)),
    "unsorted": ("sparse_segment_sum", {"data": TABLE, "indices": [0, 1], "segment_ids": [1, 0]},
                 {"num_segments": 2}, ("segment_ids", 1, 0)),
    "gradient": ("sparse_segment_mean_grad", {"grad": TABLE, "indices": [0, 9], "segment_ids": [0, 2]},
                 {"output_dim0": 5}, ("indices", 1, 9)),
    "compact": ("sparse_segment_sum_grad_v2", {"grad": TABLE, "indices": [0, 9], "segment_ids": [0, 2]},
                {"dense_output_dim0": 5, "max_unique": 4}, ("indices", 1, 9)),
    "no room": ("sparse_segment_sum_grad_v2", {"grad": TABLE, "indices": [0, 3, 4], "segment_ids": [0, 2, 1]},
                {"dense_output_dim0": 5, "max_unique": 2}, ("max_unique", None, 2)),
    "again": ("sparse_segment_sum_grad_grad", {"grad": TABLE, "indices": [0, 1], "segment_ids": [0, -3]},
              {"num_segments": 5}, ("segment_ids", 1, -3)),
    "weighted": ("sparse_segment_weighted_sum",
                 {"data": TABLE, "weights": np.ones(2, np.float32), "indices": [0, 3], "segment_ids": [0, 1]},
                 {"num_segments": 2}, ("indices", 1, 3)),
    "rank": ("index_rank", {"sorted_unique_indices": [1, 4], "indices": [4, 3]}, {}, ("indices", 1, 3)),
    "map": ("sparse_fill_empty_rows_grad", {"reverse_index_map": [0, 7], "grad_values": np.ones(3, np.float32)}, {},
            ("reverse_index_map", 1, 7)),
    "unmatched": ("sparse_slice_grad", {"backprop_val_grad": np.ones(1, np.float32), "input_indices": MATRIX,
                                        "input_start": [0, 0], "output_indices": [[5, 5]]}, {},
                  ("output_indices", 0, (5, 5))),
}  # fmt: skip
EACH = pytest.mark.parametrize("case", BAD)


def prepared(case: str) -> tuple[Callable[..., Any], dict[str, Any], str, tuple[str, Any, Any]]:
    name, arrays, counts, named = BAD[case]
    arrays = {key: jax.device_put(np.asarray(v, np.int32) if isinstance(v, list) else v) for key, v in arrays.items()}
    catalogue = by_function()[name][-1].name
    return lambda given: CALLS[name](**given, **counts), arrays, catalogue, named


@EACH
@WHICH
def test_at_once(case: str, which: str) -> None:
    call, arrays, name, (argument, position, value) = prepared(case)
    with path(which), pytest.raises(rowgrad.RowgradError) as caught:
        call(arrays)
    error = caught.value
    assert (error.op, error.argument, error.position, error.value) == (name, argument, position, value)


@EACH
@WHICH
def test_in_a_traced_program(case: str, which: str) -> None:
    call, arrays, name, (argument, _, _) = prepared(case)
    with path(which), pytest.raises(STOPPED) as caught:
        jax.block_until_ready(jax.jit(call)(arrays))
        jax.effects_barrier()
    with pytest.raises(rowgrad.RowgradError) as plain:
        call(arrays)
    assert str(plain.value) in str(caught.value)
    assert type(plain.value).__name__ in str(caught.value)
    assert argument in str(caught.value) and name in str(caught.value)


@WHICH
def test_in_a_batch_the_one_that_is_wrong(which: str) -> None:
    good, bad = np.array([[0, 1], [2, 1]], np.int32), np.array([[0, 1], [2, 8]], np.int32)
    program = jax.jit(jax.vmap(lambda ids: rj.sparse_segment_sum(TABLE, ids, np.array([0, 0]), 1)))
    with path(which):
        assert program(good).shape == (2, 1, 2)
        with pytest.raises(STOPPED, match=r"indices\[1\] is 8"):
            jax.block_until_ready(program(bad))
            jax.effects_barrier()


def test_after_an_error_the_next_run_is_right() -> None:
    program = jax.jit(lambda ids: rj.sparse_segment_sum(TABLE, ids, np.array([0, 0]), 1))
    for _ in range(3):
        with pytest.raises(STOPPED):
            jax.block_until_ready(program(np.array([0, 7])))
        assert program(np.array([0, 1])).tolist() == [[2.0, 2.0]]


def test_where_no_error_can_stop_a_program_its_numbers_are_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowgrad.jax._host.blame", lambda *args: None)
    with rj.portable():
        found = jax.jit(lambda ids: rj.sparse_segment_sum(TABLE, ids, np.array([0, 0]), 1))(np.array([0, 7]))
    assert np.isnan(found).all()


# Sizes

SIZELESS = {
    "num_segments": (lambda ids: rj.sparse_segment_sum(TABLE, ids, ids), "Pass num_segments, a Python int"),
    "max_unique": (lambda ids: rj.sparse_segment_sum_grad_v2(TABLE, ids, ids, 9), "Pass max_unique, the most distinct"),
    "values": (lambda ids: rj.sparse_slice(ids[:, None], ids, [9], [0], [4]), "Call it outside `jit`"),
}


@pytest.mark.parametrize("argument", SIZELESS)
def test_sizes_that_jit_must_know(argument: str) -> None:
    program, remedy = SIZELESS[argument]
    with pytest.raises(rowgrad.InvalidArgumentError, match=remedy) as caught:
        jax.jit(program)(jnp.array([0, 1]))
    assert (caught.value.code, caught.value.argument) == ("no-static-size", argument)


def test_counts_are_no_arrays_under_jit() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="output_dim0 is traced") as caught:
        jax.jit(lambda n: rj.sparse_segment_sum_grad(TABLE, [0], [0], n))(3)
    assert caught.value.code == "no-value"
    assert rj.sparse_segment_sum_grad(TABLE, [0], [0], jnp.array(1)).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("count", [True, np.True_, np.array(True), jnp.array(True), [True]], ids=repr)
def test_booleans_are_no_counts(count: Any) -> None:
    ids = jnp.array([0, 1])
    with pytest.raises(rowgrad.DTypeError, match="num_segments is bool"):
        rj.sparse_segment_sum(jnp.ones((2, 2)), ids, ids, count)


@pytest.mark.parametrize(("most", "code"), [(-1, "bad-max-unique"), (2.0, "bad-max-unique"), (True, "bad-max-unique")])
def test_max_unique_is_a_whole_number(most: Any, code: str) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="max_unique is") as caught:
        rj.sparse_segment_sum_grad_v2(TABLE, [0], [0], 9, max_unique=most)
    assert caught.value.code == code


def test_padding_needs_an_id_that_is_no_row() -> None:
    assert rj.sparse_segment_sum_grad_v2(TABLE, [0], [0], 2**31).sorted_unique_indices.tolist() == [0]
    with pytest.raises(rowgrad.InvalidArgumentError, match="which int32 cannot hold"):
        rj.sparse_segment_sum_grad_v2(TABLE, [0], [0], 2**31, max_unique=3)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("change", "cls", "argument"), [
    ({"indices": np.zeros(2, np.float32)}, rowgrad.DTypeError, "indices"),
    ({"data": np.ones((3, 2), bool)}, rowgrad.DTypeError, "data"),
    ({"indices": np.zeros((2, 1), np.int32)}, rowgrad.InvalidArgumentError, "indices"),
    ({"segment_ids": np.zeros(3, np.int32)}, rowgrad.InvalidArgumentError, "segment_ids"),
    ({"data": np.float32(1)}, rowgrad.InvalidArgumentError, "data"),
    ({"num_segments": -1}, rowgrad.InvalidArgumentError, "num_segments"),
])  # fmt: skip
def test_shapes_and_types_are_told_when_tracing(change: Any, cls: Any, argument: str, traced: bool) -> None:
    args = {"data": TABLE, "indices": np.zeros(2, np.int32), "segment_ids": np.zeros(2, np.int32), "num_segments": 1}
    args |= change
    number = args.pop("num_segments")

    def call(given: Any) -> Any:
        return rj.sparse_segment_sum(**given, num_segments=number)

    with pytest.raises(cls) as caught:
        (jax.jit(call) if traced else call)(args)
    assert caught.value.argument == argument and caught.value.op.startswith("SparseSegmentSum")


def test_rows_that_differ_are_not_broadcast() -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="the rows of b have shape") as caught:
        jax.jit(lambda a, b: rj.row_dot(a, b, [0], [0]))(jnp.ones((2, 3)), jnp.ones((2, 1)))
    assert caught.value.argument == "b"
