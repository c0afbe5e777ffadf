"""Programs that hold kernels: exported, sharded, on threads, in forward mode; and what is left without the handler."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_cases import DIFFERENTIABLE, differentiated, example, jax, jnp, rj, wide

import rowgrad
from rowgrad.jax import _layout, _targets

RANDOM = np.random.default_rng(3)
SIZES = [(8, 4, 16), (4096, 20, 16), (300, 7, 1)]
KINDS = ["sum", "mean", "sqrt_n"]


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls that Python had to finish."""
    found: list[int] = []
    run = _targets._run
    monkeypatch.setattr(_targets, "_run", lambda frame: (found.append(frame), run(frame))[1])
    return found


def entries(bags: int, each: int, width: int, dtype: Any = np.float32) -> tuple[Any, ...]:
    table = RANDOM.standard_normal((1000, width)).astype(dtype)
    ids = RANDOM.integers(0, 1000, bags * each).astype(np.int32)
    return table, ids, np.repeat(np.arange(bags, dtype=np.int32), each)


# Kernels are compiled for each type and vector width, so not all are paired.
@pytest.mark.parametrize(("bags", "each", "width", "dtype"), [
    (8, 4, 16, "float32"), (4096, 20, 16, "float32"), (256, 8, 5, "float64"), (3000, 7, 16, jnp.bfloat16),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_need_no_python(kind: str, bags: int, each: int, width: int, dtype: Any, finished: list[int]) -> None:
    with wide():
        table, ids, segments = entries(bags, each, width, dtype)
        grad = RANDOM.standard_normal((bags, width)).astype(dtype)
        forward, backward = f"sparse_segment_{kind}", f"sparse_segment_{kind}_grad"
        found = jax.jit(lambda *given: getattr(rj, forward)(*given, bags))(table, ids, segments)
        assert np.array_equal(found, getattr(rowgrad, forward)(table, ids, segments, bags))
        dense = jax.jit(lambda *given: getattr(rj, backward)(*given, 1000))(grad, ids, segments)
        assert np.array_equal(dense, getattr(rowgrad, backward)(grad, ids, segments, 1000))
        compact = f"{backward}_v2"
        rows, unique = jax.jit(lambda *given: getattr(rj, compact)(*given, 1000, max_unique=1001))(grad, ids, segments)
        expected = getattr(rowgrad, compact)(grad, ids, segments, 1000)
        size = len(expected.output)
        assert np.array_equal(rows[:size], expected.output) and not np.asarray(rows[size:]).any()
        assert (
            np.array_equal(unique[:size], expected.sorted_unique_indices) and (np.asarray(unique[size:]) == 1000).all()
        )
        assert finished == []


@pytest.mark.parametrize(("bags", "each", "width"), SIZES)
def test_weights_dots_and_the_largest_need_no_python(bags: int, each: int, width: int, finished: list[int]) -> None:
    table, ids, segments = entries(bags, each, width)
    weights = RANDOM.standard_normal(ids.size).astype(np.float32)
    weighted = jax.jit(lambda *given: rj.sparse_segment_weighted_sum(*given, bags))
    expected = rowgrad.sparse_segment_weighted_sum(table, weights, ids, segments, bags)
    for _ in range(50):  # threads come to their parts in any order
        assert np.array_equal(weighted(table, weights, ids, segments), expected)
    dots = jax.jit(rj.row_dot)(table, table, ids, segments % 1000)
    assert np.array_equal(dots, rowgrad.row_dot(table, table, ids, segments % 1000))
    largest, chosen = jax.jit(lambda *given: rj.sparse_segment_max(*given, bags))(table, ids, segments)
    greatest = rowgrad.sparse_segment_max(table, ids, segments, bags)
    assert np.array_equal(largest, greatest.output) and np.array_equal(chosen, greatest.chosen)
    assert finished == []


def test_one_thread_or_many_give_the_same_bits() -> None:
    table, ids, segments = entries(8192, 30, 48)
    program = jax.jit(lambda *given: rj.sparse_segment_mean_grad(*given, 1000))
    before, found = rowgrad.get_num_threads(), []
    try:
        for threads in (1, 2, 7):
            rowgrad.set_num_threads(threads)
            grad = np.resize(table, (8192, 48))
            found.append(np.asarray(program(grad, ids, segments)))
    finally:
        rowgrad.set_num_threads(before)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


# Export

EXPORTED = """
import sys
import jax, numpy as np
import rowgrad, rowgrad.jax
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
table, ids = np.arange(30, dtype=np.float32).reshape(10, 3), np.array([1, 9, 4, 4], np.int32)
segments = np.array([0, 0, 1, 1], np.int32)
pooled, grad = program.call(table, ids, segments)
assert np.array_equal(pooled, rowgrad.sparse_segment_mean(table, ids, segments, 2)), pooled
assert np.array_equal(grad, rowgrad.sparse_segment_mean_grad(np.ones((2, 3), np.float32), ids, segments, 10)), grad
try:
    program.call(table, ids + 5, segments)
except Exception as error:
    assert "indices[1] is 14" in str(error), error
else:
    raise AssertionError("a bad id was taken")
"""


def test_an_exported_program_runs_in_another_process(tmp_path: Path) -> None:
    def both(table: Any, ids: Any, segments: Any) -> Any:
        pooled, pull = jax.vjp(lambda t: rj.sparse_segment_mean(t, ids, segments, 2), table)
        return pooled, pull(jnp.ones_like(pooled))[0]

    rows, size = jax.export.symbolic_shape("rows, size")
    shapes = (jax.ShapeDtypeStruct((rows, 3), np.float32), *[jax.ShapeDtypeStruct((size,), np.int32)] * 2)
    file = tmp_path / "program"
    # JAX wants to be told that a target of somebody else's stays what it is.
    checks = [jax.export.DisabledSafetyCheck.custom_call("rowgrad")]
    file.write_bytes(jax.export.export(jax.jit(both), disabled_checks=checks)(*shapes).serialize())
    done = subprocess.run([sys.executable, "-c", EXPORTED, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Forward mode


@pytest.mark.parametrize("operator", DIFFERENTIABLE, ids=lambda operator: operator.name)
def test_forward_mode_agrees_with_differences(operator: Any) -> None:
    from jax.test_util import check_grads

    with wide():
        run, values = differentiated(operator, example(operator))
        check_grads(run, values, order=2, modes=["fwd"], eps=1e-5, atol=1e-3, rtol=1e-3)


def test_hessians() -> None:
    ids, segments = np.array([2, 0, 2, 1]), np.array([0, 0, 1, 2])

    def loss(pool: Any) -> Any:
        return lambda table: (pool(table) ** 3).sum()

    own = loss(lambda t: rj.sparse_segment_sum(t, ids, segments, 3))
    plain = loss(lambda t: jax.ops.segment_sum(t[ids], segments, 3))
    table = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(jax.hessian(own)(table), jax.hessian(plain)(table))
    np.testing.assert_allclose(jax.jacfwd(jax.grad(own))(table), jax.jacrev(jax.jacfwd(own))(table))


# Devices

SHARDED = """
import functools, jax, jax.numpy as jnp, numpy as np
import rowgrad, rowgrad.jax as rj
P = jax.sharding.PartitionSpec
mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
table = jnp.arange(12.0).reshape(4, 3)
ids, segments = jnp.array([0, 2, 2, 3]), jnp.array([0, 0, 0, 1])
pool = jax.shard_map(lambda t, i, s: rj.sparse_segment_sum(t, i, s, 2), mesh=mesh, in_specs=(P(), P("i"), P("i")),
                     out_specs=P("i"))
def loss(t):
    return (pool(t, ids, segments) ** 2).sum()
def plain(t):
    parts = [jax.ops.segment_sum(t[ids[k:k + 2]], segments[k:k + 2], 2) for k in (0, 2)]
    return (jnp.concatenate(parts) ** 2).sum()
for derive in (jax.grad, jax.jit, lambda f: jax.jit(jax.grad(f)), jax.hessian):
    np.testing.assert_allclose(derive(loss)(table), derive(plain)(table))
"""


def test_gradients_through_shard_map() -> None:
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


# Without the handler


def test_other_versions_are_not_registered() -> None:
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    assert _layout.read_version(header) is not None
    for old, new in (("API_MINOR 3", "API_MINOR 4"), ("API_MAJOR 0", "API_MAJOR 1"), ("void* data;", "void* datum;"),
                     ("_STRUCT_FIELD(XLA_FFI_Stream_Get);", "")):  # fmt: skip
        assert old in header
        assert _layout.read_version(header.replace(old, new, 1)) is None, old
    assert _layout.read_version("") is None


def test_without_the_handler_programs_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_targets, "is_registered", lambda: False)
    table, ids, segments = entries(8, 4, 16)
    program = jax.jit(lambda *given: rj.sparse_segment_sum(*given, 8))
    assert "@rowgrad(" not in program.lower(table, ids, segments).as_text()
    assert np.array_equal(program(table, ids, segments), rowgrad.sparse_segment_sum(table, ids, segments, 8))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_kernels() -> None:
    """Programs of JAX wait for ever in a forked child, for JAX's threads; kernels need none of them."""
    code = """
import os, signal, warnings
warnings.simplefilter("ignore")
import jax, numpy as np, rowgrad, rowgrad.jax as rj
table, ids, segments = np.ones((1000, 64), np.float32), np.zeros(99999, np.int32), np.arange(99999, dtype=np.int32)
large = jax.jit(lambda *given: rj.sparse_segment_sum(*given, 99999))
want = np.asarray(large(table, ids, segments))
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if np.array_equal(rowgrad.sparse_segment_sum(table, ids, segments, 99999), want) else 1)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(large(table, ids, segments), want)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
