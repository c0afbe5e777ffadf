"""Files of a table that others touch: the lock holds, only regular files are opened, cut-off files are an error."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from table_logs import leave_journal, leave_log
from table_training import batch, first_rows

from optional import framework
from rowgrad import Table, optim
from rowgrad.errors import FileError

ROWS, WIDTH = 5000, 32
FILES = ["header.json", "rows.bin", "state.sum.bin", "journal.bin", "log.1", "commits.bin", "lock"]
OPEN = """
import sys
import rowgrad
try:
    rowgrad.Table.open(sys.argv[1], mode=sys.argv[2]).close()
    print("opened")
except rowgrad.RowgradError as error:
    print(error.code, error)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table at step 1, with a file of the user beside it."""
    with Table.create(tmp_path / "t", ROWS, WIDTH, optimizer=optim.Adagrad(lr=0.1), initializer=first_rows) as table:
        train(table)
    (tmp_path / "thesis.txt").write_text("years of work")
    return tmp_path / "t"


def train(table: Table) -> None:
    grad, indices, segments = batch(table.steps, table.rows, table.width, 3000)
    table.step_pooled(grad, indices, segments)


def run(code: str, *arguments: object) -> str:
    """What `code` prints in a process of its own, which may hang or be ended by a signal."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                          timeout=120)  # fmt: skip
    return done.stdout if done.returncode == 0 else f"ended with {done.returncode}"


# The lock


@pytest.mark.parametrize(
    "disturb",
    [
        lambda path: shutil.copytree(path, path.parent / "copy"),
        lambda path: (path / "lock").unlink(),
        lambda path: (path / "rows.bin").read_bytes(),
        lambda path: Table.open(path, mode="r").close(),
    ],
    ids=["copytree", "deleted-lock", "read", "reader"],
)
def test_nothing_done_to_the_files_admits_a_second_writer(path: Path, disturb: Callable[[Path], object]) -> None:
    with Table.open(path) as table:
        disturb(path)
        assert run(OPEN, path, "r+").startswith("table-locked")
        with pytest.raises(FileError, match="already open for writing"):
            Table.open(path)
        train(table)
        expected = table.array.tobytes()
    with Table.open(path) as table:
        assert (table.steps, table.array.tobytes()) == (2, expected)


