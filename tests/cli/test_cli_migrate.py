"""`rowgrad migrate`: lists variables, writes tables, safetensors and files of PyTorch, whole or not at all."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rowgrad
from optional import framework
from rowgrad._cli import app
from rowgrad._runtime import dtypes
from rowgrad.optim import FTRL, Adagrad, Adam
from rowgrad.tensorflow import load_checkpoint

FOLDER = Path(__file__).parents[1] / "data" / "checkpoints"
TABLES = ("item_table/embeddings", "user_table/embeddings")


def run(*arguments: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["migrate", *map(str, arguments)], env={"COLUMNS": "120"})
    assert done.exit_code == code, done.output
    return done


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The format in plain words: the length of a header, the header, the arrays."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    kinds = {"F32": "float32", "I64": "int64", "BF16": "bfloat16", "F16": "float16", "F64": "float64", "BOOL": "bool"}
    found = {}
    for name, part in header.items():
        first, last = part["data_offsets"]
        kind = kinds.get(
            part["dtype"], part["dtype"].replace("I", "int").replace("U", "uint").replace("C64", "complex64")
        )
        found[name] = np.frombuffer(data[8 + size :][first:last], dtypes.NUMPY[kind]).reshape(part["shape"])
    assert 8 + size + max(part["data_offsets"][1] for part in header.values()) == len(data)
    return found, metadata


def test_listing() -> None:
    shown = run(FOLDER / "keras_adagrad", "--verify").stdout
    assert "item_table/embeddings@optimizer/accumulator" in shown and "20 × 4" in shown
    assert "table/Ftrl_1" in run(FOLDER / "partitioned").stdout


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    h5py = framework("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        layer = file.create_group("model_weights/a")
        layer.attrs["weight_names"] = ["a/\x1b[2J"]
        layer["a/\x1b[2J"] = [1.0]
    shown = run(tmp_path / "x.h5").stdout
    assert "\x1b" not in shown and "'a/\\x1b[2J'" in shown


@pytest.mark.parametrize(("kind", "optimizer"), [("adagrad", Adagrad), ("adam", Adam), ("ftrl", FTRL)])
def test_tables(kind: str, optimizer: type, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "moved", load_checkpoint(FOLDER / f"keras_{kind}")
    told = run(checkpoint.path, out).stderr
    assert f"wrote {out}: 8 variables, 6 with the optimizer's state" in told.replace("\n", "")
    folders = json.loads((out / "migrated.json").read_text())["tables"]
    assert set(folders) == set(TABLES)
    for name, folder in folders.items():
        settings, state = checkpoint.optimizer(name)
        with rowgrad.Table.open(out / folder, mode="r") as table:
            assert table.optimizer == settings and type(settings) is optimizer
            np.testing.assert_array_equal(table.array, checkpoint[name])
            assert set(table.state) == set(state)
            for key, value in state.items():
                np.testing.assert_array_equal(table.state[key], value)
    rest, metadata = read_safetensors(out / "variables.safetensors")
    np.testing.assert_array_equal(rest["hidden/kernel"], checkpoint["hidden/kernel"])
    assert not {*TABLES} & set(rest)
    assert sorted(metadata) == [
        f"optimizer of {name}" for name in ("hidden/bias", "hidden/kernel", "score/bias", "score/kernel")
    ]


def test_tables_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are copied in many blocks, also across slices."""
    from rowgrad.tables import _creating

    monkeypatch.setattr(_creating, "BLOCK", 40)
    run(FOLDER / "partitioned", tmp_path / "out", "--table", "ta*", "--set", "lr=0.5", "--set", "l1=0.25")
    checkpoint = load_checkpoint(FOLDER / "partitioned")
    with rowgrad.Table.open(tmp_path / "out" / "table") as table:
        assert (table.optimizer.lr, table.optimizer.l1) == (0.5, 0.25)
        np.testing.assert_array_equal(table.array, checkpoint["table"])
        np.testing.assert_array_equal(table.state["sum"], checkpoint["table/Ftrl"])
        np.testing.assert_array_equal(table.state["linear"], checkpoint["table/Ftrl_1"])


def test_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rowgrad.tensorflow import _writing

    monkeypatch.setattr(_writing, "BLOCK", 16)
    told = run(FOLDER / "objects", tmp_path / "out.safetensors", "--set", "lr=0.5").stderr
    assert "left out: texts (string)" in told and "of_complex128" in told
    found, metadata = read_safetensors(tmp_path / "out.safetensors")
    checkpoint = load_checkpoint(FOLDER / "objects")
    for name, array in found.items():
        variable, _, state = name.partition("@")
        wanted = checkpoint.optimizer(variable, lr=0.5)[1][state] if state else checkpoint[name]
        assert array.dtype == wanted.dtype
        assert array.tolist() == wanted.tolist()
    assert {"first@m", "first@v", "first@step", "second@sum", "empty"} <= set(found)
    assert json.loads(metadata["optimizer of first"])["name"] == "Adam"


