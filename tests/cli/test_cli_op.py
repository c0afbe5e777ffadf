"""`rowgrad op`: operators on real files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rowgrad
from optional import framework
from rowgrad._cli import app
from rowgrad._cli.op import COMMON
from rowgrad._runtime import threads
from rowgrad.blocks.operators import OPERATORS

IDS = ["--indices", "[0, 1, 2]", "--segment-ids", "[2, 2, 2]"]
GRAD = ["--grad", "[[1, 2, 3], [4, 4, 2], [3, 1, 5]]"]


def run(*args, columns=100):
    return CliRunner().invoke(app, ["op", *map(str, args)], env={"COLUMNS": str(columns)}, prog_name="rowgrad")


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_help_lists_every_pin_with_its_words(operator):
    output = run(operator.name, "--help", columns=500).output
    for pin in operator.inputs:
        assert f"--{pin.name.replace('_', '-')} " in output
        assert pin.doc in output
        assert f"{pin.shape} of {', '.join(operator.dtypes_of(pin))}" in output
    for attribute in operator.attributes:
        assert (f"--{attribute.name.replace('_', '-')} " in output) == attribute.passed


def test_no_pin_and_no_attribute_is_called_like_a_common_option():
    common = {parameter.name for parameter in COMMON} | {"help"}
    for operator in OPERATORS.values():
        assert not common & {part.name for part in (*operator.inputs, *operator.attributes)}


def test_files_in_and_out_through_the_shell(tmp_path):
    generator = np.random.default_rng(0)
    grad = generator.normal(size=(50, 8)).astype(np.float32)
    ids = generator.integers(0, 1000, 300)
    segments = generator.integers(0, 50, 300).astype(np.int32)
    np.save(tmp_path / "g.npy", grad)
    np.savez(tmp_path / "ids.npz", ids=ids, segments=segments)
    options = "--grad g.npy --indices ids.npz:ids --segment_ids=ids.npz:segments --dense-output-dim0 1000 --threads 2"
    done = subprocess.run(
        [sys.executable, "-m", "rowgrad", "op", "SparseSegmentMeanGradV2", *options.split(), "--out", "out.npz"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "wrote output" in done.stderr
    assert done.stdout == ""
    expected = rowgrad.sparse_segment_mean_grad_v2(grad, ids, segments, 1000)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["output", "sorted_unique_indices"]
        assert np.array_equal(archive["output"], expected.output)
        assert np.array_equal(archive["sorted_unique_indices"], expected.sorted_unique_indices)


def test_results_are_printed():
    result = run("sparse_segment_mean_grad", *GRAD, *IDS, "--output_dim0=3")
    assert result.exit_code == 0, result.output
    assert "output  float32 [3, 3]" in result.stdout
    assert result.stdout.count("0.333333") == 3


def test_one_result_as_npy(tmp_path):
    result = run("SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", 3, "-o", tmp_path / "x.npy")
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "x.npy").round(6).tolist()[0] == pytest.approx([1, 0.333333, 1.666667], abs=1e-6)


def test_an_optional_pin_chooses_the_operator():
    args = ["--data", "[[1.0], [2.0]]", "--indices", "[0, 1]", "--segment-ids", "[0, 0]"]
    assert "output  float32 [1, 1]" in run("sparse_segment_mean", *args).stdout
    assert "output  float32 [4, 1]" in run("sparse_segment_mean", *args, "--num-segments", 4).stdout
    assert run("SparseSegmentMean", *args, "--num-segments", 4).exit_code == 2


def test_parquet_column(tmp_path):
    pyarrow = framework("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"m": [0, 1, 3, 4], "g": [1.0, 2.0, 3.0, 4.0]}), tmp_path / "x.parquet")
    result = run("SparseFillEmptyRowsGrad", "--reverse-index-map", f"{tmp_path}/x.parquet:m", "--grad-values",
                 "float64:[1, 2, 3, 4, 5]", "-o", tmp_path / "d.npz")  # fmt: skip
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "d.npz") as archive:
        assert archive["d_values"].tolist() == [1, 2, 4, 5]
        assert archive["d_default_value"] == 3


@pytest.mark.parametrize("dtype", ["bfloat16", "qint8", "float16", "complex64"])
def test_types_that_numpy_files_know_little_of(tmp_path, dtype):
    args = [
        "--input-indices",
        "[[0, 0], [0, 3], [0, 4], [3, 0]]",
        "--input-start",
        "[0, 3]",
        "--output-indices",
        "[[0, 0], [0, 1]]",
    ]
    for target in ("first.npz", "second.npz"):
        value = f"{dtype}:[5, 7]" if target == "first.npz" else f"{tmp_path}/picked.npz"
        result = run("SparseSliceGrad", "--backprop-val-grad", value, *args, "-o", tmp_path / target)
        assert result.exit_code == 0, result.output
        picked = np.load(tmp_path / target)["val_grad"][1:3]
        extra = {"val_grad.dtype": np.array("bfloat16")} if dtype == "bfloat16" else {}
        np.savez(tmp_path / "picked.npz", val_grad=picked, **extra)
    first, second = (np.load(tmp_path / name)["val_grad"] for name in ("first.npz", "second.npz"))
    assert first.dtype == second.dtype
    assert first.tobytes() == second.tobytes()
    assert first.any() if not first.dtype.names else first["qint8"].tolist() == [0, 5, 7, 0]


def test_an_existing_file_is_safe_and_nothing_is_computed(tmp_path, monkeypatch):
    target = tmp_path / "x.npz"
    target.write_bytes(b"precious")
    args = ["SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", 3, "--out", target]
    monkeypatch.setattr("rowgrad._cli.op.apply_to_arrays", lambda *_: pytest.fail("computed"))
    result = run(*args)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [f"error: --out {target} already exists.", "hint: --force overwrites it."]
    assert target.read_bytes() == b"precious"
    monkeypatch.undo()
    assert run(*args, "--force").exit_code == 0
    assert np.load(target)["output"].shape == (3, 3)


def test_missing_pins_are_named_together():
    result = run("SparseSliceGrad", "--input-start", "[0, 3]")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: SparseSliceGrad needs 3 more inputs:")
    for name in ("backprop_val_grad", "input_indices", "output_indices"):
        pin = next(pin for pin in OPERATORS["SparseSliceGrad"].inputs if pin.name == name)
        assert f"--{name.replace('_', '-')}  {pin.shape}  {pin.doc}" in result.stderr
    assert "--input-start" not in result.stderr


def test_bad_data_names_operator_argument_and_position():
    result = run(
        "SparseSegmentMeanGrad", *GRAD, "--indices", "[0, 1, 9]", "--segment-ids", "[2, 2, 2]", "--output-dim0", 3
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("error: SparseSegmentMeanGrad: indices[2] is 9;")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_bad_value_names_its_option():
    result = run("SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", "three")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --output-dim0: 'three' is not a file")


@pytest.mark.parametrize("count", ["0", "257", "x"])
def test_bad_thread_counts(count):
    result = run("SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", 3, "--threads", count)
    assert result.exit_code == 2
    assert "--threads" in result.stderr


def test_threads_are_set():
    assert run("SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", 3, "--threads", 3).exit_code == 0
    assert threads.get_num_threads() == 3


def test_no_name_and_a_wrong_name():
    assert "name an operator" in run().stderr
    wrong = run("SparseSliceGrd", "--x", "1")
    assert wrong.exit_code == 2
    assert "did you mean SparseSliceGrad" in wrong.stderr


def test_a_negative_number_is_a_value():
    result = run("SparseSegmentMeanGrad", *GRAD, *IDS, "--output-dim0", "-1")
    assert result.exit_code == 1
    assert "output_dim0 is -1" in result.stderr


ADAGRAD = ["ApplyAdagrad", "--var", "[1.0, 2.0]", "--accum", "[4.0, 1.0]", "--lr", "0.5", "--grad", "[2.0, 4.0]"]


@pytest.mark.parametrize(
    ("options", "accum"),
    [([], [8, 17]), (["--update-slots"], [8, 17]), (["--no-update-slots"], [4, 1]), (["--no-update_slots"], [4, 1])],
)
def test_attributes_are_options(tmp_path, options, accum):
    result = run(*ADAGRAD, *options, "-o", tmp_path / "x.npz")
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "x.npz")["accum_out"].tolist() == accum


def test_a_product_with_a_transposed_matrix(tmp_path):
    args = ["MatMul", "--a", "[[1.0, 2.0]]", "--b", "[[3.0, 4.0], [5.0, 6.0]]"]
    assert run(*args, "-o", tmp_path / "x.npy").exit_code == 0
    assert np.load(tmp_path / "x.npy").tolist() == [[13.0, 16.0]]
    assert run(*args, "--transpose-b", "-o", tmp_path / "x.npy", "--force").exit_code == 0
    assert np.load(tmp_path / "x.npy").tolist() == [[11.0, 17.0]]


def test_the_type_of_a_result(tmp_path):
    assert run("Cast", "--x", "[1.5, 2.5]", "--DstT", "int64", "-o", tmp_path / "x.npy").exit_code == 0
    assert np.load(tmp_path / "x.npy").dtype == np.int64
    wrong = run("Cast", "--x", "[1.5, 2.5]", "--DstT", "int65")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: Cast: DstT is int65; allowed: ")


def test_an_attribute_that_is_missing_is_named():
    result = run("Cast", "--x", "[1.5, 2.5]")
    assert result.exit_code == 2
    assert "needs 1 more input" in result.stderr
    assert "--DstT  dtype  " in result.stderr


@pytest.mark.parametrize(
    "values",
    [
        ["[1.0, 2.0]", "x.npy", "[5.0, 6.0]"],
        ['["x.npy", [1.0, 2.0], "float32:[5, 6]"]'],
        ["[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]"],
    ],
)
def test_several_arrays_for_one_pin(tmp_path, monkeypatch, values):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array([3.0, 4.0], np.float32))
    options = [word for value in values for word in ("--inputs", value)]
    result = run("AddN", *options, "-o", "sum.npy")
    assert result.exit_code == 0, result.output
    assert np.load("sum.npy").tolist() == [9.0, 12.0]


def test_one_array_where_several_are_taken(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    result = run("AddN", "--inputs", tmp_path / "x.npy")
    assert "sum  float32 [2]" in result.stdout
    wrong = run("AddN", "--inputs", '["nowhere.npy"]')
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: --inputs: nowhere.npy: there is no such file")


def test_a_block_of_pages_is_no_command():
    result = run("Const", "--value", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: Const is a block of pages, not a function.")
