"""A checkpoint that is damaged or cut off is refused by name, or read right: never a wrong value, never a crash."""

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from damage import damaged
from optional import framework
from rowgrad.errors import FileError, RowgradError
from rowgrad.tensorflow import _sstable as sstable
from rowgrad.tensorflow import load_checkpoint
from rowgrad.tensorflow._bundle import Bundle

FOLDER = Path(__file__).parents[1] / "data" / "checkpoints"
KINDS = ("keras_adagrad", "objects", "partitioned", "sharded")


def _values(prefix: Path) -> dict[str, bytes]:
    checkpoint = load_checkpoint(prefix, verify=True)
    return {name: repr(checkpoint[name].tolist()).encode() for name in checkpoint}


def _copied(kind: str, folder: Path) -> list[Path]:
    return [Path(shutil.copy(file, folder)) for file in sorted(FOLDER.glob(f"{kind}.*"))]


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage(kind: str, tmp_path: Path) -> None:
    random, refused, right = Random(kind), 0, _values(FOLDER / kind)
    for file in _copied(kind, tmp_path):
        data = file.read_bytes()
        for _ in range(400):
            file.unlink()  # a file that is mapped is not written to
            file.write_bytes(damaged(random, data))
            try:
                assert _values(tmp_path / kind) == right
            except FileError as error:
                refused += 1
                assert file.name in str(error)
                assert error.code in ("damaged-checkpoint", "no-such-file")
        file.unlink()
        file.write_bytes(data)
    assert refused > 500


def test_random_damage_of_keras_archives(tmp_path: Path) -> None:
    """Their HDF5 file is compared with the archive's checksum before h5py sees it."""
    framework("h5py")
    random, refused, path = Random(1), 0, tmp_path / "recommender.keras"
    data, right = (FOLDER / path.name).read_bytes(), _values(FOLDER / path.name)
    for _ in range(300):
        path.unlink(missing_ok=True)
        path.write_bytes(damaged(random, data))
        try:
            assert _values(path) == right
        except FileError as error:
            refused += 1
            assert path.name in str(error)
    assert refused > 200


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_and_every_bit(kind: str, tmp_path: Path) -> None:
    """At each byte of the index, and of the first bytes of the data, which all belong to tensors."""
    right = _values(FOLDER / kind)
    for file in _copied(kind, tmp_path):
        data = file.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 150)):
            for changed in (data[:at], data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]):
                file.unlink()
                file.write_bytes(changed)
                try:
                    assert _values(tmp_path / kind) == right
                    is_footer = file.suffix == ".index" and at >= len(data) - sstable.FOOTER - 40
                    assert is_footer  # places and padding that nothing is read from
                except FileError as error:
                    assert file.name in str(error)
        file.unlink()
        file.write_bytes(data)


def test_missing_data(tmp_path: Path) -> None:
    files = _copied("sharded", tmp_path)
    files[0].unlink()
    checkpoint = load_checkpoint(tmp_path / "sharded")  # the index is whole
    assert checkpoint["plain"].tolist() == [1, 2]
    assert checkpoint.rows("grid", 2, 4).tolist() == [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]  # from the other file
    with pytest.raises(FileError, match=r"sharded.data-00000-of-00002"):
        checkpoint["grid"]


def test_a_tensor_is_checked_when_it_is_first_used(tmp_path: Path) -> None:
    data = next(file for file in _copied("sharded", tmp_path) if "data-00001" in file.name)
    changed = bytearray(data.read_bytes())
    changed[-1] ^= 1
    data.unlink()
    data.write_bytes(changed)
    checkpoint = load_checkpoint(tmp_path / "sharded")
    with pytest.raises(FileError, match="its checksum is wrong") as caught:
        [checkpoint[name] for name in checkpoint]
    assert data.name in str(caught.value)
    with pytest.raises(FileError, match="checksum"):
        load_checkpoint(tmp_path / "sharded", verify=True)


def _index(entries: dict[bytes, bytes]) -> bytes:
    """An index as TensorFlow writes it, with right checksums, of entries that need not make sense."""
    from rowgrad._runtime.checksums import crc32c, masked

    def number(value: int) -> bytes:
        found = b""
        while value > 127:
            found, value = found + bytes([value & 127 | 128]), value >> 7
        return found + bytes([value])

    def block(pairs: dict[bytes, bytes]) -> bytes:
        body = b"".join(b"\0" + number(len(k)) + number(len(v)) + k + v for k, v in pairs.items())
        body += b"\0\0\0\0\1\0\0\0\0"
        return body + masked(crc32c(body)).to_bytes(4, "little")

    content = block(entries)
    places = block({b"\xff": number(0) + number(len(content) - 5)})
    footer = number(0) + number(0) + number(len(content)) + number(len(places) - 5)
    return content + places + footer.ljust(40, b"\0") + sstable.MAGIC.to_bytes(8, "little")


