"""Columns of Parquet files."""

import importlib.util

import numpy as np
import pytest

from optional import framework
from rowgrad._runtime.files.parquet import read_column
from rowgrad.errors import FileError

pyarrow = framework("pyarrow")
parquet = framework("pyarrow.parquet")


def save(path, **columns):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def refusal(*args):
    with pytest.raises(FileError) as caught:
        read_column(*args)
    return caught.value


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64", "float16", "float32", "float64", "bool"])
def test_numbers_keep_their_type(tmp_path, dtype):
    path = save(tmp_path / "x.parquet", a=np.array([1, 0, 1, 1, 0], dtype), b=np.zeros(5))
    column = read_column(path, "a")
    assert column.dtype == dtype
    assert column.tolist() == [1, 0, 1, 1, 0]


def test_text(tmp_path):
    path = save(tmp_path / "x.parquet", a=["x", "yz"], b=[b"x", b"yz"], c=pyarrow.array(["u", "u"]).dictionary_encode())
    assert read_column(path, "a").tolist() == ["x", "yz"]
    assert read_column(path, "b").tolist() == [b"x", b"yz"]
    assert read_column(path, "c").tolist() == ["u", "u"]


@pytest.mark.parametrize("type_", [pyarrow.list_(pyarrow.float32()), pyarrow.large_list(pyarrow.float32()),
                                   pyarrow.list_(pyarrow.float32(), 2)])  # fmt: skip
def test_lists_become_rows(tmp_path, type_):
    path = save(tmp_path / "x.parquet", a=pyarrow.array([[1, 2], [3, 4], [5, 6]], type_))
    column = read_column(path, None)
    assert column.dtype == np.float32
    assert column.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_lists_of_lists(tmp_path):
    value = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert read_column(save(tmp_path / "x.parquet", a=value), "a").tolist() == value


def test_nothing_in_it(tmp_path):
    assert read_column(save(tmp_path / "x.parquet", a=pyarrow.array([], pyarrow.int32())), "a").shape == (0,)
    assert read_column(
        save(tmp_path / "y.parquet", a=pyarrow.array([], pyarrow.list_(pyarrow.int32()))), "a"
    ).shape == (0, 0)


def test_nulls_are_refused_by_position(tmp_path):
    problem = refusal(save(tmp_path / "x.parquet", a=[1, 2, None, 4, None]), "a")
    assert "x.parquet:a[2] is null (as are 1 more)" in problem.message
    assert "[1, 0] is null" in refusal(save(tmp_path / "y.parquet", a=[[1, 2], [None, 4]]), "a").message
    assert "[1] is null" in refusal(save(tmp_path / "z.parquet", a=[[1, 2], None]), "a").message


def test_lists_of_unequal_length(tmp_path):
    assert (
        "a[1] is a list of 1, and the first one is of 2"
        in refusal(save(tmp_path / "x.parquet", a=[[1, 2], [3]]), "a").message
    )


def test_types_that_are_no_numbers(tmp_path):
    path = save(tmp_path / "x.parquet", a=pyarrow.array([0], pyarrow.timestamp("s")))
    assert "column of timestamp" in refusal(path, "a").message


def test_choosing_a_column(tmp_path):
    path = save(tmp_path / "x.parquet", a=[1], b=[2])
    assert "has no column 'c'; it has a, b." in refusal(path, "c").message
    assert "name one" in refusal(path, None).hint


def test_a_damaged_file(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nonsense")
    assert "cannot be read as Parquet" in refusal(tmp_path / "x.parquet", "a").message


def test_without_pyarrow(tmp_path, monkeypatch):
    path = save(tmp_path / "x.parquet", a=[1])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    problem = refusal(path, "a")
    assert "needs pyarrow" in problem.message
    assert problem.hint == "pip install 'rowgrad[parquet]'"
