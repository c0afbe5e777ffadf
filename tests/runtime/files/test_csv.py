"""CSV files as arrays."""

import numpy as np
import pytest

from rowgrad._runtime import files
from rowgrad.errors import FileError


def read(tmp_path, text, column=None):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    return files.read(path, column)


def refusal(*args):
    with pytest.raises(FileError) as caught:
        read(*args)
    return caught.value.message


def test_a_table_of_numbers_is_a_matrix(tmp_path):
    table = read(tmp_path, "a,b\n1,2\n3,4\n")
    assert table.dtype == np.int64
    assert table.tolist() == [[1, 2], [3, 4]]
    assert read(tmp_path, "1,2.5\r\n3,4\r\n").tolist() == [[1.0, 2.5], [3.0, 4.0]]


def test_columns_keep_their_kind(tmp_path):
    text = '\ufeffid, score,word\n7,0.5,"a, b"\n9007199254740993,nan,c\n'
    assert read(tmp_path, text, "id").tolist() == [7, 9007199254740993]
    assert np.isnan(read(tmp_path, text, "score")[1])
    assert read(tmp_path, text, "word").tolist() == ["a, b", "c"]
    assert read(tmp_path, "1,2\n", "1").tolist() == [2]
    assert read(tmp_path, "n\n1\n2\n").tolist() == [1, 2]


def test_no_rows(tmp_path):
    assert read(tmp_path, "a,b\n").shape == (0, 2)


def test_what_is_wrong_is_named(tmp_path):
    assert "line 3 has 1 cells" in refusal(tmp_path, "a,b\n1,2\n3\n")
    assert "no column 'c'; it has a, b" in refusal(tmp_path, "a,b\n1,2\n", "c")
    assert "line 3, column b, is 'x', not a number" in refusal(tmp_path, "a,b\n1,2\n3,x\n")
    assert "empty" in refusal(tmp_path, "")
    assert "CSV" in refusal(tmp_path, 'a\n"1')


@pytest.mark.parametrize("cell", ["1_000", "１２", "1_0.5", "٣", "1e1_0", "９.5"])
def test_numbers_that_only_python_reads_are_refused(tmp_path, cell):
    message = f"line 4, column b, is '{cell}'; numbers are written with the digits 0 to 9"
    assert message in refusal(tmp_path, f"a,b\n1,2\n\n3,{cell}\n")
    assert message in refusal(tmp_path, f"a,b\n1,2\n\n3,{cell}\n", "b")
    assert read(tmp_path, f"a,b\n1,2\n\n3,{cell}\n", "a").tolist() == [1, 3]
    # In the first line too: it is no name of a column, lest the file lose a row.
    assert "line 1, column 0" in refusal(tmp_path, f"{cell}\n2\n")


def test_such_words_stay_words(tmp_path):
    assert read(tmp_path, "word\n1_000\nx\n").tolist() == ["1_000", "x"]


def test_numbers_past_float64_are_refused(tmp_path):
    for cell in ("1e999", "9" * 5000, f"-{'9' * 400}"):
        assert "line 3, column 0, is" in (message := refusal(tmp_path, f"1\n2\n{cell}\n"))
        assert "too large a number" in message and len(message) < 300
    assert read(tmp_path, "inf\n-Infinity\n1e308\n").tolist() == [np.inf, -np.inf, 1e308]
    assert read(tmp_path, f"{2**63}\n1\n").tolist() == [2.0**63, 1.0]


def test_lines_are_counted_as_editors_do(tmp_path):
    assert "line 5 has 1 cells" in refusal(tmp_path, 'a,b\n\n"x\ny",2\n3\n')


def test_a_missing_column_of_very_many(tmp_path):
    (tmp_path / "x.csv").write_text(",".join(f"c{i}" for i in range(5000)) + "\n" + ",".join("1" * 5000))
    with pytest.raises(FileError, match=r"no column 'd'; it has c0, .*c19, …\.") as caught:
        files.read(tmp_path / "x.csv", "d")
    assert len(str(caught.value)) < 500
