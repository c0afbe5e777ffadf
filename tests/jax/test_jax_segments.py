"""Plain segments, filled rows and slices in traced programs: by machine code, with the bits of the kernels."""

from typing import Any

import numpy as np
import pytest
from jax_cases import CALLS, STOPPED, jax, jnp, rj, wide

import rowgrad
from rowgrad import raw_ops
from rowgrad.jax import _targets

RANDOM = np.random.default_rng(4)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls that Python had to finish."""
    found: list[int] = []
    run = _targets._run
    monkeypatch.setattr(_targets, "_run", lambda frame: (found.append(frame), run(frame))[1])
    return found


def same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


# Kernels are compiled for each type and vector width, so not all are paired. Packets begin at 8 columns of float32.
@pytest.mark.parametrize(("size", "columns", "dtype"), [
    (50, (), "float32"), (50, (7,), "float32"), (5000, (13,), "float32"), (300, (2, 3), "float64"),
    (5000, (3,), jnp.bfloat16), (0, (3,), "float32"),
])  # fmt: skip
def test_segments_need_no_python(size: int, columns: tuple[int, ...], dtype: Any, finished: list[int]) -> None:
    with wide():
        data = RANDOM.standard_normal((size, *columns)).astype(dtype)
        if size:
            data[size // 2] = np.nan
        ids = np.sort(RANDOM.integers(0, 30, size)).astype(np.int32)
        mixed = RANDOM.integers(-1, 30, size)
        grad = RANDOM.standard_normal((33, *columns)).astype(dtype)
        found = jax.jit(lambda *given: rj.segment_sum(*given, 33))(data, ids)
        assert same(found, rowgrad.segment_sum(data, ids, 33))
        for kind in ("sum", "mean", "sqrt_n"):
            found = jax.jit(lambda *given, kind=kind: CALLS[f"unsorted_segment_{kind}"](*given, 33))(data, mixed)
            assert same(found, getattr(rowgrad, f"unsorted_segment_{kind}")(data, mixed, 33)), kind
            taken = jax.jit(CALLS[f"segment_{kind}_grad"])(grad, mixed)
            name = {"sum": "SegmentSumGrad", "mean": "SegmentMeanGrad", "sqrt_n": "SegmentSqrtNGrad"}[kind]
            assert same(taken, getattr(raw_ops, name)(grad=grad, segment_ids=mixed)), kind
        assert finished == []


def test_gradients_of_segments_need_no_python(finished: list[int]) -> None:
    data, ids = RANDOM.standard_normal((40, 5)).astype(np.float32), np.sort(RANDOM.integers(0, 9, 40)).astype(np.int32)

    def loss(pool: Any) -> Any:
        return lambda data: (pool(data, ids, 9) ** 3).sum()

    for own in (rj.segment_sum, rj.unsorted_segment_sum):
        for derive in (jax.grad, jax.hessian, lambda f: jax.jacfwd(jax.jacfwd(f))):
            found = jax.jit(derive(loss(own)))(data)
            np.testing.assert_allclose(found, derive(loss(jax.ops.segment_sum))(data), rtol=1e-5, atol=1e-5)
    assert finished == []


@pytest.mark.parametrize("call", [
    lambda data: rj.segment_sum(data, np.array([0, 2, 1]), 3),
    lambda data: rj.segment_sum(data, np.array([0, 1, 3]), 3),
    lambda data: rj.unsorted_segment_mean(data, np.array([0, 9, 1]), 3),
    lambda data: CALLS["segment_sum_grad"](data, np.array([0, 3, 1])),
])  # fmt: skip
def test_a_wrong_segment_is_named(call: Any) -> None:
    with pytest.raises(STOPPED, match=r"segment_ids\[\d\] is \d"):
        jax.block_until_ready(jax.jit(call)(jnp.ones((3, 2))))


def test_columns_that_only_running_tells() -> None:
    """Their packets are found when the program runs."""
    (columns,) = jax.export.symbolic_shape("columns")
    checks = [jax.export.DisabledSafetyCheck.custom_call("rowgrad")]
    ids = np.repeat(np.arange(3, dtype=np.int32), 20)
    program = jax.export.export(jax.jit(lambda data: rj.segment_sum(data, ids, 3)), disabled_checks=checks)(
        jax.ShapeDtypeStruct((60, columns), np.float32)
    )
    for width in (1, 3, 8, 21):
        data = RANDOM.standard_normal((60, width)).astype(np.float32)
        assert same(program.call(data), rowgrad.segment_sum(data, ids, 3))


@pytest.mark.parametrize("dtype", ["float32", jnp.bfloat16])
def test_filled_rows_and_slices_need_no_python(dtype: Any, finished: list[int]) -> None:
    for size in (0, 1, 60, 3000):
        grad = RANDOM.standard_normal(size + size // 3 + 1).astype(dtype)
        places = np.sort(RANDOM.choice(len(grad), size, replace=False)).astype(np.int32)
        for some in (places, RANDOM.permutation(places)):
            found = jax.jit(CALLS["sparse_fill_empty_rows_grad"])(some, grad)
            expected = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=some.astype(np.int64), grad_values=grad)
            assert all(map(same, found, expected))
        for rank in (1, 2, 3):
            indices = np.unique(RANDOM.integers(0, 9 + size // 4, (size, rank)), axis=0)
            start = np.full(rank, 2)
            kept = indices[((indices >= 2) & (indices < 6 + size // 6)).all(1)] - 2
            narrow = [array.astype(np.int32) for array in (indices, start, kept)]
            back, forth = (RANDOM.standard_normal(len(array)).astype(dtype) for array in (kept, indices))
            found = jax.jit(CALLS["sparse_slice_grad"])(back, *narrow)
            assert same(found, rowgrad.sparse_slice_grad(back, indices, start, kept))
            again = jax.jit(CALLS["sparse_slice_grad_grad"])(forth, *narrow)
            expected = raw_ops.SparseSliceGradGrad(
                grad=forth, input_indices=indices, input_start=start, output_indices=kept
            )
            assert same(again, expected)
    assert finished == []


def test_a_slice_that_matches_nothing_is_named() -> None:
    with pytest.raises(STOPPED, match="output_indices"):
        jax.block_until_ready(
            jax.jit(CALLS["sparse_slice_grad"])(
                jnp.ones(1), jnp.array([[1, 1]]), jnp.array([0, 0]), jnp.array([[5, 5]])
            )
        )
    with pytest.raises(STOPPED, match=r"reverse_index_map\[0\] is 7"):
        jax.block_until_ready(jax.jit(CALLS["sparse_fill_empty_rows_grad"])(jnp.array([7]), jnp.ones(2)))
