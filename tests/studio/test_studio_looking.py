"""Results of any size: windows, orders, searches, regions, histograms, series, projections, and differences of runs."""

import numpy as np
import pytest

ROWS = 3000


@pytest.fixture
def array(folder):
    found = np.random.default_rng(7).normal(size=(ROWS, 6)).astype(np.float32)
    found[5, 2], found[9, 0], found[11, 0] = np.nan, np.inf, -np.inf
    found[20, 3] = 0.125
    np.save(folder / "large.npy", found)
    return found


@pytest.fixture
def look(empty, array):
    empty.do("add", op="File", at=[0, 0], attrs={"path": "large.npy"})
    empty.do("run")

    def ask(what, status=200, **query):
        answer = empty.client.get(
            f"/api/documents/{empty.document}/look/{what}", **{"block": "File", "pin": "output", **query}
        )
        assert answer.status == status, answer.body
        return answer.json

    return ask


def test_windows_give_rows_and_columns(look, array):
    found = look("window", start=2990, count=60, column=1, columns=2)
    assert (found["rows"], found["columns"], found["start"], found["column"]) == (ROWS, 6, 2990, 1)
    assert found["ids"] == list(range(2990, 3000))
    assert found["cells"] == [[f"{value:.6g}" for value in row] for row in array[2990:, 1:3].astype(float)]
    assert look("window", start=9999)["ids"] == []


@pytest.mark.parametrize("descending", ["true", "false"])
def test_rows_are_sorted_by_a_column_with_nan_last(look, array, descending):
    found = look("window", start=0, count=400, sort=2, descending=descending)["ids"]
    known = np.flatnonzero(~np.isnan(array[:, 2]))
    order = known[np.argsort(array[known, 2], kind="stable")]
    assert found == (order[::-1] if descending == "true" else order)[:400].tolist()
    assert look("window", start=ROWS - 1, sort=2, descending=descending)["ids"] == [5]


def test_rows_are_found_by_number_and_by_value(look, array):
    assert look("find", row=17) == {"row": 17, "position": 17}
    place = look("find", row=17, sort=1)["position"]
    assert look("window", start=place, count=1, sort=1)["ids"] == [17]
    assert look("find", value="0.125", after=0)["row"] == 20
    assert look("find", value="0.125", after=20)["row"] == 20  # and from the top again
    assert look("find", value="nan")["row"] == 5
    assert look("find", value="inf")["row"] == 9
    assert look("find", value="-inf")["row"] == 11
    assert look("find", value="77")["row"] is None


def test_regions_go_down_to_single_values(look, array):
    whole = look("region", most=10)
    assert (whole["heat"]["rows"], whole["heat"]["columns"], whole["heat"]["row_step"]) == (10, 6, 300)
    near = look("region", down="100,103", across="2,5")
    assert np.allclose(near["heat"]["values"], array[100:103, 2:5], rtol=1e-5)
    assert (near["heat"]["row_step"], near["heat"]["column_step"]) == (1, 1)
    assert look("region", down="5,6", across="2,3")["heat"]["values"] == [[None]]
    edge = look("region", down="2999,9999", across="9,10")
    assert (edge["top"], edge["bottom"], edge["left"], edge["right"]) == (2999, 3000, 5, 6)


def test_histograms_count_what_is_not_finite(look, array):
    found = look("histogram", bins=20)
    assert (found["nans"], found["above"], found["below"], found["elements"]) == (1, 1, 1, ROWS * 6)
    assert sum(found["counts"]) == ROWS * 6 - 3 and len(found["counts"]) == 20
    finite = array[np.isfinite(array)]
    assert found["counts"] == np.histogram(finite.astype(np.float64), found["edges"])[0].tolist()
    assert look("histogram", of=2)["elements"] == ROWS


def test_series_and_projections(look, array):
    found = look("series", series="1,3")
    assert found["columns"] == [1, 3] and len(found["ids"]) == len(found["values"][0]) == 2000
    assert found["values"][1][0] == pytest.approx(float(array[found["ids"][0], 3]), rel=1e-5)
    shown = look("projection")
    assert shown["left_out"] == 3 and len(shown["points"]) == 2000
    whole = array[np.isfinite(array).all(axis=1)].astype(np.float64)
    sizes = np.linalg.eigvalsh(np.cov(whole.T))[::-1]
    assert shown["shares"] == pytest.approx((sizes / sizes.sum())[:2], rel=1e-4)


def test_projections_are_labelled_by_another_output(look, empty):
    names = [f"film {n}" for n in range(ROWS)]
    empty.do("add", op="Const", at=[0, 0], attrs={"value": names, "dtype": "string"})
    empty.do("run")
    shown = look("projection", labels="Const:output")
    assert shown["labels"] == [f"film {row}" for row in shown["ids"]]


def test_the_run_before_is_compared_with(empty, client):
    empty.do("add", op="Const", at=[0, 0], attrs={"value": [[1.0, 2.0], [3.0, 4.0]]})
    empty.do("run")
    empty.do("change", block="Const", set={"value": [[1.0, 2.5], [3.0, 1.0]]})
    empty.do("run")
    path = f"/api/documents/{empty.document}/look/window"
    found = client.get(path, block="Const", pin="output", against="before").json
    assert found["cells"] == [["0", "0.5"], ["0", "-3"]]
    empty.do("change", block="Const", set={"value": [1.0]})
    empty.do("run")
    refused = client.get(path, block="Const", pin="output", against="before")
    assert (refused.status, refused.json["error"]["code"]) == (400, "wrong-shape")
    assert client.get(path, block="Const", pin="output", against="77").json["error"]["code"] == "unknown-run"


@pytest.mark.parametrize(
    ("what", "query", "argument"),
    [
        ("window", {"start": "-1"}, "start"),
        ("window", {"sort": "6"}, "column"),
        ("window", {"sort": "x"}, "sort"),
        ("find", {"row": "3000"}, "row"),
        ("find", {"value": "abc"}, "value"),
        ("region", {"down": "1"}, "down"),
        ("series", {"series": "0,6"}, "series"),
        ("histogram", {"of": "6"}, "column"),
        ("sideways", {}, "what"),
        ("window", {"pin": "none"}, "none"),
    ],
)
def test_what_is_wrong_is_named(look, what, query, argument):
    error = look(what, status=400, **query)["error"]
    assert error["pin"] == argument


def test_texts_are_tables_only(empty, client):
    empty.do("add", op="Const", at=[0, 0], attrs={"value": ["b", "a"], "dtype": "string"})
    empty.do("run")
    base = f"/api/documents/{empty.document}/look"
    sorted_rows = client.get(f"{base}/window", block="Const", pin="output", sort=0).json
    assert (sorted_rows["ids"], sorted_rows["cells"]) == ([1, 0], [["a"], ["b"]])
    for what in ("histogram", "region", "series", "projection"):
        assert client.get(f"{base}/{what}", block="Const", pin="output").json["error"]["code"] == "wrong-dtype"
