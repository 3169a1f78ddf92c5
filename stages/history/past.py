"""The history of the windows before: rows that the history of the open window goes on from."""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.checked import checked
from stages.common.errors import StageError

Row = dict[str, Any]


def past_rows(entry: str | None) -> list[Row]:
    """Rows from the initial policy up to iteration `entry`, which the window starts from; none for the first window.

    `num_tokens` is that of each iteration again, as `history_frame` adds up what it is given.
    """
    if entry is None:
        return []
    path = paths.iteration(entry) / paths.HISTORY.name
    if not path.exists():
        raise StageError(f"{path} does not exist: `dvc repro window_entry@{entry}` or `rloo train` restores it")
    try:
        frame = pl.read_parquet(checked(path))
    except pl.exceptions.PolarsError as error:
        raise StageError(f"{path}: cannot be read as Parquet: {error}; run `dvc repro window_entry@{entry}`") from None
    numbers = list(range(paths.iteration_number(entry) + 1))
    if not {"iteration", "num_tokens"} <= set(frame.columns) or frame["iteration"].to_list() != numbers:
        raise StageError(f"{path} is not a history of the iterations up to {entry}; run the window before again")
    return frame.with_columns(pl.col("num_tokens").diff().fill_null(0)).to_dicts()
