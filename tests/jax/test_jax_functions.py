"""Every operator in JAX: bit for bit what NumPy gets by the kernels, and to rounding in portable form."""

import doctest
import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_cases import AT_ONCE, CALLS, FUNCTIONS, Args, Array, as_tuple, call, call_jitted, jax, jnp, path, rj, wide

import rowgrad
import strategies
from golden import assert_same
from rowgrad._ops import functions
from rowgrad._ops.callables import function_attributes
from rowgrad._runtime.dtypes import BFLOAT16
from rowgrad.jax._forms import FORMS

DRAWN = sorted(set(FUNCTIONS) & set(strategies.OPERATORS))
# JAX has neither texts nor quantised types.
CASES = [(name, dtype) for name in DRAWN for dtype in strategies.OPERATORS[name][1]
         if dtype.kind != "O" and not dtype.names]  # fmt: skip
EACH = pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{name}-{dtype.name}" for name, dtype in CASES])


def small(value: Any) -> Any:
    """Numbers that a sum in another order changes by rounding only; none that XLA takes for 0."""
    if not isinstance(value, np.ndarray) or (value.dtype.kind not in "fcV" and value.dtype != BFLOAT16):
        return value
    if value.dtype.kind == "c":
        return np.nan_to_num(value.real).clip(-9, 9).astype(value.dtype)
    plain = np.nan_to_num(value.astype(np.float64)).clip(-9, 9)
    return np.where(np.abs(plain) < 1e-4, 0, plain).astype(value.dtype)


def assert_near(expected: Array, found: Any) -> None:
    found = np.asarray(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind in "iub":
        assert found.tolist() == expected.tolist()
        return
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-12, "complex128": 1e-12}.get(
        expected.dtype.name, 1e-5
    )
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(found.astype(kind), expected.astype(kind), rtol=tolerance, atol=40 * tolerance)


def test_every_function_is_here_and_has_a_portable_form() -> None:
    names = {operator.name for operators in FUNCTIONS.values() for operator in operators}
    assert set(FORMS) <= names
    for name, operators in FUNCTIONS.items():
        own = [p for p in inspect.signature(getattr(functions, name)).parameters if p not in ("out", "plan")]
        here = [p for p in inspect.signature(CALLS[name]).parameters if p != "max_unique"]
        pins, attributes = operators[-1].inputs, function_attributes(operators[-1])
        assert here == own == [pin.name for pin in pins] + list(attributes)
    assert len(rj.__all__) == len(set(rj.__all__)) and all(hasattr(rj, name) for name in rj.__all__)


@pytest.mark.parametrize("name", rj.__all__)
def test_docstrings_are_true(name: str) -> None:
    tests = doctest.DocTestFinder(recurse=False).find(getattr(rj, name), name)
    assert name == "TakenRows" or any(test.examples for test in tests)
    assert doctest.DocTestRunner().run(tests[0]).failed == 0


def test_the_core_does_not_load_jax() -> None:
    code = "import sys, rowgrad; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def calls(name: str, dtype: Any) -> st.SearchStrategy[Args]:
    """Calls as JAX takes them: ids of rows are a vector, and the number of segments is known."""

    def counted(args: Args) -> Args:
        if name not in ("segment_sum", "segment_prod", "segment_max", "segment_min") or not len(args["segment_ids"]):
            return args
        return {"num_segments": int(args["segment_ids"][-1]) + 1} | args

    drawn = strategies.calls(name, dtype).filter(lambda args: np.ndim(args.get("segment_ids", [])) == 1)
    return drawn.map(counted).map(lambda args: dict(sorted(args.items(), key=lambda item: item[0] == "num_segments")))


def large_calls(name: str, dtype: Any) -> st.SearchStrategy[Args]:
    def is_large(args: Args) -> bool:
        return len(next(value for value in args.values() if isinstance(value, list) or np.ndim(value))) > 2

    return calls(name, dtype).filter(is_large)


@EACH
@settings(max_examples=2, derandomize=True)
@given(data=st.data())
def test_at_once_the_bits_are_those_of_numpy(name: str, dtype: Any, data: st.DataObject) -> None:
    args = data.draw(calls(name, dtype))
    expected = as_tuple(getattr(functions, name)(**args))
    with wide():
        for one, other in zip(expected, call(name, args), strict=True):
            assert_same(one, np.asarray(other), "nan")


