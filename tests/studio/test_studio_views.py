"""What the page is told: the catalogue, values, origins, downloads, and that all of it is as protocol.ts says."""

import base64
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rowgrad._runtime.dtypes import BFLOAT16
from rowgrad.blocks import Page, Session, looks
from rowgrad.blocks.operators import BLOCKS, FAMILIES
from rowgrad_studio.catalogue import catalogue
from rowgrad_studio.commands import VERBS
from rowgrad_studio.values import value_view

STUDIO = Path(__file__).parents[2] / "studio"


def test_the_catalogue_is_complete():
    found = json.loads(json.dumps(catalogue(), allow_nan=False))
    assert [operator["name"] for operator in found["operators"]] == list(BLOCKS)
    assert [family["name"] for family in found["families"]] == list(FAMILIES)
    assert {operator["family"] for operator in found["operators"]} <= set(FAMILIES)
    assert set(found["looks"]) == {"", *found["dtypes"]} == {"", *looks.PINS}
    for operator in found["operators"]:
        declared = BLOCKS[operator["name"]]
        assert [pin["name"] for pin in operator["inputs"]] == [pin.name for pin in declared.inputs]
        assert all(pin["dtypes"] and set(pin["dtypes"]) <= set(found["dtypes"]) for pin in operator["inputs"])
        assert set(operator["gradient"]) <= {pin["name"] for pin in operator["inputs"]}
        assert set(operator["example"]["inputs"]) == {pin["name"] for pin in operator["inputs"]}


# protocol.ts


def interfaces() -> dict[str, dict[str, str]]:
    """The interfaces of protocol.ts: name → field → type; optional fields end in a question mark."""
    text = re.sub(r"//.*", "", (STUDIO / "web" / "src" / "protocol.ts").read_text())
    found = {}
    for match in re.finditer(r"interface (\w+) \{", text):
        depth, place = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        body, fields, depth, start = text[match.end() : place - 1], {}, 0, 0
        for at, sign in enumerate(body):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            if sign == ";" and not depth:
                name, _, kind = body[start:at].strip().partition(":")
                fields[name.strip()] = kind.strip()
                start = at + 1
        found[match[1]] = fields
    return found


TYPES = interfaces()


def check(value, kind, where):
    """`value` must be of the TypeScript type `kind`, as far as names, objects, lists and plain types go."""
    kind = kind.strip()
    options = split(kind, "|")
    if len(options) > 1:
        return any(fits(value, option, where) for option in options) or pytest.fail(f"{where}: {value!r} is no {kind}")
    assert fits(value, kind, where), f"{where}: {value!r} is no {kind}"
    return True


def fits(value, kind, where):
    kind = kind.strip()
    if kind in TYPES:
        if not isinstance(value, dict):
            return False
        return check_fields(value, TYPES[kind], f"{where} ({kind})")
    if kind.endswith("[]"):
        inner = kind[:-2]
        inner = inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner
        return isinstance(value, list) and all(check(item, inner, where) for item in value)
    if kind.startswith("["):
        parts = split(kind[1:-1], ",")
        return isinstance(value, list) and len(value) == len(parts)
    if kind.startswith("Record<"):
        inner = kind[len("Record<string,") : -1]
        return isinstance(value, dict) and all(check(item, inner, f"{where}.{key}") for key, item in value.items())
    if kind.startswith("{"):
        fields = dict(part.strip().split(":", 1) for part in kind[1:-1].split(";") if part.strip())
        return isinstance(value, dict) and check_fields(value, {k.strip(): v for k, v in fields.items()}, where)
    if kind.startswith('"'):
        return value == kind.strip('"')
    return {
        "string": lambda: isinstance(value, str),
        "number": lambda: isinstance(value, int | float) and not isinstance(value, bool),
        "boolean": lambda: isinstance(value, bool),
        "null": lambda: value is None,
        "unknown": lambda: True,
        "Source": lambda: True,
    }[kind]()


