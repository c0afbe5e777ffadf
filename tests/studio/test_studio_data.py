"""Data files over HTTP: which there are, what is in them, files that are dropped; all of it in the folder."""

import base64
from urllib.parse import urlencode

import numpy as np
import pytest


def _send(client, document, name, content):
    body = {"name": name, "data": base64.b64encode(content).decode()}
    return client.request("POST", f"/api/documents/{document}/data", body)


def _preview(client, document, path):
    return client.request("GET", f"/api/documents/{document}/data/preview?{urlencode({'path': path})}")


def test_files_and_their_columns(client, folder):
    (folder / "words.csv").write_text("text,ids,label\nhello there,1 2 3,0\nbye,4,1\n")
    (folder / "plain.csv").write_text("1,2.5\n3,4\n")
    (folder / "deep").mkdir()
    np.savez(folder / "deep" / "two.npz", left=np.arange(6).reshape(3, 2), right=np.ones(3))
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "secret.csv").write_text("a\n1\n")
    document = client.open(new=True)
    found = client.get(f"/api/documents/{document}/data").json["files"]
    assert [entry["path"] for entry in found] == ["plain.csv", "words.csv", "deep/two.npz"]
    columns = {column["name"]: column for column in _preview(client, document, "words.csv").json["columns"]}
    assert columns["text"]["kind"] == "text" and not columns["text"]["ragged"]
    assert columns["ids"]["ragged"] and columns["ids"]["sample"] == ["1 2 3", "4"]
    assert columns["label"]["kind"] == "whole numbers"
    plain = _preview(client, document, "plain.csv").json["columns"]
    assert [(column["name"], column["kind"]) for column in plain] == [("0", "whole numbers"), ("1", "numbers")]
    arrays = _preview(client, document, "deep/two.npz").json["columns"]
    assert [column["kind"] for column in arrays] == ["int64 [3, 2]", "float64 [3]"]


def test_tables_of_arrow(client, folder):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather as feather
    import pyarrow.parquet as parquet

    table = pa.table({"ids": [[1, 2], [3]], "label": [0.0, 1.0]})
    parquet.write_table(table, folder / "table.parquet")
    feather.write_feather(table, folder / "table.arrow")
    document = client.open(new=True)
    for name in ("table.parquet", "table.arrow"):
        columns = _preview(client, document, name).json["columns"]
        assert [(column["name"], column["ragged"]) for column in columns] == [("ids", True), ("label", False)]
        assert columns[0]["sample"] == ["[1, 2]", "[3]"]


def test_a_dropped_file_overwrites_nothing(client, folder):
    document = client.open(new=True)
    assert _send(client, document, "a.csv", b"x\n1\n").json == {"path": "a.csv"}
    assert _send(client, document, "a.csv", b"x\n1\n").json == {"path": "a.csv"}  # the same once more
    assert _send(client, document, "a.csv", b"x\n2\n").json == {"path": "a_1.csv"}
    assert (folder / "a.csv").read_bytes() == b"x\n1\n" and (folder / "a_1.csv").read_bytes() == b"x\n2\n"


@pytest.mark.parametrize("name", ["../a.csv", "/etc/a.csv", "..\\a.csv", "deep/../../a.csv"])
def test_a_dropped_file_stays_in_the_folder(client, folder, name):
    document = client.open(new=True)
    answer = _send(client, document, name, b"x\n1\n")
    assert answer.status == 200 and answer.json == {"path": "a.csv"}
    assert (folder / "a.csv").is_file() and not (folder.parent / "a.csv").exists()


@pytest.mark.parametrize("name", ["a.exe", "a", ".csv", ".hidden.csv", "a.page.json", ""])
def test_other_files_are_refused(client, folder, name):
    before = sorted(path.name for path in folder.iterdir())
    answer = _send(client, client.open(new=True), name, b"x")
    assert answer.status in (400, 403)
    assert sorted(path.name for path in folder.iterdir() if path.name != ".rowgrad") == before


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.csv", b""), ("bad.csv", b"\xff\xfe\x00"), ("bad.npz", b"PK\x03\x04junk"), ("bad.npy", b"\x93NUMPY"),
     ("bad.parquet", b"PAR1"), ("bad.arrow", b"ARROW1")],
)  # fmt: skip
def test_damaged_files_are_told(client, folder, name, content):
    (folder / name).write_bytes(content)
    answer = _preview(client, client.open(new=True), name)
    assert answer.status == 400 and name in answer.json["error"]["message"]
    assert "bug in the studio" not in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["../x.csv", "/etc/passwd", "none.csv", "mean.page.json"])
def test_previews_stay_in_the_folder(client, folder, path):
    assert _preview(client, client.open(new=True), path).status in (400, 403, 404)
