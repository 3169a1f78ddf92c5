"""A user's file as numbered rows: JSON Lines, a JSON array or Parquet. Nothing is converted here.

A row's number is the line in JSON Lines, and the place from 1 elsewhere; every later message about a row names it.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.errors import StageError

Row = dict[str, Any]


class FileError(StageError):
    """A user's file that cannot be used; the message names file, row and remedy."""


def row_error(path: Path, number: int, problem: str) -> FileError:
    return FileError(f"{path}: row {number}: {problem}")


def read_rows(path: Path) -> list[tuple[int, Row]]:
    """(number, row) of each row, all with the same columns."""
    check_exists(path)
    rows = _reader(path)(path)
    if not rows:
        raise FileError(f"{path}: it has no rows")
    columns = set(rows[0][1])
    for number, row in rows:
        if set(row) != columns:
            odd = ", ".join(sorted(set(row) ^ columns))
            raise row_error(path, number, f"its columns are not those of row {rows[0][0]} ({odd}); use one shape")
    return rows


def _reader(path: Path) -> Callable[[Path], list[tuple[int, Row]]]:
    if path.suffix == ".parquet":
        return _read_parquet
    if path.suffix not in (".json", ".jsonl"):
        raise FileError(f"{path}: of what format is it? name it .jsonl (or .json, also for an array) or .parquet")
    return _read_json


def _read_parquet(path: Path) -> list[tuple[int, Row]]:
    try:
        return list(enumerate(pl.read_parquet(path, glob=False).to_dicts(), start=1))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FileError(f"{path}: cannot be read as Parquet: {error}") from None


def _read_json(path: Path) -> list[tuple[int, Row]]:
    """JSON Lines, or an array if the file starts with a bracket; blank lines are no rows."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8: {error}; save it as UTF-8") from None
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


def _parse(path: Path, number: int | None, text: str) -> Any:
    """The value of a text; a key that stands twice in one object is an error, as plain JSON takes the last."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        if number is None:
            raise FileError(f"{path}: not a JSON array: {error}") from None
        raise row_error(path, number, f"not valid JSON: {error}; each line is one object") from None


def _unique(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"a key stands twice among {[key for key, _ in pairs]}")
    return row


def check_exists(path: Path) -> None:
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