def check_fields(value, fields, where):
    names = {name.removesuffix("?") for name in fields}
    needed = {name for name in fields if not name.endswith("?")}
    assert needed <= set(value) <= names, f"{where}: {sorted(value)} instead of {sorted(fields)}"
    for name, kind in fields.items():
        if name.removesuffix("?") in value:
            check(value[name.removesuffix("?")], kind, f"{where}.{name}")
    return True


def split(kind, by):
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(kind):
        depth += {"{": 1, "[": 1, "<": 1, "(": 1, "}": -1, "]": -1, ">": -1, ")": -1}.get(sign, 0)
        if sign == by and not depth:
            parts.append(kind[start:at])
            start = at + 1
    return [part for part in [*parts, kind[start:]] if part.strip()]


def test_what_is_sent_is_what_protocol_ts_says(client, tab):
    check(client.get("/api/catalogue").json, "Catalogue", "catalogue")
    tab.do("note", text="n", at=[0, 0])
    tab.do("change", block="mean", set={"indices": [0, 9, 2]})
    tab.do("run")
    tab.do("undo")
    tab.do("add", op="BroadcastTo", at=[0, 0], inputs={"input": 1.0, "shape": [100, 100]})
    tab.do("add", op="Square", at=[0, 0])
    tab.do("loop", steps=3, record=["BroadcastTo:output"])
    tab.do("remove", blocks=["Square"])
    tab.do("save", path="x")
    check(client.get("/api/files").json, "Files", "files")
    check(client.get(f"/api/documents/{tab.document}/rows", block="mean", pin="output", row=0).json, "Origins", "rows")
    kinds = {
        "page": "PageEvent",
        "results": "ResultsEvent",
        "progress": "ProgressEvent",
        "disk": "DiskEvent",
        "saved": "SavedEvent",
        "runs": "RunsEvent",
    }
    for event in tab.events:
        check(event, kinds[event["event"]], event["event"])
    assert {event["event"] for event in tab.events} >= {"page", "results", "progress", "saved", "runs"}
    with client.tab(tab.document) as late:
        late.hear(lambda: late.events[-1]["event"] == "runs")
        check(late.events[-1], "RunsEvent", "runs")
    looks = {"window": "Rows", "region": "Region", "histogram": "Histogram", "series": "Series",
             "projection": "Projection"}  # fmt: skip
    for what, kind in looks.items():
        found = client.get(f"/api/documents/{tab.document}/look/{what}", block="BroadcastTo", pin="output")
        check(found.json, kind, what)
    why = client.get(f"/api/documents/{tab.document}/explain", block="mean", pin="output", index="2,1")
    check(why.json, "Explained", "explain")
    error = tab.refused("connect", source="grad:output", target="mean:indices")
    check(error, "Problem", "error")
    for answer in tab.answers.values():
        check(answer, "Answer", "answer")


def test_every_verb_stands_in_the_protocol():
    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (STUDIO / "PROTOCOL.md").read_text(), re.M)
    words = {word for entry in listed for word in re.findall(r"`(\w+)`", entry)}
    assert set(VERBS) <= words


# Values


def test_small_arrays_are_shown_number_by_number():
    shown = value_view(np.float32([[1, 2.5], [np.nan, -np.inf]]))
    assert shown["cells"] == [["1", "2.5"], ["nan", "-inf"]]
    assert (shown["kind"], shown["signal"]) == ("cells", "float32 [2, 2]")
    assert value_view(np.int64(7))["cells"] == [["7"]]
    assert value_view(np.array([True, False]))["cells"] == [["True"], ["False"]]
    assert value_view(np.array([1.5], BFLOAT16))["cells"] == [["1.5"]]
    assert value_view(np.array(["a", "ü"], object))["cells"] == [["a"], ["ü"]]
    assert value_view(np.zeros((0, 3)))["kind"] == "empty"
    assert len(value_view(np.zeros((2, 3, 4)))["cells"]) == 6
    assert value_view(np.array([1 + 2j], np.complex64))["cells"] == [["1+2j"]]


