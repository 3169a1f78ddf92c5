"""Users' files as numbered rows: what each format means, byte for byte, and what is said of files that are wrong."""

import csv
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.common.rows import FileError, read_rows

BOM = b"\xef\xbb\xbf"

GOOD = {
    "lines": ("d.jsonl", b'{"a": 1}\n{"b": "x"}\n', [(1, {"a": 1}), (2, {"b": "x"})]),
    "no last line end": ("d.jsonl", b'{"a": 1}\n{"a": 2}', [(1, {"a": 1}), (2, {"a": 2})]),
    "blank lines count": ("d.jsonl", b'\n\n{"a": 1}\n \n{"a": 2}\n', [(3, {"a": 1}), (5, {"a": 2})]),
    "byte-order mark and CRLF": ("d.jsonl", BOM + b'{"a": 1}\r\n\r\n{"a": 2}\r\n', [(1, {"a": 1}), (3, {"a": 2})]),
    "line separator in a string": ("d.jsonl", '{"a": "x\u2028y\x85"}\n'.encode(), [(1, {"a": "x\u2028y\x85"})]),
    "whole characters as escapes": ("d.jsonl", b'{"a": "\\ud83d\\ude00"}', [(1, {"a": "\U0001f600"})]),
    "array": ("d.json", BOM + b' [{"a": 1},\n\n{"a": null}]', [(1, {"a": 1}), (2, {"a": None})]),
    "lines called json": ("d.json", b'{"a": 1}\n{"a": 2}', [(1, {"a": 1}), (2, {"a": 2})]),
    "upper case": ("D.JSONL", b'{"a": 1}', [(1, {"a": 1})]),
    "csv": ("d.csv", b"a,b\n1,x\n2,\n", [(2, {"a": "1", "b": "x"}), (3, {"a": "2", "b": ""})]),
    "csv with mark and CRLF": (
        "d.csv",
        BOM + b"a,b\r\n1,x\r\n\r\n2,y\r\n",
        [(2, {"a": "1", "b": "x"}), (4, {"a": "2", "b": "y"})],
    ),
    "csv with old line ends": ("d.csv", b"a,b\r1,x\r", [(2, {"a": "1", "b": "x"})]),
    "csv over several lines": (
        "d.csv",
        b'a,b\n"1\n\n1","say ""hi"", or"\n3,4\n',
        [(2, {"a": "1\n\n1", "b": 'say "hi", or'}), (5, {"a": "3", "b": "4"})],
    ),
    "csv keeps white space and words for null": (
        "d.csv",
        b"a,b\n x ,NA\nnull,007\n",
        [(2, {"a": " x ", "b": "NA"}), (3, {"a": "null", "b": "007"})],
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_rows(tmp_path, case):
    name, content, rows = GOOD[case]
    (tmp_path / name).write_bytes(content)
    assert read_rows(tmp_path / name) == rows


def test_parquet(tmp_path):
    pl.DataFrame({"a": [1, None], "b": [[{"c": "x"}], []]}).write_parquet(tmp_path / "d.parquet")
    assert read_rows(tmp_path / "d.parquet") == [(1, {"a": 1, "b": [{"c": "x"}]}), (2, {"a": None, "b": []})]


def test_a_cell_may_be_long_and_the_limit_of_others_stays(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path / "d.csv").write_text("a,b\n" + "x" * 300_000 + ",y\n")
    assert len(read_rows(tmp_path / "d.csv")[0][1]["a"]) == 300_000
    assert csv.field_size_limit() == limit


@given(st.lists(st.fixed_dictionaries({"a,": st.text(), '"b"\n': st.text(min_size=1)}), min_size=1))
def test_what_python_writes_as_csv_is_read_back(tmp_path_factory, rows):
    rows = [{name: text.replace("\x00", "") or "-" for name, text in row.items()} for row in rows]
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    with path.open("w", encoding="utf-8", newline="", errors="strict") as file:
        writer = csv.DictWriter(file, ["a,", '"b"\n'])
        writer.writeheader()
        writer.writerows(rows)
    assert [row for _, row in read_rows(path)] == rows


BAD = {
    "absent": ("d.jsonl", None, "d.jsonl: no such file; paths are relative to the project's folder"),
    "another format": ("d.xlsx", b"x", "d.xlsx: of what format is it? name it .jsonl"),
    "empty": ("d.jsonl", b"", "d.jsonl: it has no rows"),
    "only blank lines": ("d.jsonl", BOM + b"\r\n \n", "d.jsonl: it has no rows"),
    "empty array": ("d.json", b"[]", "d.json: it has no rows"),
    "only a header": ("d.csv", b"a,b\n", "d.csv: it has no rows"),
    "empty csv": ("d.csv", b"", "d.csv: it has no rows"),
    "broken line": ("d.jsonl", b'{"a": 1}\n\n{"a": \n', "d.jsonl: row 3: not valid JSON"),
    "broken array": ("d.json", b'[{"a": 1},', "d.json: not a JSON array"),
    "not an object": ("d.jsonl", b'{"a": 1}\n[1]\n', "d.jsonl: row 2: expected an object with columns, found list"),
    "array of texts": ("d.json", b'[{"a": 1}, "x"]', "d.json: row 2: expected an object with columns, found str"),
    "key twice": ("d.jsonl", b'{"a": 1, "a": 2}', "d.jsonl: row 1: not valid JSON: a key stands twice"),
    "key twice within": ("d.jsonl", b'{"a": {"b": 1, "b": 1}}', "d.jsonl: row 1: not valid JSON: a key stands twice"),
    "NaN": ("d.jsonl", b'{"a": 1}\n{"a": NaN}', "d.jsonl: row 2: not valid JSON: NaN is no number in JSON: write null"),
    "infinity": ("d.json", b'[{"a": -Infinity}]', "d.json: not a JSON array: -Infinity is no number"),
    "half a character": ("d.jsonl", b'{"a": "\\ud83d"}', "d.jsonl: row 1: not valid JSON: a text has half of a char"),
    "deep": ("d.jsonl", b"[" * 100_000, "d.jsonl: not a JSON array"),
    "latin-1": ("d.jsonl", b'{"a": 1}\n{"a": "\xe9"}', "d.jsonl: line 2: not UTF-8"),
    "UTF-16": ("d.csv", "a,b\n1,2\n".encode("utf-16"), "d.csv: line 1: not UTF-8"),
    "ragged": ("d.csv", b"a,b\n1,2\n1,2,3\n", "d.csv: row 3: 3 cells, and the header has 2 columns; quote"),
    "short": ("d.csv", b'a,b\n"1\n",2\n1\n', "d.csv: row 4: 1 cells, and the header has 2 columns"),
    "open quote": ("d.csv", b'a,b\n1,2\n"1,2\n3,4\n', "d.csv: row 3: not valid CSV"),
    "text after a quote": ("d.csv", b'a,b\n"1"x,2\n', "d.csv: row 2: not valid CSV"),
    "header twice": ("d.csv", b"a,b,a\n1,2,3\n", "d.csv: row 1: the header names 'a' twice"),
    "no name": ("d.csv", b"a,\n1,2\n", "d.csv: row 1: a column has no name"),
    "semicolons": ("d.csv", b"a;b\n1;2\n", "d.csv: row 1: one column called 'a;b'; separate cells by commas"),
    "not Parquet": ("d.parquet", b"text", "d.parquet: cannot be read as Parquet"),
    "Parquet without rows": ("d.parquet", pl.DataFrame({"a": []}), "d.parquet: it has no rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    name, content, message = BAD[case]
    path = type(tmp_path)(name)
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_rows(path)
    assert message in str(caught.value)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(FileError, match="a folder, not a file"):
        read_rows(tmp_path)


def test_numbers_of_json_are_not_rounded(tmp_path):
    big = 2**70
    (tmp_path / "d.jsonl").write_text(json.dumps({"a": big, "b": 0.1}))
    assert read_rows(tmp_path / "d.jsonl") == [(1, {"a": big, "b": 0.1})]
