"""Reading the user's file of demonstrations, JSON Lines or Parquet, row by row: every row keeps its place."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.errors import StageError

OPTION = "params.yaml: sft.file"


@dataclass(frozen=True)
class Record:
    """One row. `row` counts from 1; in JSON Lines it is the line, blank ones counted."""

    file: Path
    row: int
    values: dict[str, Any]

    def wrong(self, what: str) -> StageError:
        """An error to raise: what is wrong with this row, and what to do."""
        return StageError(f"{self.file}, row {self.row}: {what}")


def read_records(path: Path) -> list[Record]:
    """All rows of the file; which of the two formats it is in is told by its name."""
    if not path.is_file():
        raise StageError(f"{OPTION} = {str(path)!r}: there is no such file")
    if path.suffix == ".parquet":
        records = _parquet(path)
    elif path.suffix in (".jsonl", ".ndjson"):
        records = list(_json_lines(path))
    else:
        raise StageError(f"{OPTION} = {str(path)!r}: name it .jsonl (JSON Lines) or .parquet, and let it be that")
    if not records:
        raise StageError(f"{path}: the file has no rows")
    return records


def _parquet(path: Path) -> list[Record]:
    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise StageError(f"{path}: cannot be read as Parquet: {error}") from None
    return [Record(path, number, row) for number, row in enumerate(frame.iter_rows(named=True), start=1)]


def _json_lines(path: Path) -> Iterator[Record]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise StageError(f"{path}: not UTF-8: {error}; save it as UTF-8") from None
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() would cut at U+2028 inside a string
        if line.strip():
            yield _json_line(path, number, line)


def _json_line(path: Path, number: int, line: str) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Record(path, number, {}).wrong(f"not JSON: {error}; each line is one object") from None
    if not isinstance(value, dict):
        raise Record(path, number, {}).wrong(f"a JSON {type(value).__name__}; each line is one object")
    return Record(path, number, value)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, expected: str | None) -> str | None:
    """Refuse another file than the one that params.yaml names; returns what to say if it names none."""
    found = file_sha256(path)
    if expected is None:
        return f"params.yaml: sft.sha256 is null, so that any {path} is taken; it now is {found}"
    if found != expected:
        raise StageError(
            f"params.yaml: sft.sha256: {path} has {found}, expected {expected}; correct it if the change is meant"
        )
    return None