# A program is compiled for each; how the callback hands over an array depends on little more than its size.
TRACED = [(name, dtype) for name, dtype in CASES if name not in AT_ONCE
          and (dtype in strategies.FLOATS or dtype in (np.uint8, np.int64, np.complex64))]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), TRACED, ids=lambda value: getattr(value, "name", value))
@settings(max_examples=1, derandomize=True)
@given(data=st.data())
def test_traced_the_bits_are_those_of_numpy(name: str, dtype: Any, data: st.DataObject) -> None:
    args = data.draw(large_calls(name, dtype))
    expected = as_tuple(getattr(functions, name)(**args))
    with wide():
        for one, other in zip(expected, call_jitted(name, args, expected), strict=True):
            assert_same(one, np.asarray(other), "nan")


# Each is compiled, so a few types must do: one that is not rounded on the way, one that is, and whole numbers.
PORTABLE = [(name, dtype) for name, dtype in CASES if dtype in (np.float32, BFLOAT16, np.int64)]


@pytest.mark.parametrize(("name", "dtype"), PORTABLE, ids=lambda value: getattr(value, "name", value))
@settings(max_examples=1, derandomize=True)
@given(data=st.data())
def test_portable_results_differ_by_rounding_only(name: str, dtype: Any, data: st.DataObject) -> None:
    drawn = data.draw(large_calls(name, dtype))
    args = {key: small(value) for key, value in drawn.items()}
    if name == "sparse_dense_cwise_div":  # which refuses to divide by 0
        args["dense"] = np.where(args["dense"] == 0, 1, args["dense"]).astype(dtype)
    expected = as_tuple(getattr(functions, name)(**args))
    with wide(), rj.portable():
        found = call(name, args) if name in AT_ONCE else call_jitted(name, args, expected)
        for one, other in zip(expected, found, strict=True):
            assert_near(one, other)


EMPTY: list[tuple[str, Args]] = [
    ("sparse_segment_mean", {"data": np.ones((3, 2)), "indices": [], "segment_ids": [], "num_segments": 2}),
    ("sparse_segment_sum", {"data": np.ones((0, 2)), "indices": [], "segment_ids": [], "num_segments": 0}),
    ("sparse_segment_sum", {"data": np.ones((3, 0)), "indices": [1], "segment_ids": [0], "num_segments": 1}),
    ("sparse_segment_sum_grad", {"grad": np.ones((1, 2)), "indices": [7], "segment_ids": [9], "output_dim0": 0}),
    ("sparse_segment_mean_grad", {"grad": np.ones((0, 2)), "indices": [], "segment_ids": [], "output_dim0": 2}),
    ("sparse_segment_sum_grad_v2", {"grad": np.ones((0, 2)), "indices": [], "segment_ids": [], "dense_output_dim0": 5}),
    ("sparse_segment_sum_grad_v2", {"grad": np.ones((2, 0)), "indices": [3], "segment_ids": [1],
                                    "dense_output_dim0": 5}),
    ("sparse_segment_mean_grad_grad", {"grad": np.ones((0, 2)), "indices": [], "segment_ids": [], "num_segments": 3}),
    ("sparse_fill_empty_rows_grad", {"reverse_index_map": [], "grad_values": np.ones(0)}),
    ("sparse_fill_empty_rows_grad", {"reverse_index_map": [], "grad_values": np.ones(3)}),
    ("sparse_slice_grad", {"backprop_val_grad": np.ones(0), "input_indices": np.zeros((3, 2), int),
                           "input_start": [0, 0], "output_indices": np.zeros((0, 2), int)}),
    ("index_rank", {"sorted_unique_indices": [], "indices": []}),
    ("sparse_segment_max_grad", {"grad": np.ones((0, 2)), "chosen": np.zeros((0, 2), int), "output_dim0": 3}),
    ("sparse_segment_max_grad_v2", {"grad": np.ones((3, 0)), "chosen": np.zeros((3, 0), int), "dense_output_dim0": 1}),
    ("sparse_segment_max_grad_grad", {"grad": np.ones(3), "chosen": np.zeros(0, int)}),
]  # fmt: skip


