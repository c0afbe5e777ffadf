"""Data sets of files: every row once, in one order for all workers and ranks, stopped and resumed anywhere."""

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from damage import damaged
from optional import framework

torch = framework("torch")
pa = pytest.importorskip("pyarrow")

import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

import rowgrad  # noqa: E402
from rowgrad.torch.data import Batch, JaggedDataset, JaggedLoader  # noqa: E402

ROWS = 1003


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    lists = [random.integers(0, 99, n).tolist() for n in random.integers(0, 5, ROWS)]
    lists[7] = None
    table = pa.table({
        "row": pa.array(range(ROWS)),
        "items": pa.array(lists, pa.list_(pa.int64())),
        "user": pa.array(random.integers(0, 9, ROWS), pa.int32()),
        "label": pa.array(random.random(ROWS).astype(np.float32)),
        "text": pa.array(["x"] * ROWS),
    })  # fmt: skip
    pyarrow.parquet.write_table(table.slice(0, 600), path / "a.parquet", row_group_size=97)
    pyarrow.feather.write_feather(table.slice(600), path / "b.arrow", chunksize=50)
    return path


def dataset(folder: Path, **kwargs: Any) -> JaggedDataset:
    given = {"batch_size": 32, "columns": ["row", "label"]} | kwargs
    return JaggedDataset(folder, ["items", "user"], **given)


def rows(batches: list[Batch]) -> list[int]:
    return [row for batch in batches for row in batch.columns["row"].tolist()]


def test_batches_are_the_rows_of_the_files(folder: Path) -> None:
    batches = list(dataset(folder))
    table = pa.concat_tables([pyarrow.parquet.read_table(folder / "a.parquet"),
                              pyarrow.feather.read_table(folder / "b.arrow")])  # fmt: skip
    assert rows(batches) == list(range(ROWS))
    assert [len(batch.columns["row"]) for batch in batches] == [32] * 31 + [11]
    found = [bag.tolist() for batch in batches for bag in batch.features["items"].to_dense()]
    assert found == [row or [] for row in table["items"].to_pylist()]
    users = [bag.tolist() for batch in batches for bag in batch.features["user"].to_dense()]
    assert users == [[user] for user in table["user"].to_pylist()]
    labels = torch.cat([batch.columns["label"] for batch in batches])
    assert labels.tolist() == table["label"].to_pylist()


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_rows_come_once_and_by_the_seed(folder: Path, workers: int) -> None:
    def order(seed: int, epoch: int = 0) -> list[int]:
        data = dataset(folder, shuffle=True, seed=seed)
        data.set_epoch(epoch)
        return rows(list(JaggedLoader(data, num_workers=workers)))

    assert sorted(order(1)) == list(range(ROWS)) != order(1)
    assert order(1) == order(1) != order(2)
    assert order(1, 1) != order(1)


def test_ranks_and_workers_share_the_rows(folder: Path) -> None:
    found = []
    for rank in range(3):
        data = dataset(folder, shuffle=True, rank=rank, world_size=3)
        found.append(rows(list(JaggedLoader(data, num_workers=2))))
    assert sorted([row for part in found for row in part]) == list(range(ROWS))
    assert max(map(len, found)) - min(map(len, found)) <= 2


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("workers", "stop"), [(0, 1), (0, 13), (2, 1), (2, 6), (2, 31)])
def test_stopped_and_resumed_it_gives_the_same(folder: Path, workers: int, stop: int, shuffle: bool) -> None:
    def loader() -> JaggedLoader:
        return JaggedLoader(dataset(folder, shuffle=shuffle, seed=5), num_workers=workers)

    whole = [batch.columns["row"].tolist() for batch in loader()]
    first = loader()
    begun = []
    for batch in first:
        begun.append(batch.columns["row"].tolist())
        if len(begun) == stop:
            break
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    rest = [batch.columns["row"].tolist() for batch in second]
    assert begun + rest == whole
    assert second.dataset.epoch == 1 and second.state_dict()["rows"] == {}


def test_the_data_set_alone_resumes(folder: Path) -> None:
    data = dataset(folder)
    given = iter(data)
    begun = [next(given).columns["row"].tolist() for _ in range(5)]
    again = dataset(folder)
    again.load_state_dict(data.state_dict())
    assert [row for part in begun for row in part] + rows(list(again)) == list(range(ROWS))


def test_last_batches_can_be_dropped_and_features_renamed(folder: Path) -> None:
    data = JaggedDataset(str(folder / "*.parquet"), {"clicked": "items"}, batch_size=64, drop_last=True)
    batches = list(data)
    assert len(batches) == 600 // 64 and batches[0].features.keys() == ["clicked"]


def test_a_progress_bar_counts_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(JaggedLoader(dataset(folder), progress=True))
    assert f"{ROWS}/{ROWS}" in capsys.readouterr().out


