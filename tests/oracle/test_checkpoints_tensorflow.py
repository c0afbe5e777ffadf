"""Checkpoints that this TensorFlow writes are read without it, and the recorded ones are as it writes them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

from optional import framework
from rowgrad._runtime import files
from rowgrad.tensorflow import load_checkpoint

tf = framework("tensorflow")

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "checkpoints"


def same(found: Any, wanted: Any) -> bool:
    return found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


def compare(prefix: Path) -> int:
    """All variables of a checkpoint with what TensorFlow reads."""
    checkpoint, reader = load_checkpoint(prefix, verify=True), tf.train.load_checkpoint(str(prefix))
    keys = {variable.key: variable for variable in checkpoint.variables.values()}
    assert set(keys) == set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    for key, variable in keys.items():
        wanted = np.asarray(reader.get_tensor(key))
        assert variable.dtype == reader.get_variable_to_dtype_map()[key].name
        found = checkpoint[variable.name]
        assert found.tolist() == wanted.tolist() if variable.dtype == "string" else same(found, wanted), key
    return len(keys)


def test_recorded_checkpoints_are_written_alike(tmp_path: Path) -> None:
    """The same names; values too, where nothing was trained: matrix products differ between processors."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "record_checkpoints.py"), str(tmp_path)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    indexes = sorted(path.relative_to(RECORDED) for path in RECORDED.rglob("*.index"))
    assert indexes == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.index"))
    assert sum(compare((tmp_path / index).with_suffix("")) for index in indexes) > 100
    for kind in ("recommender.keras", "recommender.h5", *(index.with_suffix("") for index in indexes)):
        live, recorded = load_checkpoint(tmp_path / kind), load_checkpoint(RECORDED / kind)
        assert [each[:-3] for each in live.variables.values()] == [each[:-3] for each in recorded.variables.values()]
        if str(kind) in ("objects", "sharded"):
            assert all(live[name].tolist() == recorded[name].tolist() for name in live)
    step = files.read(tmp_path / "expected.npz", "keras_adam|next|item_table/embeddings")
    np.testing.assert_allclose(
        step, files.read(RECORDED / "expected.npz", "keras_adam|next|item_table/embeddings"), atol=1e-4
    )


def test_large_tables(tmp_path: Path) -> None:
    """Checksums of megabytes, several data files, many variables, and an index of several blocks."""
    rng = np.random.default_rng(0)
    root = tf.train.Checkpoint(
        table=tf.Variable(rng.random((50_000, 32), np.float32), name="table"),
        half=tf.Variable(tf.cast(rng.random((10_000, 33)), tf.bfloat16), name="half"),
        many=[tf.Variable(rng.random(3), name=f"small/{number}") for number in range(3000)],
        texts=tf.Variable([b"%d" % number * 3 for number in range(10_000)], name="texts"),
    )  # fmt: skip
    root.write(str(tmp_path / "large"))
    assert compare(tmp_path / "large") == 3003
    checkpoint = load_checkpoint(tmp_path / "large")
    assert "small/2999" in checkpoint
    assert same(checkpoint.rows("table", 49_990, 50_000), root.table.numpy()[-10:])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_partitioned_variables(axis: int, parts: int, tmp_path: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with v1.variable_scope("scope", partitioner=v1.fixed_size_partitioner(parts, axis)):
            table = v1.get_variable("table", [129, 70], dtype=tf.float64, use_resource=bool(parts % 2))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, str(tmp_path / "model"), write_meta_graph=False)
            wanted = session.run(tf.convert_to_tensor(table))
    checkpoint = load_checkpoint(tmp_path)
    assert same(checkpoint["scope/table"], wanted)
    for first, last in ((0, 1), (3, 100), (128, 129), (64, 64)):
        assert same(checkpoint.rows("scope/table", first, last), wanted[first:last])


def test_the_guides_model_continues_live(tmp_path: Path) -> None:
    """The recorder gives the recorded losses again, up to rounding."""
    script = ROOT / "examples" / "record_recommender.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    live = json.loads((tmp_path / "recommender.json").read_text())
    recorded = json.loads((ROOT / "examples" / "data" / "recommender.json").read_text())
    for part in ("before", "after"):
        np.testing.assert_allclose(live[part], recorded[part], rtol=1e-4)
    assert compare(tmp_path / "recommender") == 14
