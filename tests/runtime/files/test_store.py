"""Files in and out: never a pickle, never half a file."""

import os
import stat
import zipfile

import ml_dtypes
import numpy as np
import pytest

from rowgrad._runtime import files
from rowgrad._runtime.dtypes import NUMPY
from rowgrad._runtime.files import store
from rowgrad.errors import FileError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def refusal(function, *args, **kwargs):
    with pytest.raises(FileError) as caught:
        function(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_every_type_comes_back_from_npz(tmp_path, name, shape):
    base = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    array = base.astype(NUMPY[name][0]).view(NUMPY[name]) if NUMPY[name].names else base.astype(NUMPY[name])
    path = tmp_path / "x.npz"
    files.write(path, {"output": array, "other": np.zeros(1)})
    back = files.read(path, "output")
    assert (back.dtype, back.shape) == (array.dtype, shape)
    assert back.tobytes() == array.tobytes()


def test_bfloat16_is_readable_without_rowgrad(tmp_path):
    files.write(tmp_path / "x.npz", {"output": np.array([1.5], BFLOAT16)})
    with np.load(tmp_path / "x.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["output", "output.dtype"]
        assert str(archive["output.dtype"]) == "bfloat16"
        assert archive["output"].view(BFLOAT16).tolist() == [1.5]
    assert files.read(tmp_path / "x.npz", None).dtype == BFLOAT16


def test_bfloat16_in_npy_keeps_its_bytes(tmp_path):
    files.write(tmp_path / "x.npy", {"output": np.array([1.5], BFLOAT16)})
    assert np.load(tmp_path / "x.npy").view(BFLOAT16).tolist() == [1.5]


@pytest.mark.parametrize("values", [["a", "bcd"], [b"a", b"bcd"]])
@pytest.mark.parametrize("dtype", [None, object])
def test_text_is_stored_without_a_pickle(tmp_path, values, dtype):
    files.write(tmp_path / "x.npy", {"output": np.array(values, dtype)})
    assert np.load(tmp_path / "x.npy", allow_pickle=False).tolist() == values


@pytest.mark.parametrize("values", [["a", b"b"], ["a\0"]])
def test_text_that_a_file_cannot_hold(tmp_path, values):
    assert "output" in refusal(files.write, tmp_path / "x.npy", {"output": np.array(values, object)}).message
    assert os.listdir(tmp_path) == []


def test_pickles_are_refused_and_not_run(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    np.save(tmp_path / "x.npy", np.array([Evil()], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", a=np.array([Evil()], object))
    for name, part in (("x.npy", None), ("x.npz", None), ("x.npz", "a")):
        problem = refusal(files.read, tmp_path / name, part)
        assert "pickled" in problem.message
        assert problem.code == "bad-file"
    assert not marker.exists()


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x93NUMPY\x01\x00\x10\x00{'descr': 'f8'}", b"PK\x03\x04"])
def test_damaged_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert f"{name} is not a whole" in refusal(files.read, tmp_path / name, None).message


def test_a_cut_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(100))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-8])
    assert "not a whole" in refusal(files.read, tmp_path / "x.npy", None).message


def test_a_damaged_member(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(1000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[600] ^= 255
    (tmp_path / "x.npz").write_bytes(content)
    assert "CRC" in refusal(files.read, tmp_path / "x.npz", None).message


def test_members(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.array([1]), b=np.array([2]))
    assert files.read(path, "b").tolist() == [2]
    assert "has no member 'c'; it has a, b." in refusal(files.read, path, "c").message
    problem = refusal(files.read, path, None)
    assert "it has a, b." in problem.message
    assert problem.hint == f"name one: {path}:a"
    np.savez(path, a=np.array([1]))
    assert files.read(path, None).tolist() == [1]
    np.savez(path)
    assert "it has none" in refusal(files.read, path, None).message


def test_a_note_that_is_not_ours(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{"a": np.zeros(1), "a.dtype": np.array("bfloat16")})
    assert "float64 and called bfloat16" in refusal(files.read, path, None).message
    np.savez(path, **{"b.dtype": np.array([3])})
    assert files.read(path, None).tolist() == [3]


def test_other_things_in_the_archive_are_not_members(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.array([1]))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        archive.writestr("README", "hello")
    assert files.read(tmp_path / "x.npz", None).tolist() == [1]


def test_missing_file_and_folder(tmp_path):
    assert "no such file" in refusal(files.read, tmp_path / "x.npy", None).message
    (tmp_path / "y.npy").mkdir()
    assert "folder" in refusal(files.read, tmp_path / "y.npy", None).message


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    path.write_bytes(b"precious")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write_array", fail)
    with pytest.raises(OSError, match="No space"):
        files.write(path, {"output": np.zeros(3)})
    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["x.npz"]


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    files.write(tmp_path / "x.npy", {"output": np.zeros(3)})
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "x.npy").stat().st_mode) == usual
    os.chmod(tmp_path / "x.npy", 0o600)
    files.write(tmp_path / "x.npy", {"output": np.zeros(3)})
    assert stat.S_IMODE((tmp_path / "x.npy").stat().st_mode) == 0o600


def test_an_archive_that_unpacks_to_more_than_there_is_memory(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10_000_000))
    assert files.read(tmp_path / "x.npz", "a").shape == (10_000_000,)
    monkeypatch.setattr("rowgrad._runtime.memory._available_after_clearing", lambda nbytes: 2**20)
    assert "larger than the free memory" in refusal(files.read, tmp_path / "x.npz", "a").message
