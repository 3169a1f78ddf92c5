"""The columns of users' data: renamed, checked against the declared schema, and none with a name that a run uses.

Rows of JSON and CSV become a table here; a table of Parquet or `datasets` keeps its types, but for columns that are
declared. The columns are those of all rows: one that first appears late is null before.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import polars as pl

from stages.common.params import Columns, ColumnType, ParamsError
from stages.common.rows import FileError, Numbered
from stages.common.tables import GENERATIONS, JUDGED, PROMPTS, ROLLOUTS, SCORES
from stages.prepare.prompts.kinds import DECLARED, PLAIN, Finding, check_finite, series_of

OWN = ("prompt", "prompt_id")  # columns of the table that users bring
OF_FUNCTIONS = ("prompts", "completions", "trainer_state", "log_extra", "log_metric", "environments", "index")
RESERVED = frozenset({*PROMPTS, *ROLLOUTS, *SCORES, *GENERATIONS, *JUDGED, *OF_FUNCTIONS}) - frozenset(OWN)
RESERVED_BEGINNINGS = ("reward/", "status/", "message/", "_")
USUAL = ("question", "problem", "instruction", "query", "messages")  # what others call the prompt
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
INTEGER = re.compile(r"[+-]?\d+")
TRUTH = {"true": True, "false": False}


@dataclass(frozen=True)
class Part:
    """One file or split as a table: where it is from, the number of each row, and what was found in it."""

    place: str
    numbers: list[int]
    frame: pl.DataFrame
    notes: list[str]
    resolved: dict[str, str] = field(default_factory=dict)  # what a name stood for when it was read

    def __str__(self) -> str:
        return self.place


def part_of_rows(rows: Numbered, place: str, option: str, settings: Columns, *, texts: bool = False) -> Part:
    """The table of rows; `texts`: all values are texts (CSV), and those of a declared column are read as its type."""
    finding = Finding(place, option)
    found = list(dict.fromkeys(name for _, row in rows for name in row))
    names = _renamed(found, settings, finding)
    _check_names(list(names.values()), settings, finding)
    columns = []
    for old, new in names.items():
        declared = _declaration(new, settings)
        if settings.columns is not None and new not in OWN:
            _check_in_each_row(old, rows, finding)
        cells: Sequence[tuple[int, Any]] = [(number, row.get(old)) for number, row in rows]
        if texts and declared is not None:
            cells = [(number, _read(new, number, text, declared, finding)) for number, text in cells]
        columns.append(series_of(new, cells, declared, finding))
    numbers = [number for number, _ in rows]
    frame = pl.DataFrame(columns)
    check_finite(frame, numbers, finding)
    return Part(place, numbers, frame, finding.notes)


def part_of_table(frame: pl.DataFrame, place: str, option: str, settings: Columns) -> Part:
    """The table itself, with declared columns in the declared types; rows count from 1."""
    finding = Finding(place, option)
    if frame.is_empty():
        raise FileError(f"{place}: it has no rows")
    names = _renamed(frame.columns, settings, finding)
    _check_names(list(names.values()), settings, finding)
    renamed = frame.rename(names)
    columns = [_converted(renamed[name], _declaration(name, settings), finding) for name in renamed.columns]
    numbers = list(range(1, frame.height + 1))
    made = pl.DataFrame(columns)
    check_finite(made, numbers, finding)
    return Part(place, numbers, made, finding.notes)


def _renamed(found: Sequence[str], settings: Columns, finding: Finding) -> dict[str, str]:
    """{name in the data: name here}, in the data's order."""
    where = f"params.yaml: {finding.option}.rename"
    for name in settings.rename:
        if name not in found:
            near = get_close_matches(name, found, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ParamsError(f"{where}: {finding.place} has no column {name!r}, only {', '.join(found)}{hint}")
    names = {name: settings.rename.get(name, name) for name in found}
    for new in names.values():
        olds = [old for old, name in names.items() if name == new]
        if len(olds) > 1:
            raise ParamsError(f"{where}: {finding.place}: {' and '.join(olds)} would both be {new!r}; rename one more")
    return names


def _check_names(names: Sequence[str], settings: Columns, finding: Finding) -> None:
    where = f"params.yaml: {finding.option}"
    if "prompt" not in names:
        guess = next((name for name in USUAL if name in names), names[0])
        raise ParamsError(
            f"{where}: {finding.place} has no column prompt, only {', '.join(names)}; "
            f"say which one it is: {finding.option}.rename: {{{guess}: prompt}}"
        )
    for name in names:
        if name in RESERVED or name.startswith(RESERVED_BEGINNINGS):
            raise ParamsError(
                f"{where}: {finding.place}: a column called {name!r} would take a name that the run's own tables use; "
                f"rename it: {finding.option}.rename: {{{name}: my_{name.lstrip('_')}}}"
            )
    if settings.columns is not None:
        _check_declared(names, settings.columns, finding)


def _check_declared(names: Sequence[str], declared: dict[str, ColumnType], finding: Finding) -> None:
    """Exactly the declared columns, beside the prompt and its id."""
    where = f"params.yaml: {finding.option}.columns"
    missing = [name for name in declared if name not in names]
    if missing:
        raise ParamsError(f"{where}: {finding.place} has no column {', '.join(missing)}, only {', '.join(names)}")
    more = [name for name in names if name not in declared and name not in OWN]
    if more:
        raise ParamsError(
            f"{where}: {finding.place} has also {', '.join(more)}; declare them, or remove them from the data "
            f"(`{where.removeprefix('params.yaml: ')}: null` takes all columns)"
        )


def _declaration(name: str, settings: Columns) -> ColumnType | None:
    return "string" if name == "prompt_id" else (settings.columns or {}).get(name)


def _check_in_each_row(name: str, rows: Numbered, finding: Finding) -> None:
    for number, row in rows:
        if name not in row:
            raise finding.wrong(number, f"it lacks column {name}, which is declared; write null if there is no value")


def _read(name: str, number: int, text: str, declared: ColumnType, finding: Finding) -> Any:
    """The value that a text of a CSV cell stands for. An empty cell is an empty string, and null in any other type."""
    if declared in ("string", "any"):
        return text
    if text == "":
        return None
    if declared == "integer" and INTEGER.fullmatch(text):
        return int(text)
    if declared == "number" and NUMBER.fullmatch(text):
        return float(text)
    if declared == "boolean" and text.lower() in TRUTH:
        return TRUTH[text.lower()]
    told = f"column {name} is {text[:40]!r}, declared as {declared}"
    raise finding.wrong(number, f"{told}; correct the cell, or params.yaml: {finding.option}.columns.{name}")


def _converted(column: pl.Series, declared: ColumnType | None, finding: Finding) -> pl.Series:
    """The column in its declared type, refused if it is of another kind."""
    if declared is None or declared == "any":
        return column
    dtype, wanted = column.dtype, PLAIN[DECLARED[declared]]
    fits = {
        "string": dtype in (pl.String, pl.Categorical, pl.Enum),
        "integer": dtype.is_integer(),
        "number": dtype.is_float() or dtype.is_integer(),
        "boolean": dtype == pl.Boolean,
    }
    if column.null_count() < len(column) and not fits[declared]:
        told = f"{finding.place}: column {column.name} is {dtype}, declared as {declared}"
        remedy = f"correct params.yaml: {finding.option}.columns.{column.name}, or the data"
        raise FileError(f"{told}; {remedy}" if column.name not in OWN else f"{told}; write it as a string in the data")
    try:
        converted = column.cast(wanted, strict=True)
    except pl.exceptions.PolarsError as error:
        raise FileError(f"{finding.place}: column {column.name}: {error}; write it as a string") from None
    if dtype.is_integer() and declared == "number" and not (converted.cast(dtype) == column).all():
        raise FileError(f"{finding.place}: column {column.name} has integers that no floating-point number equals")
    return converted
