"""Files that were damaged at random are read or refused: nothing but rowgrad's own errors comes out."""

import io
from pathlib import Path
from random import Random

import numpy as np
import pytest

from damage import damaged
from optional import framework
from rowgrad._runtime import files
from rowgrad._runtime.dtypes import BFLOAT16
from rowgrad._runtime.files import folder
from rowgrad.errors import FileError, RowgradError

TIMES = 200
ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "texts": np.array(["ab", "cdé"]),
    "bytes": np.array([b"ab", b"cde"]),
    "fields": np.zeros(3, [("x", "i4"), ("y", "f4")]),
    "days": np.array(["2020-01-01"], "M8[D]"),
}


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(tmp_path: Path) -> bytes:
    arrays = {"a": np.arange(4), "b": np.zeros(2, BFLOAT16), "t": np.array(["x", "yy"], object)}
    files.write(tmp_path / "whole.npz", arrays)
    return (tmp_path / "whole.npz").read_bytes()


def packed_npz(tmp_path: Path) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(100))
    return file.getvalue()


def parquet(tmp_path: Path) -> bytes:
    pyarrow, writer = framework("pyarrow"), framework("pyarrow.parquet")
    file = io.BytesIO()
    writer.write_table(pyarrow.table({"a": [[1.0, 2.0], [3.0, 4.0]], "b": ["x", "é"], "t": [b"x", b"y"]}), file)
    return file.getvalue()


WHOLE = {
    **{f"{name}.npy": lambda tmp_path, array=array: npy(array) for name, array in ARRAYS.items()},
    "members.npz": npz,
    "packed.npz": packed_npz,
    "numbers.csv": lambda tmp_path: b"a,b\n1,2.5\n3,4\n",
    "words.csv": lambda tmp_path: 'a,"b"\n1,"x y"\n3,ü\n'.encode(),
    "table.parquet": parquet,
}


@pytest.mark.parametrize("name", WHOLE)
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    random, whole = Random(name), WHOLE[name](tmp_path)
    for _ in range(TIMES):
        (tmp_path / name).write_bytes(damaged(random, whole))
        part, dtype = random.choice((None, "a", "b", "t")), random.choice((None, "float32", "bfloat16"))
        try:
            folder.read(tmp_path, name, part, dtype)
        except RowgradError as error:
            str(error).encode()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",  # what is open is never closed
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n  1\n 2",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 3000 + ")" * 3000 + "}",
        "{'descr': [('x',)], 'fortran_order': False, 'shape': (2,)}",
        "\0",
    ],
)
def test_headers_that_are_no_python(tmp_path: Path, header: str) -> None:
    text = header.encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(8))
    with pytest.raises(FileError, match="not a whole"):
        files.read(tmp_path / "x.npy", None)


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_must_be_characters(tmp_path: Path, code: int, order: str) -> None:
    array = np.array([["ab", "cd"], ["ef", "gh"]], f"{order}U2")
    array.view(f"{order}u4")[1, 1] = code
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(FileError, match=r"x\.npy\[1, 0\], character 1: \\u\w+ is .*UTF-8") as info:
        files.read(tmp_path / "x.npy", None)
    assert info.value.code == "bad-text"