@pytest.mark.parametrize("which", ["kernels", "portable"])
@pytest.mark.parametrize(("name", "args"), EMPTY, ids=[f"{name}-{i}" for i, (name, _) in enumerate(EMPTY)])
def test_nothing_gives_nothing(name: str, args: Args, which: str) -> None:
    typed = {key: np.asarray(value, np.int64) if isinstance(value, list) else value for key, value in args.items()}
    expected = as_tuple(getattr(functions, name)(**typed))
    with wide(), path(which):
        for found in (call(name, typed), call_jitted(name, typed, expected)):
            for one, other in zip(expected, found, strict=True):
                assert_same(one, np.asarray(other))


@pytest.mark.parametrize("which", ["kernels", "portable"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_4096_units_make_4096(which: str, dtype: Any) -> None:
    grad, ids, segments = jnp.ones((1, 3), dtype), jnp.zeros(4096, int), jnp.zeros(4096, int)
    with path(which):
        dense = jax.jit(lambda g: rj.sparse_segment_sum_grad(g, ids, segments, 1))(grad)
        compact = rj.sparse_segment_sum_grad_v2(grad, ids, segments, 1)
        pooled = jax.grad(lambda t: rj.sparse_segment_sum(t, ids, jnp.arange(4096), 4096).astype(jnp.float32).sum())(
            grad
        )
    assert dense.tolist() == compact.output.tolist() == pooled.tolist() == [[4096.0] * 3]


def test_numbers_below_the_normal_range_are_kept() -> None:
    """XLA's threads would take them for 0; the kernels' do not."""
    tiny = np.full((1, 3), 1e-40, np.float32)
    program = jax.jit(lambda table: rj.sparse_segment_sum(table, [0, 0], [0, 0], 1))
    for _ in range(3):
        assert np.array_equal(program(tiny), rowgrad.sparse_segment_sum(tiny, [0, 0], [0, 0], 1))


def test_lists_and_numpy_arrays_are_taken() -> None:
    assert rj.sparse_segment_sum([[1, 2], [3, 4]], [0, 1, 1], [0, 0, 1]).tolist() == [[4, 6], [3, 4]]
    found = rj.sparse_segment_mean(np.ones((2, 1), np.float32), np.array([0, 1], np.int16), np.array([0, 0]))
    assert isinstance(found, jax.Array) and found.tolist() == [[1.0]]


def test_without_64_bits_ids_are_cut_to_32() -> None:
    ranks = CALLS["index_rank"](jnp.array([1, 7]), jnp.array([7, 1]))
    assert ranks.dtype == jnp.int32 and ranks.tolist() == [1, 0]
    with pytest.raises(rowgrad.OutOfRangeError, match="indices needs 64-bit"):
        rj.sparse_segment_sum(jnp.ones((2, 1)), np.array([0, 2**40]), np.array([0, 0]))


def test_a_program_for_another_device_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    # Reports call back, and JAX refuses to write that down for a device that is not there.
    monkeypatch.setattr("rowgrad.jax._forms._report", lambda call, ok, values, results: results)
    data, ids, segments = jnp.arange(6.0).reshape(3, 2), jnp.array([2, 0, 2]), jnp.array([0, 0, 1])
    traced = jax.jit(lambda d, i, s: rj.sparse_segment_mean(d, i, s, 2)).trace(data, ids, segments)
    assert "@rowgrad(" in traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "@rowgrad(" not in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert traced.lower().compile()(data, ids, segments).tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_a_window_far_below_zero() -> None:
    """An index that lies 2**63 or more behind the start is not in the window, though their difference overflows."""
    args = {
        "indices": np.array([[1], [3 - 2**63]]),
        "values": np.ones(2),
        "shape": [5],
        "start": [-(2**63)],
        "size": [4],
    }
    with wide(), rj.portable():
        found = rj.sparse_slice(**args)
    assert np.asarray(found.output_indices).tolist() == [[3]]


def test_operators_without_a_form_are_computed_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowgrad.jax import _forms

    monkeypatch.setattr(_forms, "FORMS", {})
    data, ids = jnp.arange(6.0).reshape(3, 2), jnp.array([0, 0, 1])

    def loss(data: Any) -> Any:
        return (rj.sparse_segment_sum(data, jnp.array([2, 0, 1]), ids, 2) ** 2).sum()

    with rj.portable():
        assert float(jax.jit(loss)(data)) == 4**2 + 6**2 + 2**2 + 3**2
        assert jax.jit(jax.grad(loss))(data).tolist() == [[8.0, 12.0], [4.0, 6.0], [8.0, 12.0]]