def test_a_table_that_is_being_replaced_is_locked(path: Path) -> None:
    found = []

    def fill(first: int, block: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> None:
        found.append(run(OPEN, path, "r+"))

    Table.create(path, 3, 3, initializer=fill, overwrite=True).close()
    assert len(found) == 1
    assert found[0].startswith("table-locked")


@pytest.mark.parametrize("name", ["rows.bin", "state.sum.bin"])
@pytest.mark.parametrize("removed", [True, False], ids=["removed", "replaced"])
def test_files_that_were_put_in_place_of_the_open_ones_are_left_alone(path: Path, name: str, removed: bool) -> None:
    copy = path.parent / "copy"
    shutil.copytree(path, copy)
    with Table.open(path) as table:
        train(table)
        if removed:
            (path / name).unlink()
        else:
            os.replace(copy / name, path / name)
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with pytest.raises(FileError, match=f"{name} was replaced or removed") as found:
            table.flush()
        assert found.value.code == "file-replaced"
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before
        table.close(flush=False)


@pytest.mark.parametrize("leave", [leave_log, leave_journal])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_can_be_read(
    path: Path, number: int, leave: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    leave(path, train)
    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(FileError, match=r'cannot be locked .*mode="r"') as found:
        Table.open(path)
    assert found.value.code == "cannot-lock"
    with Table.open(path, mode="r") as table:
        assert (table.steps, table.recovered) == (2, "replayed")


def test_tables_can_be_imported_where_there_are_no_locks() -> None:
    code = (
        "import os, sys, numpy\n"
        "sys.modules['fcntl'] = None\n"
        "del os.O_NOFOLLOW, os.O_NONBLOCK, os.register_at_fork, os.posix_fallocate\n"
        "import rowgrad.tables\n"
        "print(rowgrad.tables.Table.__name__)\n"
    )
    assert run(code) == "Table\n"


# What is not a regular file


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_symbolic_links_are_refused_and_not_written_through(path: Path, name: str, mode: str) -> None:
    if name in ("journal.bin", "log.1"):
        (leave_log if name == "log.1" else leave_journal)(path, train)
    victim = path.parent / "victim"
    if name == "lock":
        victim = path.parent / "thesis.txt"
        (path / name).unlink()
    else:
        os.replace(path / name, victim)
    before = victim.read_bytes()
    (path / name).symlink_to(victim)
    if name == "lock" and mode == "r":  # nothing that a reader looks at
        Table.open(path, mode=mode).close()
    else:
        with pytest.raises(FileError, match=f"{name} is a symbolic link") as found:
            Table.open(path, mode=mode)
        assert found.value.code == "not-a-regular-file"
    assert victim.read_bytes() == before
    assert (path / name).is_symlink()


def test_a_lock_with_another_name_elsewhere_is_not_written_through(path: Path) -> None:
    (path / "lock").unlink()
    os.link(path.parent / "thesis.txt", path / "lock")
    Table.open(path).close()
    assert (path.parent / "thesis.txt").read_text() == "years of work"
    assert (path / "lock").read_text() == str(os.getpid())


def test_a_link_to_the_folder_is_followed(path: Path) -> None:
    (path.parent / "latest").symlink_to(path, target_is_directory=True)
    with Table.open(path.parent / "latest") as table:
        train(table)
    with Table.open(path) as table:
        assert table.steps == 2


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_named_pipes_keep_nobody_waiting(path: Path, name: str, mode: str) -> None:
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    refused = not (name == "lock" and mode == "r")
    told = run(OPEN, path, mode)
    assert told.startswith("not-a-regular-file" if refused else "opened")
    assert not refused or f"{name} is a named pipe" in told


def test_a_folder_is_no_file(path: Path) -> None:
    (path / "journal.bin").mkdir()
    with pytest.raises(FileError, match=r"journal\.bin is a folder"):
        Table.open(path)


# Files that are truncated under an open table

USES = {
    "array": "table.array[4000]",
    "state": "table.state['sum'][4000]",
    "look_up": "table.look_up([4000], [0])",
    "step": "table.step_pooled([[1.0] * 32], [4000], [0])",
    "flush": "table.flush()",
    "end_step": "table.end_step()",
}


@pytest.mark.parametrize("name", ["rows.bin", "state.sum.bin"])
@pytest.mark.parametrize("use", USES)
def test_a_file_that_was_cut_off_is_told(path: Path, use: str, name: str) -> None:
    code = f"""
import os, sys, rowgrad
from pathlib import Path
table = rowgrad.Table.open(sys.argv[1], mode=sys.argv[2])
if sys.argv[2] == "r+":
    table.step_pooled([[1.0] * 32], [4001], [0])
os.truncate(Path(sys.argv[1], {name!r}), 4096)
try:
    {USES[use]}
except rowgrad.RowgradError as error:
    print(error.code, error)
table.close(flush=False)
"""
    for mode in ("r", "r+") if use in ("array", "state", "look_up") else ("r+",):
        size = (path / name).stat().st_size
        assert run(code, path, mode).startswith(f"wrong-size {path / name} was truncated while the table was open")
        os.truncate(path / name, size)


def test_a_layer_over_a_table_that_was_cut_off_tells_it(path: Path) -> None:
    torch = framework("torch")
    from rowgrad.torch import EmbeddingBag

    with Table.open(path) as table:
        bag = EmbeddingBag.from_table(table)
        os.truncate(path / "rows.bin", 4096)
        with pytest.raises(FileError, match=r"rows\.bin was truncated"):
            bag(torch.tensor([[0, 1]]))
        table.close(flush=False)