def test_large_arrays_are_shown_as_means():
    array = np.arange(100.0)[:, None] * np.ones(60) - 50
    heat = value_view(array)["heat"]
    assert (heat["rows"], heat["columns"], heat["row_step"], heat["column_step"]) == (34, 30, 3, 2)
    expected = [array[r * 3 : r * 3 + 3, c * 2 : c * 2 + 2].mean() for r in range(34) for c in range(30)]
    assert np.allclose(np.ravel(heat["values"]), expected, rtol=1e-5)
    assert heat["low"] == -heat["high"] == -49
    assert value_view(np.abs(array))["heat"]["low"] == 0
    assert value_view(-np.abs(array))["heat"]["high"] == 0
    assert value_view(np.zeros((99, 99)))["heat"]["high"] == 0
    array[0, 0] = np.nan
    assert value_view(array)["heat"]["values"][0][0] is None


@pytest.mark.parametrize(
    "shape", [(1_000_000,), (3000, 3000), (49, 1), (1, 49), (33, 12), (13, 13), (5, 7, 64), (2, 1_000_000)]
)
def test_pictures_of_any_shape_are_small(shape):
    shown = value_view(np.ones(shape, np.float32))
    heat = shown["heat"]
    assert shown["kind"] == "heat"
    assert heat["rows"] <= 48 and heat["columns"] <= 48
    assert len(heat["values"]) == heat["rows"] and {len(row) for row in heat["values"]} == {heat["columns"]}
    assert {value for row in heat["values"] for value in row} == {1.0}
    rows = shape[0] if len(shape) < 3 else shape[0] * shape[1]
    assert (heat["rows"] - 1) * heat["row_step"] < rows <= heat["rows"] * heat["row_step"]


def test_many_texts_are_cut():
    shown = value_view(np.array(["x" * 1000] * 500, object))
    assert len(shown["cells"]) == 200 and len(shown["cells"][0][0]) == 200
    assert "first 200" in shown["summary"]


# Origins


def rows(client, tab, block, pin, row):
    return client.get(f"/api/documents/{tab.document}/rows", block=block, pin=pin, row=row).json["rows"]


def test_where_rows_of_gradients_come_from(client):
    with client.tab(client.open(example="tour")) as tab:
        assert rows(client, tab, "SparseSegmentMeanGradV2", "output", 1) == {}  # nothing has run
        tab.do("run")
        # indices [900, 3, 900], segment_ids [0, 0, 1]
        for pin in ("output", "sorted_unique_indices"):
            found = rows(client, tab, "SparseSegmentMeanGradV2", pin, 1)
            assert found == {"indices": [0, 2], "segment_ids": [0, 2], "grad": [0, 1]}
        assert rows(client, tab, "SparseSegmentMeanGradV2", "output", 0)["grad"] == [0]
        assert rows(client, tab, "SparseSegmentMeanGradV2", "output", 99) == {}
        # indices [0, 1, 2], segment_ids [2, 2, 2]
        assert rows(client, tab, "SparseSegmentMeanGrad", "output", 1) == {
            "indices": [1],
            "segment_ids": [1],
            "grad": [2],
        }
        # data rows [2, 1, 0] in segments [0, 0, 1]
        assert rows(client, tab, "pooled", "output", 0) == {"indices": [0, 1], "segment_ids": [0, 1], "data": [1, 2]}
        places = [int(row[0]) for row in tab.results["fill"]["outputs"]["reverse_index_map"]["cells"]]
        found = rows(client, tab, "SparseFillEmptyRowsGrad", "d_values", 2)
        assert found == {"reverse_index_map": [2], "grad_values": [places[2]]}
        rest = sorted(set(range(6)) - set(places))
        assert rows(client, tab, "SparseFillEmptyRowsGrad", "d_default_value", 0) == {"grad_values": rest}
        grads = [row[0] for row in tab.results["SparseSliceGrad"]["outputs"]["val_grad"]["cells"]]
        for row, value in enumerate(grads):
            found = rows(client, tab, "SparseSliceGrad", "val_grad", row)
            assert found["input_indices"] == [row]
            assert bool(found["backprop_val_grad"]) == (value != "0")
        assert rows(client, tab, "grad", "output", 0) == {}
        assert client.get(f"/api/documents/{tab.document}/rows", block="grad", pin="output", row="x").status == 400
        assert client.get(f"/api/documents/{tab.document}/rows", block="nobody", pin="output", row=0).status == 400


