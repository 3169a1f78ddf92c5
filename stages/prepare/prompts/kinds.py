"""What a column of a user's rows holds, told by its values and never by guessing: one kind per column.

Kinds are string, integer, number, boolean, list, object, and nothing but null. A mix is refused with a row of each
kind; nothing is converted but whole numbers of a column that is declared `number`. Objects with different keys become
one struct with nulls where a key is missing, which is said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stages.common.params import ColumnType
from stages.common.rows import FileError, row_error

Cells = Sequence[tuple[int, Any]]  # number of the row, value

NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
}
PLAIN: dict[type, pl.DataType] = {str: pl.String(), int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean()}
DECLARED: dict[ColumnType, type] = {"string": str, "integer": int, "number": float, "boolean": bool}
BITS = 64
EXACT = 2**53  # whole numbers up to here are floating-point numbers, too


@dataclass
class Finding:
    """Where values come from, for what is said of them; `notes` collects what a reader should know."""

    place: str
    option: str  # the section of params.yaml, such as prepare.prompts.file
    notes: list[str] = field(default_factory=list)

    def wrong(self, number: int, problem: str) -> FileError:
        return row_error(self.place, number, problem)


def series_of(name: str, cells: Cells, declared: ColumnType | None, finding: Finding) -> pl.Series:
    """The column of these values, in their own type or in the one that is declared (`any`: their own)."""
    if declared is not None and declared != "any":
        cells = _declared(name, cells, declared, finding)
        dtype: pl.DataType = PLAIN[DECLARED[declared]]
        if declared == "integer":
            _check_integers(name, [(n, v) for n, v in cells if v is not None], finding)
    else:
        dtype = dtype_of(name, cells, finding)
    return pl.Series(name, [value for _, value in cells], dtype=dtype, strict=True)


def _declared(name: str, cells: Cells, declared: ColumnType, finding: Finding) -> Cells:
    """The values, refused if one is not of the declared type; whole numbers are numbers if that is what is declared."""
    wanted = DECLARED[declared]
    for number, value in cells:
        whole = wanted is float and type(value) is int and abs(value) <= EXACT
        if value is not None and type(value) is not wanted and not whole:
            told = f"column {name} is {NAMES[type(value)]} ({str(value)[:40]}), declared as {declared}"
            raise finding.wrong(number, f"{told}; correct the row, or params.yaml: {finding.option}.columns.{name}")
    if wanted is not float:
        return cells
    return [(number, None if value is None else float(value)) for number, value in cells]


def dtype_of(name: str, cells: Cells, finding: Finding) -> pl.DataType:
    """The type of one kind of values; a row of each kind if there are several. Also inside lists and objects."""
    present = [(number, value) for number, value in cells if value is not None]
    firsts: dict[type, tuple[int, Any]] = {}
    for number, value in present:
        firsts.setdefault(type(value), (number, value))
    if not firsts:
        return pl.Null()
    if len(firsts) > 1:
        raise _mixed(name, list(firsts.values()), finding)
    (kind,) = firsts
    if kind is int:
        _check_integers(name, present, finding)
    elif kind is list:
        return pl.List(dtype_of(f"{name}[]", [(n, item) for n, items in present for item in items], finding))
    elif kind is dict:
        return _struct(name, present, finding)
    return PLAIN[kind]


def _mixed(name: str, firsts: Sequence[tuple[int, Any]], finding: Finding) -> FileError:
    (one, value), (other, second) = firsts[:2]
    kinds = {type(value), type(second)}
    remedy = "bring all rows to one type"
    if name == "prompt" and kinds == {str, list}:
        remedy = "make all prompts texts, or all of them lists of {role, content}"
    elif kinds == {int, float}:
        remedy = f"write whole numbers as 1.0, or declare it: params.yaml: {finding.option}.columns.{name}: number"
    told = f"{NAMES[type(value)]} in row {one} and {NAMES[type(second)]} in row {other}"
    if one == other:
        told = f"{NAMES[type(value)]} and {NAMES[type(second)]} in one row"
    return finding.wrong(other, f"column {name} is {told}; {remedy}")


def _check_integers(name: str, cells: Cells, finding: Finding) -> None:
    limit = 2 ** (BITS - 1)
    for number, value in cells:
        if not -limit <= value < limit:
            raise finding.wrong(number, f"column {name} is {value}, more than {BITS} bits hold; write it as a string")


def _struct(name: str, cells: Cells, finding: Finding) -> pl.DataType:
    keys = list(dict.fromkeys(key for _, value in cells for key in value))
    if not keys:
        told = f"column {name} has nothing but objects without a key, which no table holds"
        raise finding.wrong(cells[0][0], f"{told}; write null, or give the objects keys")
    if any(len(value) != len(keys) for _, value in cells):
        finding.notes.append(
            f"{finding.place}: the objects of column {name} have different keys: each has all of {', '.join(keys)} "
            "now, with null where it had none"
        )
    return pl.Struct({key: dtype_of(f"{name}.{key}", [(n, v.get(key)) for n, v in cells], finding) for key in keys})


def check_finite(frame: pl.DataFrame, numbers: Sequence[int], finding: Finding) -> None:
    """No NaN and no infinity, at any depth: neither says whether a value is missing."""
    for column in frame:
        if not _has_floats(column.dtype):
            continue
        for number, value in zip(numbers, column.to_list(), strict=True):
            if not _is_finite(value):
                raise finding.wrong(number, f"column {column.name} has NaN or infinity; write null, or remove the row")


def _has_floats(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_floats(one.dtype) for one in dtype.fields)
    inner = getattr(dtype, "inner", None)
    return _has_floats(inner) if inner is not None else dtype.is_float()


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list) or all(map(_is_finite, value))
