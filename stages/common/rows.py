"""A user's file as numbered rows: JSON Lines, a JSON array, CSV or Parquet. Nothing is converted here.

A row's number is the line in JSON Lines and CSV (where a row may go over several lines: the first), and the place from
1 in an array and in Parquet; every later message about a row names it. What kind a file is, its name says.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from stages.common.errors import StageError

Row = dict[str, Any]
Numbered = list[tuple[int, Row]]

JSON_NAMES = (".jsonl", ".json", ".ndjson")
CSV_FIELD = 1 << 30  # characters; the csv module refuses longer cells than 131,072 unless told otherwise


class FileError(StageError):
    """A user's file that cannot be used; the message names file, row and remedy."""


def row_error(path: Path | str, number: int, problem: str) -> FileError:
    return FileError(f"{path}: row {number}: {problem}")


def read_rows(path: Path) -> Numbered:
    """(number, row) of each row, at least one. Rows of JSON need not have the same columns."""
    check_exists(path)
    rows = _reader(path)(path)
    if not rows:
        raise FileError(f"{path}: it has no rows")
    return rows


def check_exists(path: Path) -> None:
    if path.is_dir():
        raise FileError(f"{path}: a folder, not a file; name the file in it")
    if not path.is_file():
        raise FileError(f"{path}: no such file; paths are relative to the project's folder")


def check_hash(path: Path, expected: str | None, option: str) -> str:
    """The file's SHA-256, compared with the one in params.yaml if there is one."""
    check_exists(path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if expected is not None and found != expected:
        raise FileError(f"{path}: its hash is {found}, not {option}.sha256 = {expected}: write the one it has there")
    return found


def _reader(path: Path) -> Callable[[Path], Numbered]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return lambda path: list(enumerate(read_parquet(path).iter_rows(named=True), start=1))
    if suffix == ".csv":
        return _read_csv
    if suffix in JSON_NAMES:
        return _read_json
    raise FileError(f"{path}: of what format is it? name it .jsonl (or .json, also for an array), .csv or .parquet")


def read_parquet(path: Path) -> pl.DataFrame:
    """The table with the types it has in the file."""
    check_exists(path)
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FileError(f"{path}: cannot be read as Parquet: {error}") from None


def _text(path: Path) -> str:
    """The file's text without a byte-order mark, its line ends as they are."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(f"{path}: line {line}: not UTF-8: {error.reason}; save the file as UTF-8") from None


def _read_json(path: Path) -> Numbered:
    """JSON Lines, or an array if the file starts with a bracket; blank lines are no rows."""
    text = _text(path)
    if text.lstrip().startswith("["):
        rows = list(enumerate(_parse(path, None, text), start=1))
    else:
        # not splitlines(): JSON may hold U+2028 and other marks that it takes for the end of a line
        lines = enumerate(text.split("\n"), start=1)
        rows = [(number, _parse(path, number, line)) for number, line in lines if line.strip()]
    for number, row in rows:
        if not isinstance(row, dict):
            raise row_error(path, number, f"expected an object with columns, found {type(row).__name__}")
    return rows


def _told(error: Exception) -> str:
    """What is wrong with a text; of one line the place in it, as its number is said anyway."""
    if isinstance(error, UnicodeEncodeError):
        return "a text has half of a character (a lone surrogate)"
    if isinstance(error, json.JSONDecodeError) and error.lineno == 1:
        return f"{error.msg} (at character {error.colno})"
    return str(error)


def _parse(path: Path, number: int | None, text: str) -> Any:
    """The value of a text, by the letter of JSON: no key twice in one object, where Python would take the last one, no
    NaN, and no half of a character.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        told = _told(error)
        if number is None:
            raise FileError(f"{path}: not a JSON array: {told}") from None
        raise row_error(path, number, f"not valid JSON: {told}; each line is one object") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"a key stands twice among {[key for key, _ in pairs]}")
    return row


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON: write null, or remove the row")


def _read_csv(path: Path) -> Numbered:
    """Rows under a header of comma-separated names; every value is a text. Blank lines are no rows."""
    lines = _csv_lines(path, _text(path))
    number, header = next(lines, (1, []))
    _check_header(path, number, header)
    rows = []
    for number, cells in lines:
        if len(cells) != len(header):
            problem = f"{len(cells)} cells, and the header has {len(header)} columns"
            raise row_error(path, number, f"{problem}; quote a cell that holds commas, quotes or line breaks")
        rows.append((number, dict(zip(header, cells, strict=True))))
    return rows


def _csv_lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The line where a record begins, and its cells."""
    limit = csv.field_size_limit(CSV_FIELD)
    reader, begins = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise row_error(path, begins, f"not valid CSV: {error}; quotes inside a quoted cell are doubled") from None
    finally:
        csv.field_size_limit(limit)


def _check_header(path: Path, number: int, header: list[str]) -> None:
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise row_error(path, number, f"one column called {header[0]!r}; separate cells by commas")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise row_error(path, number, f"the header names {', '.join(map(repr, twice))} twice; give each column a name")
    if any(not name.strip() for name in header):
        raise row_error(path, number, "a column has no name in the header; give it one, or remove it")
