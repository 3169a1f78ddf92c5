"""The user's file of demonstrations, row by row: every row keeps its place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.common.rows import FileError, read_rows, row_error


@dataclass(frozen=True)
class Record:
    """One row. `row` is its number in the file, as `stages.common.rows` counts."""

    file: Path
    row: int
    values: dict[str, Any]

    def wrong(self, what: str) -> FileError:
        """An error to raise: what is wrong with this row, and what to do."""
        return row_error(self.file, self.row, what)


def read_records(path: Path) -> list[Record]:
    """All rows of the file."""
    return [Record(path, number, row) for number, row in read_rows(path)]