# Downloads


def test_outputs_are_downloaded_as_they_are(client, tab):
    tab.do("run")
    path = f"/api/documents/{tab.document}/output"
    expected = Session(
        Page.from_json((Path(client.get("/api/files").json["folder"]) / "mean.page.json").read_text())
    ).run()
    made = client.get(path, block="mean", pin="output", **{"as": "npy"})
    array = np.load(io.BytesIO(made.body), allow_pickle=False)
    assert array.dtype == np.float32 and np.array_equal(array, expected["mean"].output)
    assert made.headers["Content-Disposition"] == 'attachment; filename="mean-output.npy"'
    made = client.get(path, block="mean", pin="output", **{"as": "csv"})
    back = np.loadtxt(io.BytesIO(made.body), delimiter=",", dtype=np.float32)
    assert np.array_equal(back, expected["mean"].output)
    for wrong in ({"block": "nobody"}, {"pin": "nothing"}, {"as": "xls"}):
        answer = client.get(path, **{"block": "mean", "pin": "output", "as": "csv", **wrong})
        assert answer.status == 400 and answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("attrs", "csv"),
    [
        ({"value": ["a", 'b,"c"', ""]}, 'a\n"b,""c"""\n""\n'),
        ({"value": [True, False]}, "True\nFalse\n"),
        ({"value": 7}, "7\n"),
        ({"value": [[0.1, 2]], "dtype": "float32"}, "0.1,2\n"),
        ({"value": [1.5], "dtype": "bfloat16"}, "1.5\n"),
        ({"value": ["NaN"], "dtype": "float32"}, "NaN\n"),
        ({"value": [3], "dtype": "qint8"}, "3\n"),
        ({"value": ["1+2j"], "dtype": "complex64"}, "1+2j\n"),
    ],
)
def test_downloads_of_every_kind(client, empty, attrs, csv):
    empty.do("add", op="Const", at=[0, 0], attrs=attrs)
    empty.do("run")
    path = f"/api/documents/{empty.document}/output"
    assert client.get(path, block="Const", pin="output", **{"as": "csv"}).body.decode() == csv
    made = client.get(path, block="Const", pin="output", **{"as": "npy"})
    assert made.status == 200 and np.load(io.BytesIO(made.body), allow_pickle=False).size


def test_an_output_that_is_not_there_yet(client, tab):
    answer = client.get(f"/api/documents/{tab.document}/output", block="mean", pin="output", **{"as": "csv"})
    assert answer.status == 400 and "waiting" in answer.json["error"]["message"]


def test_exported_python_gives_the_same(client, tab, tmp_path):
    script = tmp_path / "page.py"
    script.write_bytes(client.get(f"/api/documents/{tab.document}/export", **{"as": "py"}).body)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert client.get(f"/api/documents/{tab.document}/export", **{"as": "docx"}).status == 400


def test_five_hundred_blocks(client, empty):
    page = Page("many")
    page.add("Const", "c", value=[[1.0, 2.0]])
    for i in range(499):
        page.add("Neg", f"n{i}", x="c" if i % 7 == 0 else f"n{i - 1}")
    data = base64.b64encode(page.to_json().encode()).decode()
    with client.tab(client.open(data=data, name="many.page.json")) as tab:
        assert len(tab.blocks) == 500 == len(tab.page["order"])
        tab.do("run")
        assert sum(result["status"] == "done" for result in tab.results.values()) == 500
        assert len(tab.do("fits", source="c:output")["pins"]) == 499
        tab.do("remove", blocks=[f"n{i}" for i in range(499)])
        assert list(tab.blocks) == ["c"]
