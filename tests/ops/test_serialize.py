"""Sparse tensors as text and in maps, without TensorFlow: recorded bytes, round trips, damage, several threads."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rowgrad
from rowgrad import raw_ops
from rowgrad._ops.tensor_protos import BadProtoError, decode, encode
from rowgrad._runtime.dtypes import NUMPY, PLAIN, QUANTISED
from rowgrad.blocks import Page, Session

INDICES, SHAPE = np.array([[0, 1], [2, 0]]), np.array([3, 2])


def values(dtype: str) -> Any:
    if dtype == "string":
        return np.array([b"a\0", b"\xff"], object)
    kind = NUMPY[dtype]
    return np.array([5, 7], kind[0]).view(kind) if kind.names else np.array([5, 7]).astype(kind)


def test_the_bytes_are_tensorflows() -> None:
    """Recorded from TensorFlow 2.21."""
    text = raw_ops.SerializeSparse([[1]], np.float32([5]), [2])
    assert text.tolist() == [
        b'\x08\t\x12\x08\x12\x02\x08\x01\x12\x02\x08\x01"\x08\x01\0\0\0\0\0\0\0',
        b'\x08\x01\x12\x04\x12\x02\x08\x01"\x04\x00\x00\xa0@',
        b'\x08\t\x12\x04\x12\x02\x08\x01"\x08\x02\0\0\0\0\0\0\0',
    ]
    rows = raw_ops.SerializeManySparse(INDICES, np.float32([5, 7]), SHAPE)
    assert rows.shape == (3, 3)
    assert rows[1, 0] == b"\x08\t\x12\x06\x12\x00\x12\x02\x08\x01"
    assert rows[1, 1] == b"\x08\x01\x12\x02\x12\x00"


@pytest.mark.parametrize("dtype", [*PLAIN, *QUANTISED])
def test_what_is_written_is_read_again(dtype: str) -> None:
    given = (INDICES, values(dtype), SHAPE)
    whole = raw_ops.DeserializeSparse(raw_ops.SerializeSparse(*given), dtype=dtype)
    rows = raw_ops.DeserializeManySparse(raw_ops.SerializeManySparse(*given), dtype=dtype)
    handles = raw_ops.AddManySparseToTensorsMap(*given, shared_name=dtype)
    taken = raw_ops.TakeManySparseFromTensorsMap(handles, dtype=dtype, shared_name=dtype)
    for found in (whole, rows, taken):
        assert found.sparse_indices.tolist() == INDICES.tolist()
        assert found.sparse_values.tolist() == values(dtype).tolist()
        assert found.sparse_values.dtype == values(dtype).dtype
        assert found.sparse_shape.tolist() == SHAPE.tolist()


def test_very_many_rows() -> None:
    rows = 400_000
    indices = np.stack([np.arange(rows), np.zeros(rows, np.int64)], axis=1)
    text = raw_ops.SerializeManySparse(indices, np.arange(rows), [rows, 1])
    found = raw_ops.DeserializeManySparse(text[-3:], dtype="int64")
    assert found.sparse_values.tolist() == [rows - 3, rows - 2, rows - 1]
    texts = b"\x08\x07\x12\x06\x12\x04\x08" + b"\x80\x80\x40"  # 2**20 strings, none of them written
    assert decode(texts).tolist() == [b""] * 2**20


def test_texts_in_lists_keep_zeros_at_their_ends() -> None:
    """NumPy cuts them off where texts have one width."""
    texts = raw_ops.SerializeSparse([[1]], [5], [2]).tolist()
    assert raw_ops.DeserializeSparse(texts, dtype="int32").sparse_indices.tolist() == [[1]]


def test_texts_of_other_libraries_and_damaged_ones() -> None:
    for array in (np.zeros((2, 0), np.int64), np.array(3.0), np.array([b"x", b""], object)):
        assert decode(encode(array)).tolist() == array.tolist()
        assert decode(encode(array)).shape == array.shape
    good = encode(np.arange(3))
    for length in range(1, len(good)):
        try:
            found = decode(good[:length])
        except BadProtoError:
            continue
        assert found.size == 0 or not found.any()  # nothing but a whole header, whose elements are 0
    assert decode(b"\x08\x03\x12\x06\x12\x04\x08\x80\x80\x01").shape == (16384,)
    with pytest.raises(BadProtoError):
        decode(b"\x08\x03\x12\x0a\x12\x02\x08\x05\x12\x04\x08\xff\xff\xff")
    huge = b"\x08\x03\x12\x0b\x12\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
    with pytest.raises(rowgrad.OutOfMemoryError):
        decode(huge)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: raw_ops.SerializeSparse([1], [5], [2]), "sparse_indices"),
        (lambda: raw_ops.SerializeManySparse([[1]], [5], [2]), "sparse_shape"),
        (lambda: raw_ops.SerializeManySparse(INDICES[::-1], [5, 7], SHAPE), "sparse_indices"),
        (lambda: raw_ops.SerializeManySparse([[0, 9]], [5], [1, 2]), "sparse_indices"),
        (lambda: raw_ops.SerializeManySparse(np.zeros((0, 2), np.int64), [], [2**60, 2]), "sparse_shape"),
        (lambda: raw_ops.SerializeSparse([[1]], [5], [2], out_type="variant"), "out_type"),
        (lambda: raw_ops.DeserializeSparse([b"", b""], dtype="int8"), "serialized_sparse"),
        (lambda: raw_ops.DeserializeSparse(np.empty((0, 3), object), dtype="int8"), "serialized_sparse"),
        (lambda: raw_ops.DeserializeSparse([b"", b"", b""], dtype="int8"), "serialized_sparse"),
        (lambda: raw_ops.TakeManySparseFromTensorsMap([0], dtype="int8", shared_name="none"), "sparse_handles"),
        (lambda: raw_ops.TakeManySparseFromTensorsMap([], dtype="int8"), "sparse_handles"),
        (lambda: raw_ops.AddSparseToTensorsMap([[0]], [1], [-1]), "sparse_shape"),
    ],
)
def test_errors_name_the_argument(call: Any, argument: str) -> None:
    with pytest.raises(rowgrad.RowgradError) as caught:
        call()
    assert caught.value.argument == argument


def test_what_cannot_be_taken_stays() -> None:
    handle = int(raw_ops.AddSparseToTensorsMap([[1]], [5], [2], shared_name="stays"))
    for handles, dtype in (([handle, 99], "int32"), ([handle, handle], "int32"), ([handle], "int64")):
        with pytest.raises(rowgrad.RowgradError):
            raw_ops.TakeManySparseFromTensorsMap(handles, dtype=dtype, shared_name="stays")
    found = raw_ops.TakeManySparseFromTensorsMap([handle], dtype="int32", shared_name="stays")
    assert found.sparse_indices.tolist() == [[0, 1]]
    with pytest.raises(rowgrad.InvalidArgumentError, match="can be taken once"):
        raw_ops.TakeManySparseFromTensorsMap([handle], dtype="int32", shared_name="stays")


def test_threads_share_a_map() -> None:
    def turn(number: int) -> int:
        handle = raw_ops.AddSparseToTensorsMap([[number]], [number], [1000], shared_name="threads")
        found = raw_ops.TakeManySparseFromTensorsMap(handle.reshape(1), dtype="int32", shared_name="threads")
        return int(found.sparse_values[0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(turn, range(400))) == list(range(400))


def test_maps_on_a_page() -> None:
    page = Page()
    page.add("AddManySparseToTensorsMap", id="kept", sparse_indices=INDICES.tolist(), sparse_values=[5.0, 7.0],
             sparse_shape=[3, 2])  # fmt: skip
    page.add("TakeManySparseFromTensorsMap", id="back", sparse_handles="kept:sparse_handles",
             dtype="float32", shared_name="kept")  # fmt: skip
    for session in (Session(page), Session(page)):
        for _ in range(2):
            results = session.run()
            assert results["back"].sparse_indices.tolist() == INDICES.tolist()
            assert results["back"].sparse_values.tolist() == [5.0, 7.0]