def test_pytorch(tmp_path: Path) -> None:
    torch = framework("torch")
    run(FOLDER / "keras_adagrad", tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    checkpoint = load_checkpoint(FOLDER / "keras_adagrad")
    optimizer, state = checkpoint.optimizer(TABLES[0])
    np.testing.assert_array_equal(found["model"][TABLES[0]].numpy(), checkpoint[TABLES[0]])
    np.testing.assert_array_equal(found["state"][TABLES[0]]["sum"].numpy(), state["sum"])
    assert rowgrad.optim.from_dict(found["optimizer"][TABLES[0]]) == optimizer
    run(FOLDER / "objects", tmp_path / "out.pt", "--no-state", "--force")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert found["model"]["of_bfloat16"].dtype is torch.bfloat16 and not found["state"]


def test_files_of_keras(tmp_path: Path) -> None:
    framework("h5py")
    run(FOLDER / "recommender.keras", tmp_path / "moved")
    optimizer, state = load_checkpoint(FOLDER / "keras_adagrad").optimizer(TABLES[0])
    with rowgrad.Table.open(tmp_path / "moved" / "item_table.embeddings") as table:
        assert table.optimizer == optimizer
        np.testing.assert_array_equal(table.state["sum"], state["sum"])


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "moved"
    run(FOLDER / "keras_adagrad", out)
    assert "already exists" in run(FOLDER / "keras_adagrad", out, code=1).stderr
    run(FOLDER / "keras_adam", out, "--force")
    with rowgrad.Table.open(out / "item_table.embeddings") as table:
        assert type(table.optimizer) is Adam
    (out / "mine.txt").write_text("keep")
    assert "not overwritten" in run(FOLDER / "keras_adagrad", out, "--force", code=1).stderr.replace("\n", " ")
    assert (out / "mine.txt").exists()
    other = tmp_path / "other"
    other.mkdir()
    assert "not overwritten" in run(FOLDER / "keras_adagrad", other, "--force", code=1).stderr.replace("\n", " ")
    (tmp_path / "file.safetensors").write_text("mine")
    assert "already exists" in run(FOLDER / "keras_adagrad", tmp_path / "file.safetensors", code=1).stderr
    assert {path.name for path in tmp_path.iterdir()} == {"moved", "other", "file.safetensors"}


@pytest.mark.parametrize("out", ["moved", "moved.safetensors", "moved.pt"])
def test_damage_leaves_nothing_behind(out: str, tmp_path: Path) -> None:
    framework("torch")
    folder = tmp_path / "from"
    folder.mkdir()
    for file in FOLDER.glob("keras_adagrad.*"):
        shutil.copy(file, folder)
    data = folder / "keras_adagrad.data-00000-of-00001"
    changed = bytearray(data.read_bytes())
    at = bytes(changed).index(load_checkpoint(FOLDER / "keras_adagrad")[TABLES[1]].tobytes())
    changed[at] ^= 1
    data.write_bytes(changed)
    told = run(folder / "keras_adagrad", tmp_path / out, code=1).stderr
    assert "checksum is wrong" in told.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["from"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["missing"], 1, "is not a checkpoint"),
        (["{}/partitioned", "{out}/x"], 1, "does not have the learning rate"),
        (["{}/partitioned", "{out}/x", "--no-state"], 2, "no matrix named like an embedding"),
        (["{}/partitioned", "{out}/x", "--no-state", "--table", "nothing"], 2, "no matrix of"),
        (["{}/partitioned", "{out}/x", "--no-state", "--table", "global_step"], 1, "matrices of floats"),
        (["{}/partitioned", "{out}/x.npz"], 2, "become .safetensors"),
        (["{}/partitioned", "{out}/none/x.pt"], 1, "there is no folder"),
        (["{}/partitioned", "{out}/none/x"], 1, "there is no folder"),
        (["{}/partitioned", "{out}/x.pt", "--table", "table"], 2, "--table needs a folder"),
        (["{}/partitioned", "--force"], 2, "need OUT"),
        (["{}/partitioned", "{out}/x.pt", "--set", "lr"], 2, "NAME=VALUE"),
        (["{}/partitioned", "{out}/x.pt", "--set", "lr=fast"], 2, "NAME=VALUE"),
        (["{}/partitioned", "{out}/x.pt", "--set", "lr=-1"], 1, "0 or more"),
        (["{}/partitioned", "{out}/x.pt", "--set", "lr=1", "--set", "speed=1"], 1, "no setting 'speed'"),
    ],
)  # fmt: skip
def test_errors(arguments: list[str], code: int, text: str, tmp_path: Path) -> None:
    told = run(*(each.format(FOLDER, out=tmp_path) for each in arguments), code=code).stderr
    assert text in " ".join(told.split())
    assert not any(tmp_path.iterdir())
