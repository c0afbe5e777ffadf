"""What is wrong is named, and repaired where it can be: damaged files, full disks, other processes, half steps."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_logs import LOG, leave_log
from table_training import Array, batch, first_rows

import rowgrad
from optional import missing
from rowgrad import Table, optim
from rowgrad._runtime import limits
from rowgrad.errors import FileError
from rowgrad.tables import _header as headers

ROWS, WIDTH = 5000, 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table at step 1."""
    with Table.create(tmp_path / "t", ROWS, WIDTH, optimizer=optim.Adagrad(lr=0.1), initializer=first_rows) as table:
        train(table)
    return tmp_path / "t"


def train(table: Table) -> None:
    grad, indices, segments = batch(table.steps, table.rows, table.width, 3000)
    table.step_pooled(grad, indices, segments)


def snapshot(path: Path) -> tuple[int, bytes, bytes]:
    with Table.open(path, mode="r") as table:
        return table.steps, table.array.tobytes(), table.state["sum"].tobytes()


def refuse(path: Path, code: str, match: str, mode: str = "r+") -> None:
    with pytest.raises(FileError, match=match) as found:
        Table.open(path, mode=mode)
    assert found.value.code == code


# Damaged files


def rewrite(path: Path, **changes: Any) -> None:
    """Change the header and give it the right checksum: what a hostile hand would do."""
    fields = json.loads((path / headers.NAME).read_text()) | changes
    fields.pop("checksum")
    fields["checksum"] = headers.checksum_of(fields)
    (path / headers.NAME).write_text(json.dumps(fields))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("damage", "code", "match"),
    [
        (lambda path: shutil.rmtree(path), "not-a-table", "no such folder"),
        (lambda path: (path / "header.json").unlink(), "not-a-table", "no header.json, so it is not a table"),
        (lambda path: (path / "header.json").write_bytes(b"\xff\xfe"), "bad-header", "not text"),
        (lambda path: (path / "header.json").write_text("{"), "bad-header", "not JSON"),
        (lambda path: (path / "header.json").write_text("[" * 100000), "bad-header", "not JSON"),
        (lambda path: (path / "header.json").write_text("[]"), "not-a-table", "not the header of a table"),
        (lambda path: (path / "header.json").write_text(" " * (1 << 21)), "bad-header", "is too long"),
        (lambda path: rewrite(path, rowgrad_table=3), "other-version", "version 3 .* knows versions 1 and 2 only"),
        (lambda path: change(path / "header.json", b'"steps": 1', b'"steps": 7'), "bad-header", "checksum"),
        (lambda path: rewrite(path, rows=ROWS * 100), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, width=WIDTH * 100), "bad-header", "lists files that do not fit"),
        (lambda path: rewrite(path, rows=-1), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, rows=True), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, rows=2**62, state={}), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, dtype="object"), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, dtype=[]), "bad-header", "missing or wrong"),
        (lambda path: rewrite(path, state={"../../x": {"dtype": "float32", "shape": [ROWS]}}), "bad-header", "wrong"),
        (lambda path: rewrite(path, state=3), "bad-header", "missing or wrong"),
        (lambda path: os.truncate(path / "rows.bin", 4096), "wrong-size", "is truncated: it has 4096 bytes"),
        (lambda path: os.truncate(path / "state.sum.bin", 1 << 30), "wrong-size", "is too long"),
        (lambda path: (path / "rows.bin").unlink(), "file-missing", "rows.bin is missing"),
    ],
)  # fmt: skip
def test_damage_is_told(path: Path, mode: str, damage: Callable[[Path], None], code: str, match: str) -> None:
    damage(path)
    refuse(path, code, match, mode)


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_an_optimizer_that_is_not_known_locks_nobody_out(path: Path) -> None:
    good = (path / "header.json").read_text()
    rewrite(path, optimizer={"name": "Magic", "lr": 1.0})
    with pytest.raises(rowgrad.InvalidArgumentError, match="Magic"):
        Table.open(path)
    (path / "header.json").write_text(good)
    Table.open(path).close()


