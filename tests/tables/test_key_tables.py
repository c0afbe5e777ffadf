"""Keys get rows as a dict and a list of free rows would give them, in memory and beside a table on disk."""

import heapq
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowgrad
from optional import framework
from rowgrad import KeyTable, Table, optim


class Naive:
    """The same in plain Python, without admission."""

    def __init__(self, rows: int, reserved: int) -> None:
        self.free = list(range(reserved, rows))
        self.rows: dict[Any, int] = {}

    def add(self, keys: list[Any]) -> list[int]:
        for key in keys:
            if key not in self.rows and self.free:
                self.rows[key] = heapq.heappop(self.free)
        return [self.rows.get(key, -1) for key in keys]

    def remove(self, keys: list[Any]) -> list[int]:
        rows = sorted({self.rows.pop(key) for key in set(keys) if key in self.rows})
        for row in rows:
            heapq.heappush(self.free, row)
        return rows


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("reserved", [0, 3])
def test_it_does_what_a_dict_does(kind: str, reserved: int, threads: int) -> None:
    before = rowgrad.get_num_threads()
    rowgrad.set_num_threads(threads)
    try:
        rng = np.random.default_rng(5)
        table, naive = KeyTable(500, kind, reserved=reserved), Naive(500, reserved)
        for _ in range(30):
            numbers = rng.integers(-400, 400, 120).tolist()
            keys = numbers if kind == "int64" else [f"wort-ü{number}" for number in numbers]
            assert table.add(keys, missing=-1).tolist() == naive.add(keys)
            assert table.remove(keys[:30]).tolist() == naive.remove(keys[:30])
            assert table.look_up(keys, missing=-1).tolist() == [naive.rows.get(key, -1) for key in keys]
            assert len(table) == len(naive.rows)
        found, rows = table.items()
        assert dict(zip(found.tolist(), rows.tolist(), strict=True)) == naive.rows
        assert table.refused > 0
    finally:
        rowgrad.set_num_threads(before)


def test_extreme_keys_and_shapes() -> None:
    table = KeyTable(10)
    keys = np.array([[0, -1], [2**63 - 1, -(2**63)]])
    assert table.add(keys).tolist() == [[0, 1], [2, 3]]
    assert table.look_up(np.array([2**64 - 1], np.uint64)).tolist() == [1]
    assert table.look_up(keys.astype(np.int64)[:, ::-1]).tolist() == [[1, 0], [3, 2]]
    assert table.look_up([]).tolist() == [] and table.add(np.empty((0, 3), np.int32)).shape == (0, 3)
    assert 0 in table and 5 not in table
    texts = KeyTable(10, "string", max_bytes=4)
    assert texts.add(["", "a", "a\0", b"\xff"]).tolist() == [0, 1, 2, 3]
    assert texts.keys_of([3, 1, 2, 0]).tolist() == [b"\xff", "a", "a\0", ""]
    assert KeyTable(0).add([1]).tolist() == [-1]


def test_wrong_arguments_are_told() -> None:
    table, texts = KeyTable(10, reserved=1), KeyTable(10, "string", max_bytes=4)
    for call, code in (
        (lambda: table.add([1.5]), "wrong-dtype"),
        (lambda: table.add(["a"]), "wrong-dtype"),
        (lambda: table.add([True]), "wrong-dtype"),
        (lambda: texts.add([1]), "wrong-dtype"),
        (lambda: texts.add(["abcde"]), "key-too-long"),
        (lambda: table.keys_of([0]), "index-out-of-range"),
        (lambda: table.keys_of([10]), "index-out-of-range"),
        (lambda: table.evict(), "missing-argument"),
        (lambda: table.evict(keep=-1), "bad-size"),
        (lambda: KeyTable(-1), "bad-size"),
        (lambda: KeyTable(3, reserved=4), "bad-size"),
        (lambda: KeyTable(3, "float"), "bad-keys"),
        (lambda: KeyTable(3, admit_after=256), "bad-size"),
        (lambda: KeyTable.shard_of([1], 0), "bad-size"),
    ):
        with pytest.raises(rowgrad.RowgradError) as found:
            call()
        assert found.value.code == code
    assert len(texts) == 0
    assert texts.look_up(["abcde"]).tolist() == [-1]


