"""Pairs from a user's file: each row in the model's tokens, or an error that says which row is wrong and how."""

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.journal import Journal
from stages.common.rows import Numbered, read_rows, row_error
from stages.common.tables import PREFERENCES
from stages.preferences.shapes import USED, ShapeError, pair_of
from stages.preferences.tokens import Reader


def pairs_of_file(path: Path, reader: Reader, journal: Journal) -> pl.DataFrame:
    """One row per row of the file, in its order, without a split yet; `pair_id` has the row's number."""
    numbered = read_rows(path)
    check_columns(numbered, path)
    rows: list[dict[str, Any]] = []
    first = ""
    for done, (number, row) in enumerate(numbered, start=1):
        try:
            pair = pair_of(row)
            first = first or pair.shape
            if pair.shape != first:
                raise ShapeError(f"it is {pair.shape}, row {numbered[0][0]} is {first}; use one shape")
            columns = reader.columns(pair)
        except ShapeError as error:
            raise row_error(path, number, str(error)) from None
        rows.append({"pair_id": f"row-{number:07d}", "flipped": False, **columns})
        journal.progress(done, len(numbered), "pairs read")
    ignored = sorted(set(numbered[0][1]) - USED)
    if ignored:
        journal.say(f"{path}: columns that are not read: {', '.join(ignored)}")
    tell_repetitions(rows, path, journal)
    return pl.DataFrame(rows, schema=PREFERENCES)


def check_columns(numbered: Numbered, path: Path) -> None:
    """Every row has the columns of the first."""
    first, columns = numbered[0][0], set(numbered[0][1])
    for number, row in numbered:
        if set(row) != columns:
            odd = ", ".join(sorted(set(row) ^ columns))
            raise row_error(path, number, f"its columns are not those of row {first} ({odd}); use one shape")


def tell_repetitions(rows: list[dict[str, Any]], path: Path, journal: Journal) -> None:
    """Say how many rows repeat an earlier one, and how many contradict one; all stay."""
    counts = Counter(_texts(row, "chosen", "rejected") for row in rows)
    repeated = sum(count - 1 for count in counts.values())
    contradicted = sum(min(count, counts[prompt, b, a]) for (prompt, a, b), count in counts.items() if a < b)
    if repeated:
        journal.say(f"{path}: {repeated} rows repeat an earlier pair; they stay, and count as often as they are there")
    if contradicted:
        journal.say(f"{path}: {contradicted} pairs are there in both orders; they stay, and cancel out")


def _texts(row: dict[str, Any], first: str, second: str) -> tuple[tuple[int, ...], str, str]:
    return tuple(row["prompt_ids"]), row[first], row[second]
