"""Every declaration is complete, consistent, and true of what the operator does."""

import doctest
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad import _ops, blocks, raw_ops
from rowgrad._ops import Operator, functions
from rowgrad._ops.attributes import WHAT, check_attributes
from rowgrad._ops.callables import function_attributes, top_level
from rowgrad._ops.catalogue import REQUIRED
from rowgrad._ops.docstrings import page_call
from rowgrad._ops.docstrings import stated as as_stated
from rowgrad._ops.gradients import apply_to_arrays
from rowgrad._ops.shapes import infer
from rowgrad._ops.tensors_map import MAPS
from rowgrad._runtime.dtypes import NUMPY
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS

# Their parts are blocks: SparseSplitPart, RaggedGatherValues, RaggedGatherSplits.
LISTS = {"SparseSplit", "RaggedGather"}
ALL = pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))


@ALL
def test_declared_in_full(operator: Operator) -> None:
    assert operator.family in FAMILIES
    assert operator.summary.endswith(".")
    assert operator.formula
    assert operator.cost
    assert any(error.startswith("DTypeError") for error in operator.errors)
    for error in operator.errors:
        assert issubclass(getattr(rowgrad, error.partition(":")[0]), rowgrad.RowgradError)
    for pin in (*operator.inputs, *operator.outputs):
        assert pin.doc.endswith(".")
    assert (operator.result is not None) == (len(operator.outputs) > 1)
    if operator.result:
        assert operator.result._fields == tuple(pin.name for pin in operator.outputs)  # type: ignore[attr-defined]


def run_example(operator: Operator) -> dict[str, Any]:
    return apply_to_arrays(operator, list(operator.example.inputs.values()), operator.example.attributes)


@ALL
def test_the_example_is_true(operator: Operator) -> None:
    assert list(operator.example.inputs) == [pin.name for pin in operator.inputs]
    assert set(operator.example.attributes) <= {attribute.name for attribute in operator.attributes}
    results = run_example(operator)
    assert list(results) == list(operator.example.outputs)
    for name, stated in operator.example.outputs.items():
        expected, result = as_stated(stated), results[name]
        assert result.dtype.kind == expected.dtype.kind
        assert result.shape == expected.shape
        if result.dtype.kind == "f":
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(result, expected)


@ALL
def test_dtypes_and_shapes_are_as_declared(operator: Operator) -> None:
    inputs = dict(zip(operator.example.inputs, operator._fit(tuple(operator.example.inputs.values())), strict=True))
    attributes = check_attributes(operator, operator.example.attributes)
    results = apply_to_arrays(operator, list(inputs.values()), attributes)
    many = {pin.name for pin in operator.inputs if pin.many}
    shapes = {name: list(map(np.shape, value)) if name in many else np.shape(value) for name, value in inputs.items()}
    dtypes = {pin.dtype: np.asarray(inputs[pin.name][0] if pin.many else inputs[pin.name]).dtype
              for pin in operator.inputs}  # fmt: skip
    # An attribute may name the type of an output, as Cast's does.
    dtypes |= {a.name: NUMPY.get(attributes[a.name], np.dtype(object)) if attributes[a.name] else dtypes["T"]
               for a in operator.attributes if a.kind == "dtype"}  # fmt: skip
    for values in (inputs, {}):  # what is inferred must hold, whether the values are known or not
        inferred = infer(operator, shapes, values, attributes)
        for pin in operator.outputs:
            shape = inferred[pin.name]
            if shape is None:
                continue
            assert len(shape) == results[pin.name].ndim
            for size, actual in zip(shape, results[pin.name].shape, strict=True):
                assert size is None or isinstance(size, str) or size == actual
    for pin in operator.outputs:
        result = results[pin.name]
        if result.dtype.kind not in "USO":
            assert result.dtype == (dtypes[pin.dtype] if pin.dtype in operator.types else NUMPY[pin.dtype])


@ALL
def test_shapes_of_which_nothing_is_known(operator: Operator) -> None:
    """Nothing is refused, and every output is answered for, when no shape is known yet."""
    attributes = check_attributes(operator, operator.example.attributes)
    shapes = {pin.name: [None] * len(operator.example.inputs[pin.name]) for pin in operator.inputs if pin.many}
    assert set(infer(operator, shapes, {}, attributes)) == {pin.name for pin in operator.outputs}


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        ("SparseSegmentMeanGrad", {"grad": (3, 5, 2), "indices": (7,)}, {"output_dim0": 9}, {"output": (9, 5, 2)}),
        ("SparseSegmentMeanGrad", {"grad": (3, 5, 2)}, {}, {"output": (None, 5, 2)}),
        ("SparseSegmentSum", {"data": (3, 5)}, {"segment_ids": [0, 4]}, {"output": (5, 5)}),
        ("SparseSegmentSum", {"data": (3, 5)}, {"segment_ids": []}, {"output": (0, 5)}),
    ],
)
def test_shapes_are_inferred(name: str, shapes: dict, values: dict, expected: dict) -> None:  # type: ignore[type-arg]
    assert infer(OPERATORS[name], shapes, values) == expected