def test_new_keys_wait_for_admission() -> None:
    table = KeyTable(100, reserved=1, admit_after=3)
    assert [table.add([7, 8]).tolist(), table.add([7]).tolist(), table.add([7, 8]).tolist()] == [[0, 0], [0], [1, 0]]
    assert table.add([8, 7]).tolist() == [2, 1]


def test_keys_are_evicted_by_age_and_count() -> None:
    table = KeyTable(10)
    for step in range(4):
        table.add([step, 0])
        table.tick()
    # Key 0 was seen last at 3; the others once each, at 1, 2 and 3.
    assert table.evict(older_than=2).tolist() == [1]
    assert table.evict(count_below=2).tolist() == [2, 3]
    assert table.add([5, 6]).tolist() == [1, 2]
    assert table.evict(keep=1).size == 2 and len(table) == 1 and 6 in table


def test_shards_are_the_documented_formula() -> None:
    def plain(key: int, ranks: int) -> int:
        value = key % 2**64
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            value = (value ^ value >> 33) * factor % 2**64
        return ((value ^ value >> 33) >> 32) * ranks >> 32

    keys = [*range(-50, 50), 2**63 - 1, -(2**63)]
    for ranks in (1, 2, 3, 7):
        assert KeyTable.shard_of(keys, ranks).tolist() == [plain(key, ranks) for key in keys]
    prints = rowgrad.features.fingerprint64(["a", "bc"]).tolist()
    assert KeyTable.shard_of(["a", "bc"], 5).tolist() == [plain(each, 5) for each in prints]


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_keys_of_a_table_are_flushed_with_it(tmp_path: Path, kind: str) -> None:
    names: list[Any] = [5, 6, 7] if kind == "int64" else ["e", "f", "g"]
    settings = {"kind": kind, "reserved": 1}
    with Table.create(tmp_path / "t", 50, 4, optimizer=optim.Adagrad(lr=0.1), keys=settings) as table:
        assert table.keys is not None
        assert table.keys.add(names[:2]).tolist() == [1, 2]
        table.array[[1, 2]] = 3
        table.state["sum"][1] = 8
        table.end_step()
        table.flush()
        assert table.keys.add(names).tolist() == [1, 2, 3]
        table.close(flush=False)
    with Table.open(tmp_path / "t") as table, Table.open(tmp_path / "t", mode="r") as reader:
        assert table.keys is not None and reader.keys is not None
        assert reader.keys.look_up(names).tolist() == [1, 2, 0]
        with pytest.raises(rowgrad.InvalidArgumentError, match="open for reading only"):
            reader.keys.add(names)
        assert table.keys.remove(names[:1], initializer=0.5).tolist() == [1]
        assert (table.array[1] == 0.5).all() and not table.state["sum"][1].any()
        assert table.keys.add(names[2:]).tolist() == [1]
        table.end_step()
        table.flush()
        assert reader.keys.look_up(names).tolist() == [1, 2, 0]
        reader.refresh()
        assert reader.keys.look_up(names).tolist() == [0, 2, 1]


def test_keys_in_front_of_layers() -> None:
    torch = framework("torch")
    from rowgrad.torch import EmbeddingBag

    keys, bag = KeyTable(20, reserved=1), EmbeddingBag(20, 3, combiner="sum")
    ids = torch.tensor([[10**12, -4], [-4, 9]])
    rows = keys.add(ids)
    assert isinstance(rows, torch.Tensor) and rows.tolist() == [[1, 2], [2, 3]]
    assert torch.equal(bag(rows), bag(torch.tensor([[1, 2], [2, 3]])))


def test_one_key_is_asked_for_at_a_time() -> None:
    for keys in ([], [1, 2], np.arange(3)):
        with pytest.raises(rowgrad.InvalidArgumentError, match="look_up"):
            keys in KeyTable(4)  # noqa: B015


def test_more_rows_than_fit_into_memory() -> None:
    with pytest.raises(rowgrad.OutOfMemoryError) as found:
        KeyTable(2**40)
    assert found.value.argument == "rows"
