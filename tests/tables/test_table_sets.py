"""Tables of a set commit together, with a record; readers and snapshots see whole commits; version 1 is converted."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_logs import leave_journal, make_version1
from table_training import batch, first_rows

import rowgrad
from rowgrad import Table, TableSet, optim
from rowgrad.errors import FileError
from rowgrad.tables import _store as store

HERE = Path(__file__).parent
ROWS, WIDTH = 3000, 16


def train(tables: TableSet) -> None:
    for name in tables:
        train_one(tables[name])


def train_one(table: Table) -> None:
    grad, indices, segments = batch(table.steps, table.rows, table.width, 300)
    table.step_pooled(grad, indices, segments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with TableSet.create(tmp_path / "set") as tables:
        for name in ("users", "items"):
            tables.create_table(name, ROWS, WIDTH, optimizer=optim.Adagrad(lr=0.1), initializer=first_rows)
        train(tables)
        tables.flush(record={"step": 1})
    return tmp_path / "set"


def contents(path: Path) -> tuple[Any, ...]:
    with TableSet.open(path, mode="r") as tables:
        return tables.record, *((tables[name].steps, tables[name].array.tobytes()) for name in tables)


def test_tables_and_record_are_kept(path: Path) -> None:
    with TableSet.open(path) as tables:
        assert list(tables) == ["users", "items"] and len(tables) == 2 and "users" in tables
        train(tables)
        expected = [tables[name].array.tobytes() for name in tables]
        tables.flush(record={"step": 2, "dense": "d-2.pt"})
        train(tables)
        tables.close(flush=False)
    assert contents(path) == ({"step": 2, "dense": "d-2.pt"}, (2, expected[0]), (2, expected[1]))


def test_an_exception_between_two_tables_leaves_the_last_flush(path: Path) -> None:
    before = contents(path)
    with pytest.raises(ZeroDivisionError), TableSet.open(path) as tables:
        train_one(tables["users"])
        raise ZeroDivisionError
    assert contents(path) == before


@pytest.mark.parametrize("auto_flush", [True, False])
def test_steps_flush_by_themselves_only_when_asked(path: Path, auto_flush: bool) -> None:
    with TableSet.open(path, max_dirty=1 << 16, auto_flush=auto_flush) as tables:
        train(tables)
        assert contents(path)[0] == {"step": 1}  # never in the middle of a step
        tables.end_step(record={"step": 2})
        assert contents(path)[0] == {"step": 2 if auto_flush else 1}


def test_what_concerns_files_is_done_by_the_set(path: Path) -> None:
    with TableSet.open(path) as tables:
        table = tables["users"]
        for use in (table.flush, table.close, table.refresh, lambda: table.snapshot(path.parent / "x")):
            with pytest.raises(rowgrad.InvalidArgumentError, match="of the set") as found:
                use()
            assert found.value.code == "part-of-set"
        with pytest.raises(FileError, match="already open for writing"):
            TableSet.open(path)
        for bad in ("", "../x", ".x", 3, "a/b"):
            with pytest.raises(rowgrad.InvalidArgumentError, match="name is"):
                tables.create_table(bad, 3, 3)  # type: ignore[arg-type]
        with pytest.raises(rowgrad.InvalidArgumentError, match="already"):
            tables.create_table("users", 3, 3)
        with pytest.raises(rowgrad.InvalidArgumentError, match="no table 'x'"):
            tables["x"]
        with pytest.raises(rowgrad.InvalidArgumentError, match="cannot be written as JSON"):
            tables.flush(record={"step": object()})
    with pytest.raises(FileError, match=r"TableSet\.open"):
        Table.open(path / "tables" / "users")
    with pytest.raises(FileError, match="already exists"):
        TableSet.create(path)
    with pytest.raises(FileError, match="not a set of tables"):
        TableSet.open(path / "tables")


def test_a_damaged_set_is_told(path: Path) -> None:
    fields = json.loads((path / "set.json").read_text())
    (path / "set.json").write_text(json.dumps(fields | {"record": {"step": 9}}))
    with pytest.raises(FileError, match="does not match its checksum"):
        TableSet.open(path)


def test_a_reader_keeps_its_step_until_it_refreshes(path: Path) -> None:
    first = contents(path)
    with TableSet.open(path) as tables, TableSet.open(path, mode="r") as reader:
        arrays = {name: reader[name].array for name in reader}
        for step in range(2, 5):
            train(tables)
            tables.flush(record={"step": step})
            assert (reader.record, *((reader[n].steps, arrays[n].tobytes()) for n in reader)) == first
        assert reader.refresh() == {"step": 4}
        for name in tables:
            assert reader[name].steps == 4 and arrays[name].tobytes() == tables[name].array.tobytes()
        train(tables)
        tables.flush(record={"step": 5})  # written into the files, as no reader needs step 3 any more
        assert reader["users"].steps == 4
        tables.create_table("later", 10, 2)
        with pytest.raises(FileError, match=r"Call `refresh\(\)`") as found:
            reader["users"].look_up([0], [0])
        assert found.value.code == "view-outdated"
        assert reader.refresh() == {"step": 5} and reader["later"].rows == 10
        assert reader["users"].array.tobytes() == tables["users"].array.tobytes()


def test_a_row_that_gets_its_old_value_back_while_a_reader_waits(path: Path) -> None:
    with TableSet.open(path) as tables, TableSet.open(path, mode="r"):
        array = tables["users"].array
        old = array[7].copy()
        array[7] = 99
        tables.flush(record={"step": 2})
        array[7] = old
        tables.flush(record={"step": 3})
        shutil.copytree(path, path.parent / "killed")
    with TableSet.open(path.parent / "killed") as tables:
        assert (tables.recovered, tables.record) == ("replayed", {"step": 3})
        assert np.array_equal(tables["users"].array[7], old)


def test_a_snapshot_is_a_whole_commit_while_training_goes_on(path: Path) -> None:
    with TableSet.open(path) as tables:
        for table in (tables[name] for name in tables):
            table.array[:] = 1
        tables.flush(record={"step": 1})
        over = threading.Event()

        def go_on() -> None:
            step = 1
            while not over.is_set():
                step += 1
                with tables._guard:
                    for name in tables:
                        tables[name].array[:] = step
                    tables.flush(record={"step": step})

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for number in range(5):
                tables.snapshot(path.parent / f"copy{number}")
        finally:
            over.set()
            thread.join()
        with pytest.raises(FileError, match="already exists"):
            tables.snapshot(path.parent / "copy0")
    for number in range(5):
        with TableSet.open(path.parent / f"copy{number}") as copy:
            assert copy.recovered is None
            for name in copy:
                assert (copy[name].array == copy.record["step"]).all()
    assert sorted(each.name for each in path.parent.iterdir()) == [*(f"copy{n}" for n in range(5)), "set"]


def test_a_long_log_is_brought_into_the_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOG_LIMIT", 1 << 16)
    with TableSet.open(path) as tables:
        for step in range(2, 12):
            train(tables)
            tables.flush(record={"step": step})
            assert sum(log.stat().st_size for log in path.glob("log.*")) < 1 << 20
        shutil.copytree(path, path.parent / "killed")
        expected = contents(path)
    assert contents(path.parent / "killed") == expected


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_version_1_opens_and_is_converted(tmp_path: Path, is_cut_off: bool) -> None:
    with Table.create(tmp_path / "t", ROWS, WIDTH, optimizer=optim.Adagrad(lr=0.1), initializer=first_rows) as table:
        train_one(table)
    if is_cut_off:
        leave_journal(tmp_path / "t", train_one)
    else:
        make_version1(tmp_path / "t")
    with Table.open(tmp_path / "t") as table:
        assert (table.steps, table.recovered) == ((2, "replayed") if is_cut_off else (1, None))
        assert json.loads((tmp_path / "t" / "header.json").read_text())["rowgrad_table"] == 2
        train_one(table)
        expected = table.array.tobytes()
    with Table.open(tmp_path / "t", mode="r") as table:
        assert table.array.tobytes() == expected


def test_killed_at_random_moments_all_files_are_at_one_step(tmp_path: Path) -> None:
    """A short run; `python tests/tables/set_killed.py FOLDER 100 SEED` is the long one."""
    done = subprocess.run([sys.executable, str(HERE / "set_killed.py"), str(tmp_path), "12", "3"],
                          capture_output=True, text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == 12
    for found in rounds:
        assert found["same"] and found["snapshots_whole"], found
        assert found["last"] <= found["step"] <= found["tried"], found


def test_what_is_no_optimizer_and_what_is_no_name(tmp_path: Path) -> None:
    with TableSet.create(tmp_path / "set") as tables:
        for optimizer in (5, "Adam", object()):
            with pytest.raises(rowgrad.InvalidArgumentError, match=r"rowgrad\.optim"):
                tables.create_table("a", 3, 2, optimizer=optimizer)
        assert list(tables) == []
        for name in ([], 5, None):
            assert name not in tables
            with pytest.raises(rowgrad.InvalidArgumentError, match="there is no table"):
                tables[name]  # type: ignore[index]