def test_wrong_shapes_are_refused_before_anything_runs() -> None:
    operator = OPERATORS["SparseSegmentMeanGrad"]
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(operator, {"grad": (3, 2), "indices": (4,), "segment_ids": (5,)}, {})
    assert (info.value.argument, info.value.code) == ("segment_ids", "length-mismatch")
    with pytest.raises(rowgrad.InvalidArgumentError) as info:
        infer(operator, {"indices": (4, 1)}, {})
    assert (info.value.argument, info.value.code) == ("indices", "wrong-rank")


@ALL
def test_functions_and_raw_ops_are_the_operator(operator: Operator) -> None:
    names = [pin.name for pin in operator.inputs]
    raw = getattr(blocks.raw_ops, operator.raw_name)
    attributes = [attribute.name for attribute in operator.attributes]
    assert list(inspect.signature(raw).parameters) == [*names, *attributes, "name"]
    inputs, settings = operator.example.inputs, operator.example.attributes
    expected = run_example(operator)
    results = [raw(**inputs, **settings, name="x"), raw(*inputs.values(), **settings)]
    if operator.function is not None:
        function = getattr(functions, operator.function)
        assert list(inspect.signature(function).parameters)[: len(names)] == names
        first, *others = names
        results += [
            function(*inputs.values(), **settings),
            function(**inputs, **settings),
            function(inputs[first], **settings, **{name: inputs[name] for name in reversed(others)}),
        ]
    for result in results:
        for value, stated in zip(result if operator.result else (result,), expected.values(), strict=True):
            np.testing.assert_array_equal(value, stated)


@ALL
def test_attributes_are_declared_in_full(operator: Operator) -> None:
    for attribute in operator.attributes:
        assert attribute.kind in WHAT
        assert attribute.doc.endswith(".")
        if attribute.default is not REQUIRED and attribute.default is not None:
            assert check_attributes(operator, {**operator.example.attributes, attribute.name: attribute.default})
    assert not {a.name for a in operator.attributes} & {pin.name for pin in operator.inputs}
    assert operator.function is None or set(operator.example.attributes) <= set(function_attributes(operator))


@ALL
def test_raw_docstrings_are_true(operator: Operator) -> None:
    raw = getattr(blocks.raw_ops, operator.raw_name)
    for attribute in operator.attributes:
        assert f"\n{attribute.name} : {attribute.kind}, " in raw.__doc__
    (test,) = doctest.DocTestFinder(recurse=False).find(raw, operator.name, globs={})
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_what_is_no_function_is_not_called() -> None:
    assert set(OPERATORS) <= set(BLOCKS)
    for block in BLOCKS.values():
        assert (block.role == "operator") == (block.name in OPERATORS)
        assert (block.role == "operator") or block.function is None


@pytest.mark.parametrize(
    "block", [block for name, block in BLOCKS.items() if name not in OPERATORS], ids=lambda b: b.name
)
def test_blocks_of_pages_are_used_as_their_reference_says(block: Operator, tmp_path: Path) -> None:
    from rowgrad.blocks import Page

    if block.role == "file":
        np.save(tmp_path / block.example.attributes["path"], next(iter(block.example.outputs.values())))
    page = Page(folder=tmp_path)
    eval(page_call(block), {"page": page})
    assert page[block.name].op == block.name


def test_all_functions_are_public() -> None:
    assert set(top_level()) <= set(rowgrad.__all__)
    assert sorted(rowgrad.__all__) == rowgrad.__all__
    assert all(hasattr(rowgrad, name) for name in rowgrad.__all__)
    assert set(raw_ops.__all__) == {*_ops.OPERATORS, *MAPS, *LISTS}
    named = {operator.raw_name for operator in OPERATORS.values()}
    assert set(blocks.raw_ops.__all__) == {*named, *MAPS, *LISTS, "Concat", "ConcatOffset"}


@ALL
def test_names_lead_to_the_operator(operator: Operator) -> None:
    """Each is where it says that it is, and the sparse ones are the same in both modules."""
    module = raw_ops if operator.name in _ops.OPERATORS else blocks.raw_ops
    assert getattr(module, operator.raw_name) is getattr(blocks.raw_ops, operator.raw_name)
    assert operator.function or eval(f"rowgrad.{operator.call_name}") is getattr(module, operator.raw_name)
    assert (operator.name in _ops.OPERATORS) == (operator.family in _ops.FAMILIES)


def test_the_sparse_catalogue_does_without_pages() -> None:
    """Neither the operators nor the front ends that are made of them load what pages are made of."""
    for module in ("rowgrad", "rowgrad.torch", "rowgrad.jax"):
        if module == "rowgrad" or find_spec(module.rpartition(".")[2]):
            script = f"import sys, {module}; sys.exit(any(name.startswith('rowgrad.blocks') for name in sys.modules))"
            subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_num_segments_none_is_left_out() -> None:
    assert rowgrad.sparse_segment_sum([[1.0]], [0], [2], None).shape == (3, 1)
    assert rowgrad.sparse_segment_sum([[1.0]], [0], [2], num_segments=4).shape == (4, 1)