def test_what_is_wrong_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    cases: list[tuple[Any, str]] = [
        (lambda: JaggedDataset(tmp_path / "none.parquet", ["x"], batch_size=1), "names no file"),
        (lambda: JaggedDataset([], ["x"], batch_size=1), "files is empty"),
        (lambda: JaggedDataset(folder, ["x"], batch_size=1), "has no column 'x'; it has 'row', 'items'"),
        (lambda: JaggedDataset(folder, [], batch_size=1), "features is"),
        (lambda: JaggedDataset(folder, "items", batch_size=1), "it must be a list or dict of columns"),
        (lambda: dataset(folder, batch_size=0), "batch_size is 0"),
        (lambda: dataset(folder, rank=3, world_size=2), "0 <= rank < world_size"),
        (lambda: JaggedDataset(tmp_path / "bad.parquet", ["x"], batch_size=1), "bad.parquet cannot be read"),
        (lambda: next(iter(JaggedDataset(folder, ["text"], batch_size=1))), "of .*a.parquet must hold ids only"),
        (lambda: next(iter(dataset(folder, columns=["text"]))), "has the type string; it must hold numbers"),
        (lambda: JaggedLoader(dataset(folder), shuffle=True), "shuffle is an argument of JaggedDataset"),
        (lambda: JaggedLoader(dataset(folder)).load_state_dict({"workers": 2}), "Pass num_workers=2"),
        (lambda: dataset(folder, seed=2).load_state_dict(dataset(folder).state_dict()), "seed = 0, but this data set"),
    ]
    for call, text in cases:
        with pytest.raises(rowgrad.InvalidArgumentError, match=text):
            call()


@pytest.mark.parametrize("files", [None, 5, [None], b"x", [b"x"]], ids=repr)
def test_files_that_are_no_paths(files: Any) -> None:
    with pytest.raises(rowgrad.InvalidArgumentError, match="files has"):
        JaggedDataset(files, ["items"], batch_size=3)


def test_other_wrong_arguments(folder: Path) -> None:
    data = JaggedDataset(folder, ["items"], batch_size=3)
    loader = JaggedLoader(data)
    for argument, call in (
        ("rank", lambda: JaggedDataset(folder, ["items"], batch_size=3, rank="0", world_size=2)),
        ("epoch", lambda: data.set_epoch("first")),
        ("epoch", lambda: data.set_epoch(-1)),
        ("seed", lambda: JaggedDataset(folder, ["items"], batch_size=3, seed="x")),
        ("seed", lambda: JaggedDataset(folder, ["items"], batch_size=3, seed=-1)),
        *(("features", lambda given=given: JaggedDataset(folder, given, batch_size=3))
          for given in (None, 5, "items", [], [["items"]], {"a": ["items"]}, {1: "items"})),
        *(("columns", lambda given=given: JaggedDataset(folder, ["items"], batch_size=3, columns=given))
          for given in (None, 5, "items", [["items"]])),
        *(("state", lambda state=state, owner=owner: owner.load_state_dict({**loader.state_dict(), **state}))
          for state in ({"rows": {"x": 1}}, {"rows": {0: -1}}, {"rows": {0: None}}, {"epoch": "x"}, {"epoch": None},
                        {"epoch": -1}, {"turn": []}) for owner in (data, loader)),
        ("dataset", lambda: JaggedLoader([1, 2])),
        ("num_workers", lambda: JaggedLoader(data, num_workers=-1)),
        ("num_workers", lambda: JaggedLoader(data, num_workers=1.5)),
        *(("state", lambda state=state, owner=owner: owner.load_state_dict(state))
          for state in (None, [], 5, {}, {**loader.state_dict(), "rows": None}) for owner in (data, loader)),
    ):  # fmt: skip
        with pytest.raises(rowgrad.InvalidArgumentError) as found:
            call()
        assert found.value.argument == argument


def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.parquet")
    for files in (tmp_path / "rows.parquet", tmp_path):
        with pytest.raises(rowgrad.RowgradError, match="is a pipe or a device"):
            JaggedDataset(files, ["items"], batch_size=3)


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    random, refused = Random(1), 0
    table = pa.table({"items": [[1, 2], [3], []], "label": [0.0, 1.0, 0.0]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, str(tmp_path / "a.arrow"), compression="uncompressed")
    for file in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
        data = file.read_bytes()
        for number in range(200):
            other = tmp_path / f"{number}{file.suffix}"  # a file that is mapped is not written to
            other.write_bytes(damaged(random, data))
            try:
                list(JaggedDataset(other, ["items"], batch_size=2, columns=["label"]))
            except rowgrad.RowgradError:
                refused += 1
            other.unlink()
    assert refused > 50
