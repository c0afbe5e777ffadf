"""A table on disk does what an array in memory does, keeps it, and takes no memory for what is flushed."""

import ctypes
import mmap
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from table_training import Array, batch, first_rows

import rowgrad
from rowgrad import Table, optim
from rowgrad._runtime import limits

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("Adagrad", {"initial_accumulator": 0.25}),
    ("RowWiseAdagrad", {}),
    ("Adam", {}),
    ("AdamW", {"decay_untouched": True}),
]


def make(
    path: Path, name: str = "SGD", rows: int = 3000, width: int = 20, dtype: Any = "float32", **options: Any
) -> Table:
    return Table.create(path, rows, width, dtype, optimizer=getattr(optim, name)(lr=0.1, **options),
                        initializer=first_rows)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "dtype"),
    [(*pair, "float32") for pair in OPTIMIZERS]
    + [(*OPTIMIZERS[2], dtype) for dtype in ("float64", "float16", "bfloat16")],
    ids=str,
)
def test_it_equals_an_array_in_memory_and_stays(tmp_path: Path, name: str, options: dict[str, Any], dtype: str) -> None:
    table = make(tmp_path / "t", name, dtype=dtype, **options)
    array = table.array.copy()
    optimizer = getattr(optim, name)(lr=0.1, **options)
    state = optimizer.init(array)
    assert set(table.state) == set(state or {})
    for step in range(6):
        grad, indices, segments = batch(step, table.rows, table.width, 700)
        grad = grad.astype(table.dtype)
        states = (state,) if state else ()
        if step % 2:
            combiner = ("sum", "mean", "sqrtn")[step // 2]
            table.step_pooled(grad, indices, segments, combiner=combiner)
            optimizer.step_pooled(array, grad, indices, segments, *states, combiner=combiner)
        else:
            gradient = rowgrad.sparse_segment_mean_grad_v2(grad, indices, segments, table.rows)
            table.step(gradient)
            optimizer.step(array, gradient, *states)
        if step == 2:
            table.flush()
        if step == 3:  # what is flushed is in the files, and what is not is not
            table.close(flush=False)
            table = Table.open(tmp_path / "t")
            assert table.steps == 3
            table.step_pooled(grad, indices, segments, combiner=combiner)
        assert table.array.tobytes() == array.tobytes()
    table.close()
    with Table.open(tmp_path / "t", mode="r") as table:
        assert (table.steps, table.recovered) == (6, None)
        assert table.array.tobytes() == array.tobytes()
        assert {key: value.tobytes() for key, value in table.state.items()} == {
            key: np.asarray(value).tobytes() for key, value in (state or {}).items()
        }
        assert repr(table.optimizer) == repr(optimizer)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_look_ups_are_those_of_the_operators(tmp_path: Path, combiner: str) -> None:
    _, indices, segments = batch(1, 3000, 20, 500)
    function = getattr(rowgrad, "sparse_segment_" + {"sqrtn": "sqrt_n"}.get(combiner, combiner))
    with make(tmp_path / "t") as table:
        expected = function(table.array.copy(), indices, segments)
        assert np.array_equal(table.look_up(indices, segments, combiner), expected)
        assert table.look_up(indices, segments, combiner, num_segments=300).shape == (300, 20)
    with Table.open(tmp_path / "t", mode="r") as table:
        assert np.array_equal(table.look_up(indices, segments, combiner), expected)


def test_weights_are_factors_of_sums(tmp_path: Path) -> None:
    grad, indices, segments = batch(1, 3000, 20, 500)
    weights = np.random.default_rng(0).random(500).astype(np.float32)
    with make(tmp_path / "t") as table:
        array = table.array.copy()
        expected = rowgrad.sparse_segment_weighted_sum(array, weights, indices, segments, 167)
        assert np.array_equal(table.look_up(indices, segments, "sum", weights), expected)
        table.step_pooled(grad, indices, segments, combiner="sum", weights=weights)
        optim.SGD(lr=0.1).step_pooled(array, grad, indices, segments, combiner="sum", weights=weights)
        assert np.array_equal(table.array, array)
        with pytest.raises(rowgrad.InvalidArgumentError, match="weights need sum"):
            table.look_up(indices, segments, "mean", weights)


def test_a_plan_serves_a_table(tmp_path: Path) -> None:
    grad, indices, segments = batch(1, 3000, 20, 500)
    plan = rowgrad.plan(indices, segments, rows=3000)
    with make(tmp_path / "a") as table, make(tmp_path / "b") as other:
        table.step_pooled(grad, None, None, plan=plan)
        other.step_pooled(grad, indices, segments)
        assert np.array_equal(table.array, other.array)


def test_flushed_memory_is_given_back_and_read_again_from_the_file(tmp_path: Path) -> None:
    with make(tmp_path / "t", "Adagrad", rows=100_000, width=64) as table:
        grad, indices, segments = batch(0, table.rows, table.width, 30_000)
        table.step_pooled(grad, indices, segments)
        expected = table.array.copy(), table.state["sum"].copy()
        before = limits.private_bytes()
        table.flush()
        after = limits.private_bytes()
        assert before is not None
        assert after is not None
        assert before - after > 0.7 * table.nbytes  # 30,000 rows hit nearly all pages
        assert all(part.changed().size == 0 for part in table._parts.values())
        assert np.array_equal(table.array, expected[0])
        assert np.array_equal(table.state["sum"], expected[1])
        with open(tmp_path / "t" / "rows.bin", "rb") as file:  # the mapping shows the file, not a copy
            assert np.array_equal(np.fromfile(file, np.float32, expected[0].size), expected[0].reshape(-1))


def test_the_files_change_by_flushes_only(tmp_path: Path) -> None:
    with make(tmp_path / "t", "Adagrad") as table:
        before = contents(tmp_path / "t")
        grad, indices, segments = batch(0, table.rows, table.width, 700)
        table.step_pooled(grad, indices, segments)
        table.array[7] = 3
        assert contents(tmp_path / "t") == before
        table.flush()
        after = contents(tmp_path / "t")
        assert after != before
        assert not (tmp_path / "t" / "journal.bin").exists()
        table.flush()  # nothing to do
        assert contents(tmp_path / "t") == after


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_others_write_to_the_array_is_kept(tmp_path: Path) -> None:
    with make(tmp_path / "t") as table:
        array = table.array
        array[[5, 2999]] = 7
        table.touch([5, 2999])
        table.end_step()
    with Table.open(tmp_path / "t") as table:
        assert table.steps == 1
        assert (table.array[[5, 2999]] == 7).all()
        assert (table.array[6] == np.float32(0.006)).all()


def is_cached(file: Path, offset: int) -> bool:
    """Whether the system has that page of a file in memory; looking does not change it."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
        pages, address = ctypes.create_string_buffer(1), ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address + offset), ctypes.c_size_t(1), pages) == 0
        return bool(pages.raw[0] & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what they have in memory")
def test_rows_are_read_ahead(tmp_path: Path) -> None:
    """The pages of the rows that were asked for, also of one that lies in two pages; not those between."""
    rows, width = 100_000, 60  # 240 bytes: row 51,217 lies in pages 3000 and 3001
    make(tmp_path / "t", rows=rows, width=width).close()
    file = tmp_path / "t" / "rows.bin"
    os.sync()
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    with Table.open(tmp_path / "t") as table:
        wanted, between = [3000 * 4096, 3001 * 4096, 80_000 * 240 // 4096 * 4096], 4000 * 4096
        if is_cached(file, between) or any(is_cached(file, place) for place in wanted):
            pytest.skip("the system does not drop what it has of a file")
        table.prefetch([80_000, 51_217])
        end = time.monotonic() + 60
        while not all(is_cached(file, place) for place in wanted) and time.monotonic() < end:
            time.sleep(0.01)
        assert [is_cached(file, place) for place in (*wanted, between)] == [True, True, True, False]
        assert (table.array[51_217] == np.float32(0.217)).all()
        assert table.steps == 0
        table.prefetch([])
        with pytest.raises(rowgrad.OutOfRangeError, match="the rows of the table"):
            table.prefetch([rows])


@pytest.mark.parametrize("width", [1, 3, 20, 1024, 1500])
def test_without_the_systems_book_marked_rows_are_kept(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowgrad.tables._mapping._PAGEMAP", str(tmp_path / "nothing"))
    with make(tmp_path / "t", "Adam", width=width) as table:
        assert all(part.needs_marks for part in table._parts.values())
        for step in range(4):
            grad, indices, segments = batch(step, table.rows, width, 50)
            table.step_pooled(grad, indices, segments)
            table.array[step] = 9
            table.touch(np.array([step]))
            if step == 1:
                table.flush()
                assert all(part.changed().size == 0 for part in table._parts.values())
        expected = {name: part.array.tobytes() for name, part in table._parts.items()}
    with Table.open(tmp_path / "t") as table:
        assert {name: part.array.tobytes() for name, part in table._parts.items()} == expected


def test_too_many_changes_are_flushed_after_a_whole_step(tmp_path: Path) -> None:
    make(tmp_path / "t", "Adagrad", rows=50_000, width=64).close()
    with Table.open(tmp_path / "t", max_dirty=8 << 20) as table:
        steps_on_disk = []
        for step in range(8):
            grad, indices, segments = batch(step, table.rows, table.width, 500)
            table.step_pooled(grad, indices, segments)
            with Table.open(tmp_path / "t", mode="r") as reader:
                steps_on_disk.append(reader.steps)
        # A step changes about 2 · 480 pages, so every third one passes 8 MB.
        assert steps_on_disk == sorted(steps_on_disk)
        assert len(set(steps_on_disk)) in (2, 3, 4)
        assert table.max_dirty == 8 << 20


def test_a_new_table_of_zeros_takes_no_room(tmp_path: Path) -> None:
    """Also one of more than 2**31 values, whose last row is as good as its first."""
    rows = 2**31 // 64 + 1000
    with Table.create(tmp_path / "t", rows, 64, optimizer=optim.SGD(lr=1.0)) as table:
        assert table.array.nbytes > 2**33
        table.step_pooled(np.ones((1, 64), np.float32), [rows - 1, 3], [0, 0], combiner="sum")
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "t").iterdir())
    assert used < 1 << 20
    with Table.open(tmp_path / "t", mode="r") as table:
        assert table.look_up([0, 3, rows - 2, rows - 1], [0, 1, 2, 3], "sum")[:, 0].tolist() == [0, -1, 0, -1]


def test_a_table_without_rows(tmp_path: Path) -> None:
    with Table.create(tmp_path / "t", 0, 5, optimizer=optim.Adagrad(lr=0.1)) as table:
        nothing = np.empty(0, np.int64)
        assert table.array.shape == (0, 5)
        assert table.look_up(nothing, nothing).shape == (0, 5)
        table.step_pooled(np.empty((0, 5), np.float32), nothing, nothing)
    with Table.open(tmp_path / "t") as table:
        assert table.steps == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", np.float32, ml_dtypes.bfloat16])
def test_first_values(tmp_path: Path, dtype: Any) -> None:
    def filled(initializer: Any) -> Array:
        with Table.create(tmp_path / "t", 40_000, 30, dtype, initializer=initializer, overwrite=True) as table:
            return table.array.astype(np.float64)

    assert not filled(0).any()
    assert (filled(-0.5) == -0.5).all()
    assert np.signbit(filled(-0.0)).all()
    uniform, normal = filled(("uniform", 0.5, 3)), filled(("normal", 0.5, 3))
    assert -0.5 <= uniform.min() < -0.49
    assert 0.49 < uniform.max() <= 0.5
    assert abs(uniform.mean()) < 0.01
    assert 0.49 < normal.std() < 0.51
    assert np.array_equal(uniform, filled(("uniform", 0.5, 3)))
    assert not np.array_equal(uniform, filled(("uniform", 0.5, 4)))


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    Table.create(tmp_path / "t", 40_000, 64, initializer=first_rows, progress=lambda *news: told.append(news)).close()
    assert len(told) > 2
    assert told[-1] == (40_000, 40_000)
    assert told == sorted(told)


def test_another_rate_may_be_set(tmp_path: Path) -> None:
    with make(tmp_path / "t", "Adagrad") as table:
        table.optimizer = optim.Adagrad(lr=0.01)
        with pytest.raises(rowgrad.InvalidArgumentError, match=r"needs no state, but the table has sum \[3000, 20\]"):
            table.optimizer = optim.SGD(lr=0.1)
    with Table.open(tmp_path / "t") as table:
        assert table.optimizer.as_dict() == optim.Adagrad(lr=0.01).as_dict()


def test_reads_go_on_while_it_flushes(tmp_path: Path) -> None:
    """Threads that look rows up see them as they are, whichever page is just written, dropped or read again."""
    with make(tmp_path / "t", rows=50_000, width=64) as table:
        _, indices, segments = batch(1, table.rows, table.width, 2000)
        wrong: list[int] = []
        over = threading.Event()
        expected = [table.look_up(indices, segments, "sum")]

        def read() -> None:
            while not over.is_set():
                wanted = expected[0]
                if not np.array_equal(table.look_up(indices, segments, "sum"), wanted):
                    wrong.append(1)

        for step in range(4):
            table.array[:] += 1
            expected[0] = table.look_up(indices, segments, "sum")
            reader = threading.Thread(target=read)
            over.clear()
            reader.start()
            table.flush()
            over.set()
            reader.join()
            assert not wrong, step


def test_memory_of_pytorch_can_be_shared(tmp_path: Path) -> None:
    from optional import framework

    torch = framework("torch")
    with make(tmp_path / "t") as table:
        tensor = torch.from_numpy(table.array)
        tensor[3] += 1
        assert table.array[3, 0] == np.float32(1.003)
        table.end_step()
    with Table.open(tmp_path / "t") as table:
        assert table.array[3, 0] == np.float32(1.003)


def test_relative_paths_survive_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make(Path("t")) as table:
        os.chdir("/")
        table.array[0] = 5
    with Table.open(tmp_path / "t") as table:
        assert table.array[0, 0] == 5


def test_state_that_begins_with_other_values(tmp_path: Path) -> None:
    """As when it was trained elsewhere: arrays row by row, and the number of steps."""

    def first(row: int, block: Array) -> None:
        block[:] = np.arange(row, row + len(block))[:, None]

    def steps(row: int, block: Array) -> None:
        block[:] = 7

    given = {"v": first, "step": steps}
    with Table.create(tmp_path / "t", 5, 2, optimizer=optim.Adam(lr=0.1), state_initializers=given) as table:
        assert table.state["v"].tolist() == [[row, row] for row in range(5)]
        assert not table.state["m"].any() and table.state["step"] == 7
    with pytest.raises(rowgrad.InvalidArgumentError, match=r"has 'sum'; the optimizer has m, v, step"):
        Table.create(tmp_path / "u", 5, 2, optimizer=optim.Adam(lr=0.1), state_initializers={"sum": first})
    with pytest.raises(rowgrad.InvalidArgumentError, match="returned a int"):
        Table.create(tmp_path / "u", 5, 2, optimizer=optim.Adam(lr=0.1), state_initializers={"m": lambda row, block: 1})
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
