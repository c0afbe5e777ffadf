"""Every operator of the catalogue as one of PyTorch: registered in full, differentiable, equal to NumPy to the bit."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rowgrad
import strategies
from golden import assert_same
from optional import framework
from rowgrad._ops import OPERATORS, functions
from rowgrad._ops.callables import top_level

torch = framework("torch")
sys.path.insert(0, str(Path(__file__).parent))

from tensor_cases import DIFFERENTIABLE, NAMES, example, numpy_results, overload, to_numpy, wanted  # noqa: E402

import rowgrad.torch  # noqa: E402
from rowgrad.torch._functions import functions as torch_functions  # noqa: E402
from rowgrad.torch._schema import DTYPES, schema, snake_case  # noqa: E402

EACH = pytest.mark.parametrize("name", NAMES)


def test_which_operators_are_left_out() -> None:
    """Those that are functions of rowgrad are operators of PyTorch; what only pages have is not, and PyTorch has it."""
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("rowgrad::")}
    functions = [name for name, operator in OPERATORS.items() if operator.function]
    of_layers = {"rowgrad::pool_bags", "rowgrad::update_bags"}  # in compiled programs
    assert registered - of_layers == {f"rowgrad::{snake_case(name)}" for name in functions}
    assert functions == NAMES


def test_schemas() -> None:
    assert snake_case("SparseSegmentSqrtNGradV2") == "sparse_segment_sqrt_n_grad_v2"
    assert schema(OPERATORS["SparseSegmentMeanGradV2"]) == (
        "sparse_segment_mean_grad_v2(Tensor grad, Tensor indices, Tensor segment_ids, SymInt dense_output_dim0) -> "
        "(Tensor output, Tensor sorted_unique_indices)"
    )
    assert schema(OPERATORS["SparseSliceGrad"]) == (
        "sparse_slice_grad(Tensor backprop_val_grad, Tensor input_indices, SymInt[] input_start, Tensor output_indices)"
        " -> (Tensor val_grad)"
    )
    assert schema(OPERATORS["SparseSegmentSum"]) == (
        "sparse_segment_sum(Tensor data, Tensor indices, Tensor segment_ids, *, bool sparse_gradient=False) -> "
        "(Tensor output)"
    )
    assert schema(OPERATORS["RowDot"]) == (
        "row_dot(Tensor a, Tensor b, Tensor a_rows, Tensor b_rows, *, ScalarType? out_type=None) -> (Tensor dots)"
    )


def test_names() -> None:
    assert rowgrad.torch.__all__ == sorted(rowgrad.torch.__all__)
    assert set(top_level()) <= set(rowgrad.torch.__all__)
    assert set(functions.__all__) == set(CALLS)
    assert all(hasattr(rowgrad.torch, name) for name in rowgrad.torch.__all__)
    described = rowgrad.torch.sparse_segment_mean.__doc__ or ""
    assert "torch.ops.rowgrad.sparse_segment_mean_with_num_segments" in described


@pytest.mark.parametrize("name", rowgrad._ops.functions.__all__)
def test_docstrings_have_the_parameters_that_there_are(name: str) -> None:
    function = torch_functions()[name]
    documented = (function.__doc__ or "").partition("Parameters\n")[2].partition("\nReturns\n")[0]
    assert re.findall(r"^(\w+) : ", documented, re.MULTILINE) == list(inspect.signature(function).parameters)


@EACH
def test_opcheck(name: str) -> None:
    """PyTorch's own test of an operator: schema, fake kernel, gradient, compiled with dynamic shapes."""
    values, attributes = example(name, floats=torch.float64)
    results = overload(name)(*values, **attributes)
    kinds = [x.is_floating_point() for x in (results if isinstance(results, tuple) else (results,))]
    if not kinds[0] and any(kinds):
        # opcheck adds a fraction to the sum of the first result, in place, which fails for whole numbers, whatever
        # the operator is; with a gradient these are compiled in test_torch_transforms.
        torch.library.opcheck(overload(name), values, attributes,
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))  # fmt: skip
        values, _ = example(name, floats=torch.float64, grad=False)
    torch.library.opcheck(overload(name), values, attributes)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_first_and_second_order(name: str) -> None:
    values, attributes = example(name, floats=torch.float64)
    leaves, replaced = wanted(values)
    assert leaves

    def fractions(*tensors: Any) -> tuple[Any, ...]:
        results = overload(name)(*replaced(*tensors), **attributes)
        return tuple(x for x in (results if isinstance(results, tuple) else (results,)) if x.is_floating_point())

    assert torch.autograd.gradcheck(fractions, leaves)
    assert torch.autograd.gradgradcheck(fractions, leaves)


@EACH
def test_the_example_equals_numpys(name: str) -> None:
    values, attributes = example(name, grad=False)
    results = overload(name)(*values, **attributes)
    expected = numpy_results(name, values, attributes)
    for found, array in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        assert_same(to_numpy(found), array, "nan")


def tensors(args: dict[str, Any]) -> dict[str, Any]:
    """What `strategies` draws, as tensors."""
    return {
        name: list(map(tensor, value)) if isinstance(value, list) else
        tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in args.items()
    }  # fmt: skip


def tensor(array: Any) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.copy().view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


CALLS = torch_functions()
DRAWN = [(op, dtype) for op, (_, dtypes) in strategies.OPERATORS.items() for dtype in dtypes if dtype.name in DTYPES]
TYPED = pytest.mark.parametrize(("op", "dtype"), DRAWN, ids=[f"{op}-{dtype.name}" for op, dtype in DRAWN])


@TYPED
@settings(max_examples=4)
@given(data=st.data())
def test_equal_to_numpy_to_the_bit(op: str, dtype: Any, data: Any) -> None:
    args = data.draw(strategies.calls(op, dtype))
    # Where a result's type can be chosen, rowgrad.torch has the declared default, and functions of arrays that of `a`.
    chosen = {"out_type": DTYPES[dtype.name]} if op == "row_dot" else {}
    results, expected = CALLS[op](**tensors(args), **chosen), getattr(functions, op)(**args)
    if not isinstance(expected, tuple):
        results, expected = (results,), (expected,)
    for found, array in zip(results, expected, strict=True):
        assert_same(to_numpy(found), array, "nan")


@TYPED
@settings(max_examples=4)
@given(data=st.data())
def test_the_portable_path_gives_the_same(op: str, dtype: Any, data: Any) -> None:
    """Up to rounding: sums are made in another order, of values that a sum of any order gets nearly right."""
    args = tensors(data.draw(strategies.calls(op, dtype)))
    for name, value in args.items():  # no infinities and corners: another order may overflow where this one does not
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
            # The sign of a subnormal complex number is inf + nan j in PyTorch.
            args[name] = torch.nan_to_num(value, 0.5, 1.0, -1.0).sgn().nan_to_num(0.5, 1.0, -1.0)
    expected = CALLS[op](**args)
    with rowgrad.torch.portable():
        results = CALLS[op](**args)
    for found, kernel in zip(*(x if isinstance(x, tuple) else (x,) for x in (results, expected)), strict=True):
        assert found.dtype == kernel.dtype
        torch.testing.assert_close(found, kernel, equal_nan=True)