HEADER = b"\x08\x01\x1a\x02\x08\x01"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (b"\x08\x01\x12\x04\x12\x02\x08\x02\x28\x04", "do not fit its shape"),  # two floats in four bytes
        (b"\x08\x01\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x28\x04", "unknown shape"),
        (b"\x08\x01\x12\x02\x18\x01\x28\x04", "unknown shape"),
        (b"\x08\x01\x18\x05\x28\x04", "data file 5"),
        (b"\x08\x01\x20\x90\x4e\x28\x04", "truncated"),
        (b"\x08\x01\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x28\x04", "negative offset"),
        (b"\x08\x15\x28\x04", "only TensorFlow can read"),
        (b"\x08\x63\x28\x04", "only TensorFlow can read"),
        (b"\x08\x07\x12\x08\x12\x06\x08\xff\xff\xff\xff\x7f\x28\x04", "too short for so many strings"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x01\x3a\x00", "0 dimensions"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x01\x3a\x02\x0a\x00", "missing, or not inside"),
        (b"\x08\x01\x3a\x00", "0 dimensions"),
        (b"\x28", "truncated"),
    ],
)  # fmt: skip
def test_indexes_that_make_no_sense(entry: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(_index({b"": HEADER, b"v": entry}))
    (tmp_path / "x.data-00000-of-00001").write_bytes(b"\0\0\0\0")
    with pytest.raises(FileError, match=text):
        load_checkpoint(tmp_path / "x")["v"]


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({}, "no header"),
        ({b"v": b"\x08\x01"}, "no header"),
        ({b"": b"\x08\x01\x10\x01"}, "big-endian"),
        ({b"": b"\x08\x01\x1a\x02\x10\x63"}, "newer TensorFlow"),
        ({b"": HEADER, b"v": b"", b"a": b""}, "not in order"),
        ({b"": HEADER, b"\xff": b""}, "not UTF-8"),
    ],
)
def test_headers_that_make_no_sense(entries: dict[bytes, bytes], text: str, tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(_index(entries))
    with pytest.raises(FileError, match=text):
        load_checkpoint(tmp_path / "x")


def _slices(*extents: tuple[int, int]) -> dict[bytes, bytes]:
    """A vector of four floats in slices, all of the same bytes."""
    proto = b"".join(
        b"\x3a" + bytes([len(body) + 2]) + b"\x0a" + bytes([len(body)]) + body
        for start, length in extents
        for body in [b"\x08" + bytes([start]) + b"\x10" + bytes([length])]
    )
    found = {b"v": b"\x08\x01\x12\x04\x12\x02\x08\x04" + proto}
    for start, length in extents:
        key = sstable.slice_key("v", ((start, length),))
        found[key] = b"\x08\x01\x12\x04\x12\x02\x08" + bytes([length]) + b"\x28" + bytes([4 * length])
    return {b"": HEADER, **dict(sorted(found.items()))}


@pytest.mark.parametrize("extents", [((0, 2), (1, 2)), ((0, 2),), ((0, 3), (2, 2)), ((0, 2), (3, 2)), ((0, 4), (0, 4))])
def test_slices_that_are_not_the_whole(extents: tuple[tuple[int, int], ...], tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(_index(_slices(*extents)))
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(16))
    with pytest.raises(FileError, match=r"overlap|not inside"):
        load_checkpoint(tmp_path / "x")["v"]


def test_an_index_can_be_written_by_hand(tmp_path: Path) -> None:
    """What the tests above are made with is right but for what they damage."""
    from rowgrad._runtime.checksums import crc32c, masked

    data = np.arange(2, dtype=np.float32).tobytes()
    entry = b"\x08\x01\x12\x04\x12\x02\x08\x02\x28\x08\x35" + masked(crc32c(data)).to_bytes(4, "little")
    (tmp_path / "x.index").write_bytes(_index({b"": HEADER, b"v": entry}))
    (tmp_path / "x.data-00000-of-00001").write_bytes(data)
    assert Bundle(tmp_path / "x").array("v").tolist() == [0, 1]


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00002", ".data-00001-of-00002"])
def test_pipes_keep_nobody_waiting(ending: str, tmp_path: Path) -> None:
    _copied("sharded", tmp_path)
    file = tmp_path / f"sharded{ending}"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FileError):
        _values(tmp_path / "sharded")


@pytest.mark.parametrize("path", [None, 3, b"x", [], "x" * 5000, "a\0b"], ids=str)
def test_paths_that_cannot_be(path: Any) -> None:
    with pytest.raises(RowgradError):
        load_checkpoint(path)


def test_a_file_of_names_without_an_end(tmp_path: Path) -> None:
    with open(tmp_path / "checkpoint", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="does not name the latest checkpoint"):
        load_checkpoint(tmp_path)
