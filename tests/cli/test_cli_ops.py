"""`rowgrad ops`: all of the catalogue reaches the screen."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from rowgrad._cli import app, examples
from rowgrad._cli.ops import example_command
from rowgrad._ops.docstrings import as_json
from rowgrad._ops.rule_text import texts
from rowgrad.blocks.operators import BLOCKS, FAMILIES, OPERATORS


def run(*args, columns=100):
    return CliRunner().invoke(app, list(args), env={"COLUMNS": str(columns)})


def squeezed(text):
    return " ".join(text.split())


def test_the_list_has_every_operator_once_by_family():
    result = run("ops")
    assert result.exit_code == 0
    first_words = [line.split()[0] for line in result.output.splitlines() if line.strip()]
    assert [word for word in first_words if word in OPERATORS].count("SparseSlice") == 1
    assert set(BLOCKS) <= set(first_words)
    for title in FAMILIES.values():
        assert title in result.output


def test_the_list_tells_ours_from_tensorflows():
    lines = {line.split()[0]: line for line in run("ops", columns=200).output.splitlines() if line.strip()}
    assert lines["SparseSliceGrad"].rstrip().endswith("TensorFlow")
    assert lines["SparseSliceGradGrad"].rstrip().endswith("rowgrad")
    assert {name for name, line in lines.items() if name in BLOCKS and line.rstrip().endswith("pages")} == (
        set(BLOCKS) - set(OPERATORS)
    )


@pytest.mark.parametrize("operator", BLOCKS.values(), ids=list(BLOCKS))
def test_the_reference_has_all_the_catalogue_says(operator):
    text = squeezed(run("ops", operator.name, columns=400).output)
    for pin in (*operator.inputs, *operator.outputs):
        shape = f"list of {pin.shape}" if pin.many else pin.shape
        assert squeezed(f"{pin.name} {pin.dtype} {shape} {pin.doc}") in text
    for types in operator.types.values():
        assert ", ".join(types) in text
    rules = [rule for stated in operator.gradient.values() for rule in texts(stated)]
    errors = [error.partition(": ")[2] for error in operator.errors]
    compact = [rule for stated in operator.compact_gradient.values() for rule in texts(stated)]
    for words in (operator.summary, operator.formula, operator.cost, operator.notes, *rules, *compact, *errors):
        assert squeezed(words) in text
    for attribute in operator.attributes:
        assert squeezed(f"{attribute.name} {attribute.doc} ({attribute.kind}, ") in text
    for name, value in operator.example.outputs.items():
        assert squeezed(f"→ {name} {json.dumps(as_json(value), ensure_ascii=False)}") in text
    assert (f"rowgrad.{operator.call_name}(" if operator.name in OPERATORS else "page.add(") in text


def test_a_function_with_two_operators_shows_both():
    output = run("ops", "sparse_segment_sum").output
    assert "SparseSegmentSum " in output
    assert "SparseSegmentSumWithNumSegments " in output


def test_unknown_name():
    result = run("ops", "SparsSlice")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == "error: there is no operator called 'SparsSlice'."
    assert "SparseSlice" in result.stderr.splitlines()[1]


def test_json_of_all():
    listed = json.loads(run("ops", "--json").stdout)["operators"]
    assert sorted(entry["name"] for entry in listed) == sorted(BLOCKS)
    assert {entry["name"] for entry in listed if entry["role"] == "operator"} == set(OPERATORS)


def test_json_of_one():
    (entry,) = json.loads(run("ops", "sparse_slice_grad", "--json").stdout)["operators"]
    operator = OPERATORS["SparseSliceGrad"]
    assert entry["function"] == "sparse_slice_grad"
    assert entry["in_tensorflow"] is True
    assert [pin["name"] for pin in entry["inputs"]] == [pin.name for pin in operator.inputs]
    assert entry["inputs"][0]["dtypes"] == list(operator.types["T"])
    assert entry["inputs"][1] == {"name": "input_indices", "dtype": "int64", "dtypes": ["int64"], "shape": "[N, rank]",
                                  "many": False, "doc": operator.inputs[1].doc}  # fmt: skip
    assert entry["example"]["outputs"] == {"val_grad": [0.0, 5.0, 7.0, 0.0]}
    assert entry["gradient"] == {"backprop_val_grad": texts(operator.gradient["backprop_val_grad"])}
    assert entry["attributes"] == []


def test_json_of_attributes_and_updates():
    (entry,) = json.loads(run("ops", "ApplyAdagrad", "--json").stdout)["operators"]
    locking, slots = OPERATORS["ApplyAdagrad"].attributes
    assert entry["function"] is None
    common = {"kind": "bool", "required": False}
    assert entry["attributes"] == [
        {"name": "use_locking", **common, "default": False, "doc": locking.doc},
        {"name": "update_slots", **common, "default": True, "doc": slots.doc},
    ]
    assert entry["updates"] == {"var": "out", "accum": "accum_out"}


@pytest.mark.parametrize(
    "operator", [operator for operator in OPERATORS.values() if not operator.name.startswith("Serialize")],
    ids=lambda operator: operator.name,
)  # fmt: skip
def test_the_example_command_can_be_copied(operator, tmp_path):
    target = tmp_path / "out.npz"
    result = run(*shlex.split(example_command(operator))[1:], "--out", str(target))
    assert result.exit_code == 0, result.output
    from rowgrad._runtime.files import read

    written = {pin.name: read(target, pin.name) for pin in operator.outputs}
    assert examples.differing(operator, written) == []