def test_what_is_no_table_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for attempt in (
        lambda: Table.open(tmp_path / "mine"),
        lambda: Table.create(tmp_path / "mine", 3, 3),
        lambda: Table.create(tmp_path / "mine", 3, 3, overwrite=True),
        lambda: Table.create(tmp_path / "mine" / "thesis.txt", 3, 3, overwrite=True),
    ):
        with pytest.raises(FileError):
            attempt()
    assert [file.name for file in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


def test_overwriting_has_to_be_asked_for(path: Path) -> None:
    before = snapshot(path)
    with pytest.raises(FileError, match="pass overwrite=True"):
        Table.create(path, 3, 3)
    assert snapshot(path) == before
    with Table.open(path), pytest.raises(FileError, match="already open for writing by this process"):
        Table.create(path, 3, 3, overwrite=True)
    assert snapshot(path) == before
    with Table.create(path, 3, 3, overwrite=True) as table:
        assert (table.rows, table.state) == (3, {})
    assert not any(file.name.endswith((".part", ".old")) for file in path.parent.iterdir())


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"rows": -1}, "rows"), ({"rows": 1.5}, "rows"), ({"rows": True}, "rows"), ({"rows": 2**62}, "rows"),
        ({"width": 0}, "width"), ({"dtype": "int32"}, "dtype"), ({"dtype": "float8"}, "dtype"), ({"dtype": 3}, "dtype"),
        ({"initializer": "zeros"}, "initializer"), ({"initializer": ("gamma", 1.0, 0)}, "initializer"),
        ({"initializer": lambda first, block: block + 1}, "initializer"), ({"max_dirty": 0}, "max_dirty"),
    ],
)  # fmt: skip
def test_wrong_arguments_leave_nothing(tmp_path: Path, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as found:
        Table.create(tmp_path / "t", **({"rows": 10, "width": 4} | options))
    assert found.value.argument == argument
    assert not list(tmp_path.iterdir())


def test_steps_that_cannot_be_made_change_nothing(path: Path) -> None:
    with Table.open(path) as table:
        before = table.array.tobytes()
        for bad in ([ROWS], [-1]):
            with pytest.raises(rowgrad.OutOfRangeError):
                table.step_pooled(np.ones((1, WIDTH), np.float32), bad, [0])
        with pytest.raises(rowgrad.InvalidArgumentError, match="combiner"):
            table.look_up([0], [0], "median")
        with pytest.raises(rowgrad.OutOfRangeError, match="the rows of the table"):
            table.touch([ROWS])
        assert (table.steps, table.array.tobytes()) == (1, before)
        table.flush()
    for use in (table.flush, lambda: table.array, lambda: train(table), table.__enter__):
        with pytest.raises(rowgrad.InvalidArgumentError, match="is closed"):
            use()
    table.close()
    with Table.create(path.parent / "plain", 5, 2) as plain, pytest.raises(rowgrad.RowgradError, match="no optimizer"):
        train(plain)


def test_readers_cannot_write(path: Path) -> None:
    with Table.open(path, mode="r") as table:
        with pytest.raises(rowgrad.InvalidArgumentError, match='Open it with mode="r\\+"'):
            train(table)
        with pytest.raises(ValueError, match="read-only"):
            table.array[0] = 1
    with pytest.raises(rowgrad.InvalidArgumentError, match="mode"):
        Table.open(path, mode="w")


# Half steps


def test_an_interrupted_step_is_never_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(path)

    def interrupted(self: Any, table: Array, *_: Any, **__: Any) -> None:
        table[0] = 7
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Table.open(path) as table:
        with monkeypatch.context() as patch:
            patch.setattr(type(table.optimizer), "step_pooled", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train(table)
        with pytest.raises(rowgrad.RowgradError, match="half a step is never written") as found:
            table.flush()
        assert found.value.code == "half-step"
        raise KeyboardInterrupt
    assert snapshot(path) == before


def test_steps_before_an_exception_are_kept(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Table.open(path) as table:
        train(table)
        raise ZeroDivisionError
    assert snapshot(path)[0] == 2


def test_a_table_that_was_forgotten_is_told(path: Path) -> None:
    table = Table.open(path)
    with pytest.warns(ResourceWarning, match="never closed"):
        del table
    Table.open(path).close()


# Logs


def copy_with_log(path: Path) -> Path:
    """A table that stopped when its log, to step 2, was complete, and nothing written into the files yet."""
    other = path.parent / "stopped"
    shutil.copytree(path, other)
    leave_log(other, train)
    with Table.open(path) as table:
        train(table)
    return other


def test_every_beginning_of_a_log_is_discarded_and_the_whole_one_replayed(path: Path) -> None:
    before = snapshot(path)
    stopped = copy_with_log(path)
    after = snapshot(path)
    whole = (stopped / LOG).read_bytes()
    lengths = [0, 1, 51, 52, 60, 400, 5000, len(whole) // 2, len(whole) - 32, len(whole) - 31, len(whole) - 1]
    for length in lengths:
        (stopped / LOG).write_bytes(whole[:length])
        with Table.open(stopped) as table:
            assert table.recovered == (None if length == 52 else "discarded")
        assert snapshot(stopped) == before
    (stopped / LOG).write_bytes(whole)
    with Table.open(stopped) as table:
        assert (table.recovered, table.steps) == ("replayed", 2)
    assert snapshot(stopped) == after
    (stopped / LOG).write_bytes(whole)  # an unlink that a power failure undid
    with Table.open(stopped) as table:
        assert table.recovered == "replayed"
    assert snapshot(stopped) == after


def test_a_commit_that_was_cut_off_leaves_the_one_before(path: Path) -> None:
    stopped = copy_with_log(path)
    after = snapshot(path)
    whole = (stopped / LOG).read_bytes()
    (stopped / LOG).write_bytes(whole + whole[52:-40])
    with Table.open(stopped) as table:
        assert (table.recovered, table.steps) == ("discarded", 2)
    assert snapshot(stopped) == after


@pytest.mark.parametrize("place", [0, 9, 60, 700, 0.3, 0.7])
def test_a_complete_log_with_a_wrong_bit_is_told(path: Path, place: float) -> None:
    stopped = copy_with_log(path)
    data = bytearray((stopped / LOG).read_bytes())
    data[int(place * len(data)) if 0 < place < 1 else int(place)] ^= 1
    (stopped / LOG).write_bytes(data)
    before = (stopped / "rows.bin").read_bytes()
    told = "is damaged|another table"  # a wrong bit may be in the id
    refuse(stopped, "bad-journal", told)
    refuse(stopped, "bad-journal", told, "r")
    assert (stopped / "rows.bin").read_bytes() == before


def test_the_log_of_another_table_is_refused(path: Path) -> None:
    stopped = copy_with_log(path)
    Table.create(path.parent / "other", ROWS, WIDTH, optimizer=optim.Adagrad(lr=0.1)).close()
    shutil.copy(stopped / LOG, path.parent / "other")
    refuse(path.parent / "other", "bad-journal", "log of another table")


def test_who_may_only_read_sees_the_new_step_too(path: Path) -> None:
    """The files are not his to change, so the log is laid over them in memory."""
    if os.getuid() != 0:
        missing("only root can become somebody else")
    stopped = copy_with_log(path)
    after = snapshot(path)
    files = {file.name: file.read_bytes() for file in stopped.iterdir()}
    for folder in [stopped, *list(stopped.parents)[:-2]]:
        os.chmod(folder, 0o755)
    for file in stopped.iterdir():
        os.chmod(file, 0o444)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def read() -> None:
        os.setuid(65534)
        try:
            found: Any = snapshot(stopped)
            with pytest.raises(FileError, match=r'cannot be opened \(Permission denied.*Open it with mode="r"'):
                Table.open(stopped)
        except BaseException as error:
            found = repr(error)
        results.put(found)

    child = context.Process(target=read)
    child.start()
    assert results.get() == after
    child.join()
    assert {file.name: file.read_bytes() for file in stopped.iterdir()} == files


# Full disks


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    else:
        with open(tmp_path / "image", "wb") as image:
            image.truncate(8 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(tmp_path / "image")], check=True)
        command = ["mount", "-o", "loop", str(tmp_path / "image"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        missing(f"no file system can be mounted, which takes root: {done.stderr}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("sparse", [True, False], ids=["holes", "filled"])
def test_a_full_disk_leaves_the_old_step_and_a_way_on(small_disk: Path, sparse: bool) -> None:
    path = small_disk / "t"
    initializer = 0.0 if sparse else first_rows
    with Table.create(path, 20_000, 16, optimizer=optim.Adagrad(lr=0.1), initializer=initializer) as table:
        ballast = small_disk / "ballast"
        disk = os.statvfs(small_disk)
        free = disk.f_bavail * disk.f_frsize
        ballast.write_bytes(bytes(max(0, free - (1 << 16))))
        for _ in range(2):
            train(table)
            with pytest.raises(FileError, match=r"No space left.*those of step 0.*flush again") as found:
                table.flush()
            assert found.value.code == "disk-full"
        assert snapshot(path)[0] == 0
        expected = table.array.tobytes()
        ballast.unlink()
        table.flush()
        assert snapshot(path)[:2] == (2, expected)
    with pytest.raises(FileError, match=r"cannot be created \(No space left") as found:
        Table.create(small_disk / "second", 10**6, 16, initializer=1.0)
    assert found.value.code == "disk-full"
    assert not (small_disk / "second").exists()
    assert sorted(file.name for file in small_disk.iterdir() if file.name != "lost+found") == ["t"]


def test_files_that_may_not_grow_leave_the_old_step(path: Path) -> None:
    before = snapshot(path)
    with Table.open(path) as table:
        train(table)
        limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits_before[1]))
        try:
            with pytest.raises(FileError, match="File too large") as found:
                table.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)
        assert found.value.code == "disk-full"
        assert snapshot(path) == before
        table.flush()
    assert snapshot(path)[0] == 2


def test_a_step_that_is_safe_in_the_log_is_carried_out_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that never overwrite may be full even where there was room: then the log has to stay."""
    from rowgrad.tables._mapping import Mapping

    def full(self: Mapping, rows: Array) -> None:
        raise OSError(28, "No space left on device")

    with Table.open(path) as table:
        train(table)
        second = table.array.tobytes()
        with monkeypatch.context() as patch:
            patch.setattr(Mapping, "write_rows", full)
            with pytest.raises(FileError, match="the step is safe in the log"):
                table.flush()
        assert (path / LOG).exists()
        copy = path.parent / "copy"
        shutil.copytree(path, copy)
        train(table)
        third = table.array.tobytes()
        table.flush()
    assert not (path / LOG).exists()
    assert snapshot(copy)[:2] == (2, second)
    assert snapshot(path)[:2] == (3, third)


# Other processes


def test_one_writer_at_a_time(path: Path) -> None:
    code = (
        "import sys, rowgrad\n"
        f"table = rowgrad.Table.open({str(path)!r})\n"
        "print(flush=True)\n"
        "sys.stdin.read()"
    )  # fmt: skip
    with Table.open(path):
        refuse(path, "table-locked", "already open for writing by this process")
        snapshot(path)
        refuse(path, "table-locked", "already open for writing by this process")  # a reader does not give it up
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdin is not None
    other.stdout.readline()
    refuse(path, "table-locked", f'already open for writing by process {other.pid}.*mode="r"')
    assert snapshot(path)[0] == 1
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    other.stdin.close()
    assert (path / "lock").exists()
    Table.open(path).close()  # the lock of a dead process is none


def test_a_forked_child_reads_but_never_writes(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    before = snapshot(path)
    with Table.open(path) as table:
        table.array[3] = 5

        def child() -> None:
            found: list[Any] = [float(table.array[3, 0])]
            for attempt in (table.flush, lambda: train(table), lambda: Table.open(path)):
                try:
                    attempt()
                    found.append("done")
                except rowgrad.RowgradError as error:
                    found.append(error.code)
            table.close()
            results.put(found)

        process = context.Process(target=child)
        process.start()
        assert results.get() == [5.0, "forked", "forked", "table-locked"]
        process.join()
        assert process.exitcode == 0
        assert snapshot(path) == before
        refuse(path, "table-locked", "by this process")
        table.flush()
        assert snapshot(path) != before


def test_a_child_that_lives_on_does_not_keep_the_lock(path: Path) -> None:
    """A data loader may outlive the process that forked it by a little."""
    code = (
        "import os, sys, time, rowgrad\n"
        f"table = rowgrad.Table.open({str(path)!r})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(1)\n"
        "    time.sleep(60)\n"
        "print(child, flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    try:
        Table.open(path).close()
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_steps_of_threads_are_made_one_after_the_other(path: Path) -> None:
    with Table.open(path, max_dirty=1 << 20) as table:
        threads = [threading.Thread(target=lambda: [train(table) for _ in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert table.steps == 21
    assert snapshot(path)[0] == 21


# Memory


def test_limits_of_groups_are_found(tmp_path: Path) -> None:
    from table_groups import little_memory

    code = "from rowgrad._runtime import limits; print(limits.available())"
    with little_memory(200 << 20) as (_, join):
        done = subprocess.run(
            [sys.executable, "-c", code], preexec_fn=join, stdout=subprocess.PIPE, text=True, check=True
        )
    assert 0 < int(done.stdout) < 200 << 20


def test_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    for names, text in (
        (limits.NEW, "inactive_file 300\nactive_file 100\n"),
        (limits.OLD, "total_inactive_file 400\n"),
    ):
        group = tmp_path / names[0] / "a" / "b"
        group.mkdir(parents=True)
        (group / names[0]).write_text("10000\n")
        (group / names[1]).write_text("2000\n")
        (group / "memory.stat").write_text(text)
        (group.parent / names[0]).write_text("max\n")
        assert list(limits._up(tmp_path / names[0], "/a/b", names)) == [8400]
        assert list(limits._up(tmp_path / names[0], "/not/here", names)) == []


def test_a_table_past_the_address_space_is_told(path: Path) -> None:
    Table.create(path.parent / "big", 2**30, 16).close()
    code = (
        "import resource, sys, rowgrad\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))\n"
        "try: rowgrad.Table.open(sys.argv[1])\n"
        "except rowgrad.RowgradError as error: print(error.code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path.parent / "big")], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.startswith("cannot-map")
    assert "ulimit -v" in done.stdout


def test_an_optimizer_that_changes_all_rows_needs_the_memory_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Table.open(path) as table:
        table.optimizer = optim.Adagrad(lr=0.1, weight_decay=0.1, decay_untouched=True)
        train(table)
        monkeypatch.setattr(limits, "available", lambda: table.nbytes - 1)
        with pytest.raises(rowgrad.InvalidArgumentError, match="decay_untouched=True, which changes all"):
            train(table)
        assert table.steps == 2
