"""Checkpoints that TensorFlow 2.21 wrote are read without it: names, values, slots, rows, and the next step."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import RowGradient
from rowgrad._runtime import checksums, files
from rowgrad.errors import FileError, InvalidArgumentError
from rowgrad.tensorflow import load_checkpoint
from rowgrad.tensorflow._names import slot_of
from rowgrad.tensorflow._protobuf import Damage, Message, varint
from rowgrad.tensorflow._sstable import slice_key

FOLDER = Path(__file__).parents[1] / "data" / "checkpoints"
KINDS = ("keras_adagrad", "keras_adam", "keras_ftrl", "objects", "partitioned", "saved/variables/variables", "sharded")
TABLES = ("item_table/embeddings", "user_table/embeddings")


def expected(checkpoint: str, key: str) -> Any:
    return files.read(FOLDER / "expected.npz", f"{checkpoint}|{key}")


def assert_same(found: Any, wanted: Any) -> None:
    if wanted.dtype.kind == "S":
        wanted = wanted.astype(object)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_tensorflows(kind: str) -> None:
    checkpoint = load_checkpoint(FOLDER / kind, verify=True)
    assert len(checkpoint) > 1
    for name, variable in checkpoint.variables.items():
        wanted = expected(kind, variable.key)
        found = checkpoint[name]
        assert found.shape == variable.shape
        assert not found.flags.writeable
        assert_same(found, wanted)
        if found.ndim:
            for first, last in ((0, len(found)), (0, len(found) // 2), (len(found) // 2, len(found)), (1, 1)):
                if last <= len(found):
                    assert_same(checkpoint.rows(name, first, last), wanted[first:last])


def test_tensorflow_is_not_loaded() -> None:
    code = (
        "import sys, rowgrad.tensorflow as t; c = t.load_checkpoint(sys.argv[1], verify=True); assert len(c) == 14; "
        "print(sorted({'tensorflow', 'google', 'tensorboard', 'numba', 'torch', 'h5py'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FOLDER / "keras_adagrad")],
        env={**os.environ, "PYTHONPATH": str(Path(rowgrad.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_names_of_keras() -> None:
    variables = ["hidden/bias", "hidden/kernel", *TABLES, "score/bias", "score/kernel"]
    slots = {"adagrad": ["accumulator"], "adam": ["momentum", "velocity"], "ftrl": ["accumulator", "linear"]}
    for optimizer, names in slots.items():
        checkpoint = load_checkpoint(FOLDER / f"keras_{optimizer}")
        state = [f"{variable}@optimizer/{slot}" for variable in variables for slot in names]
        own = [f"{optimizer}/iteration", f"{optimizer}/learning_rate"]
        assert sorted(checkpoint) == sorted(variables + state + own)
        assert checkpoint.slots(TABLES[0]) == {slot: f"{TABLES[0]}@optimizer/{slot}" for slot in names}
        assert checkpoint.variables[f"{TABLES[0]}@optimizer/{names[0]}"].variable == TABLES[0]


def test_names_of_objects() -> None:
    checkpoint = load_checkpoint(FOLDER / "objects")
    assert {"first", "second", "scope/only", "texts", "empty", "of_bfloat16", "of_bool"} <= set(checkpoint)
    assert checkpoint.slots("first") == {"m": "first@adam/m", "v": "first@adam/v"}
    assert checkpoint.slots("second") == {"accumulator": "second@adagrad/accumulator"}
    assert checkpoint["texts"].tolist() == ["α".encode(), b"", b"long " * 40]
    assert checkpoint["of_bfloat16"].dtype.name == "bfloat16"
    assert checkpoint["empty"].shape == (0, 3)


def test_names_of_tensorflow_1() -> None:
    checkpoint = load_checkpoint(FOLDER / "partitioned")
    assert list(checkpoint) == [
        "global_step", "table", "table/Ftrl", "table/Ftrl_1", "weights", "weights/Ftrl", "weights/Ftrl_1",
    ]  # fmt: skip
    assert checkpoint.slots("table") == {"accumulator": "table/Ftrl", "linear": "table/Ftrl_1"}


@pytest.mark.parametrize("kind", ["recommender.keras", "recommender.h5", "recommender.weights.h5"])
def test_files_of_keras(kind: str) -> None:
    framework("h5py")
    checkpoint, same = load_checkpoint(FOLDER / kind, verify=True), load_checkpoint(FOLDER / "keras_adagrad")
    if kind.endswith(".weights.h5"):  # it has no names of variables, and does not tell whose state is whose
        pairs = {
            "item_table/0": TABLES[0],
            "hidden/1": "hidden/bias",
            "adagrad/2": f"{TABLES[0]}@optimizer/accumulator",
        }
    else:
        pairs = {name: name for name in same}
        assert set(checkpoint) == set(same)
        assert checkpoint.settings["class_name"] == "Adagrad"
        assert checkpoint.slots(TABLES[1]) == same.slots(TABLES[1])
    for name, other in pairs.items():
        assert_same(checkpoint[name], same[other])
        assert not checkpoint[name].flags.writeable
    table = "item_table/0" if kind.endswith(".weights.h5") else TABLES[0]
    assert_same(checkpoint.rows(table, 3, 5), same.rows(TABLES[0], 3, 5))


def test_files_of_keras_2(tmp_path: Path) -> None:
    """Made by hand as Keras 2 wrote them: names end in :0, state has paths, and names are in several attributes."""
    h5py = framework("h5py")
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    with h5py.File(tmp_path / "old.h5", "w") as file:
        layer = file.create_group("model_weights/user")
        layer.attrs["weight_names0"], layer.attrs["weight_names1"] = [b"user/embeddings:0"], [b"user/bias:0"]
        layer["user/embeddings:0"], layer["user/bias:0"] = rows, rows[0]
        state = file.create_group("optimizer_weights")
        names = ["Adam/iter:0", "Adam/user/embeddings/m:0", "Adam/user/embeddings/v:0"]
        state.attrs["weight_names"] = [name.encode() for name in names]
        for name, value in zip(names, (np.int64(4), rows + 1, rows + 2), strict=True):
            state[name] = value
    checkpoint = load_checkpoint(tmp_path / "old.h5")
    assert set(checkpoint) == {
        "Adam/iter", "user/bias", "user/embeddings", "user/embeddings@optimizer/m", "user/embeddings@optimizer/v",
    }  # fmt: skip
    assert_same(checkpoint["user/embeddings@optimizer/v"], rows + 2)
    assert checkpoint.slots("user/embeddings").keys() == {"m", "v"}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("adagrad/user_embeddings_accumulator", ("user/embeddings", "accumulator")),
        ("adam/user_embeddings_2_momentum", ("user/embeddings_2", "momentum")),
        ("Adam/m/user/embeddings", ("user/embeddings", "m")),
        ("Adam/user/embeddings/v", ("user/embeddings", "v")),
        ("adam/iteration", None),
        ("adam/user_embeddings_", None),
    ],
)
def test_names_of_slots(name: str, found: tuple[str, str] | None) -> None:
    assert slot_of(name, ["user/embeddings", "user/embeddings_2", ""]) == found


def test_damaged_files_of_keras(tmp_path: Path) -> None:
    framework("h5py")
    for kind in ("recommender.keras", "recommender.h5"):
        data = (FOLDER / kind).read_bytes()
        for size in (0, 10, len(data) // 2, len(data) - 30):
            path = tmp_path / kind
            path.write_bytes(data[:size])
            with pytest.raises(FileError, match=kind):
                load_checkpoint(path, verify=True)
    changed = bytearray((FOLDER / "recommender.keras").read_bytes())
    values = load_checkpoint(FOLDER / "recommender.keras")[TABLES[0]].tobytes()
    changed[changed.index(values) + 5] ^= 1
    (tmp_path / "recommender.keras").write_bytes(changed)
    with pytest.raises(FileError, match=r"recommender.keras is not a valid Keras file"):
        load_checkpoint(tmp_path / "recommender.keras")


@pytest.mark.parametrize("kind", ["keras_adagrad", "keras_adam", "keras_ftrl"])
@pytest.mark.parametrize("name", TABLES)
def test_the_next_step_is_keras(kind: str, name: str) -> None:
    checkpoint = load_checkpoint(FOLDER / kind)
    optimizer, state = checkpoint.optimizer(name)
    if kind == "keras_adam":  # Keras adds epsilon before v is corrected, rowgrad and PyTorch after
        optimizer.eps /= (1 - 0.999 ** (state["step"].item() + 1)) ** 0.5
    table = np.array(checkpoint[name])
    gradient, wanted = expected(kind, f"gradient|{name}"), expected(kind, f"next|{name}")
    optimizer.step(table, RowGradient(gradient, np.arange(len(gradient))), state)
    np.testing.assert_allclose(table, wanted, rtol=2e-6, atol=1e-6 if kind == "keras_adam" else 1e-7)
    assert np.any(wanted != checkpoint[name])  # a step was made


def test_optimizers_of_tensorflow() -> None:
    objects = load_checkpoint(FOLDER / "objects")
    adam, state = objects.optimizer("first", lr=0.1)
    assert type(adam) is rowgrad.optim.Adam and state["step"] == 3
    assert_same(state["m"], objects["first@adam/m"])
    adagrad, state = objects.optimizer("second", lr=0.25)
    assert (adagrad.lr, adagrad.eps) == (0.25, 0)
    assert_same(state["sum"], objects["second@adagrad/accumulator"])
    ftrl, state = load_checkpoint(FOLDER / "partitioned").optimizer("table", lr=0.5, l1=0.125)
    assert type(ftrl) is rowgrad.optim.FTRL and ftrl.l1 == 0.125
    assert state["sum"].shape == state["linear"].shape == (10, 4) and state["sum"].flags.writeable
    for name, settings, text in (
        ("second", {}, "learning rate"),
        ("empty", {"lr": 1.0}, "no state"),
        ("second", {"lr": 1.0, "momentum": 2}, "momentum"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            objects.optimizer(name, **settings)


def test_settings_of_keras_files() -> None:
    framework("h5py")
    found, state = load_checkpoint(FOLDER / "recommender.keras").optimizer(TABLES[0])
    same, same_state = load_checkpoint(FOLDER / "keras_adagrad").optimizer(TABLES[0])
    assert found == same
    assert_same(state["sum"], same_state["sum"])


def test_arrays_can_be_used_as_they_are() -> None:
    """Unaligned and read-only ones too."""
    checkpoint = load_checkpoint(FOLDER / "objects")
    unaligned = [name for name in checkpoint if not checkpoint[name].flags.aligned and checkpoint[name].ndim == 2]
    assert unaligned
    for name in unaligned:
        array = checkpoint[name]
        np.testing.assert_array_equal(rowgrad.sparse_segment_sum(array, [0], [0]), np.array(array)[:1])


def test_paths(tmp_path: Path) -> None:
    for file in FOLDER.glob("partitioned.*"):
        shutil.copy(file, tmp_path)
    for path in (
        tmp_path / "partitioned",
        tmp_path,
        str(tmp_path / "partitioned.index"),
        f"{tmp_path}/partitioned.data-00000-of-00001",
    ):
        assert load_checkpoint(path)["table"].shape == (10, 4)
    assert load_checkpoint(FOLDER / "saved").path.name == "variables"
    for file in FOLDER.glob("sharded.*"):
        shutil.copy(file, tmp_path)
    with pytest.raises(FileError, match="has 2 checkpoints"):
        load_checkpoint(tmp_path)
    for text in ("partitioned", "/somewhere/else/partitioned", "part\\151tioned"):
        (tmp_path / "checkpoint").write_text(
            f'model_checkpoint_path: "{text}"\nall_model_checkpoint_paths: "sharded"\n'
        )
        assert load_checkpoint(tmp_path).path == tmp_path / "partitioned"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "gone"\n')
    with pytest.raises(FileError, match="gone, which does not exist"):
        load_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text("nothing")
    with pytest.raises(FileError, match="does not name"):
        load_checkpoint(tmp_path)
    for path, text in (
        (tmp_path / "none", "is not a checkpoint"),
        (Path(__file__), "is not a checkpoint"),
        (tmp_path / "x.keras", "no such"),
    ):
        with pytest.raises(FileError, match=text):
            load_checkpoint(path)


def test_missing_variables_and_rows() -> None:
    checkpoint = load_checkpoint(FOLDER / "sharded")
    with pytest.raises(KeyError):
        checkpoint["nothing"]
    assert "nothing" not in checkpoint and "grid" in checkpoint
    for first, last in ((-1, 2), (2, 1), (0, 5)):
        with pytest.raises(InvalidArgumentError, match="grid"):
            checkpoint.rows("grid", first, last)
    assert repr(checkpoint).endswith("sharded', 2 variables, 88 bytes)")


def test_crc32c() -> None:
    assert checksums.crc32c(b"123456789") == 0xE3069283
    assert checksums.crc32c(b"6789", checksums.crc32c(b"12345")) == 0xE3069283
    data = np.random.default_rng(1).bytes(3 * checksums.FEW + 5)
    whole, slowly = checksums.crc32c(data), 0
    for first in range(0, len(data), 1000):
        slowly = checksums.crc32c(data[first : first + 1000], slowly)
    assert whole == slowly
    assert checksums.crc32c(data[3:]) == checksums.crc32c(memoryview(data)[3:])  # unaligned


def test_messages() -> None:
    assert varint(b"\xac\x02", 0) == (300, 2)
    assert Message(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").number(1) == -1
    for data in (b"\x08", b"\x80" * 11, b"\x0a\x05ab", b"\x0b", b"\x09abc"):
        with pytest.raises(Damage):
            Message(data)
    with pytest.raises(Damage):
        Message(b"\x08\x01").text(1)
    with pytest.raises(Damage):
        Message(b"\x0a\x01\xff").text(1)


def test_keys_of_slices() -> None:
    """As TensorFlow's OrderedCode writes them."""
    assert slice_key("ab", ((0, None), (64, 3))) == b"\0ab\0\1\x01\x02\x80\x7f\xc0\x40\x83"
    assert slice_key("a\0", ((1 << 40, 8192),)) == b"\0a\0\xff\0\1\x01\x01" + b"\xfd\0\0\0\0\0" + b"\xe0\x20\0"
