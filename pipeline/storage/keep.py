"""Which iterations of finished windows keep policy, optimizer state and critic."""

from collections.abc import Sequence

import polars as pl

from pipeline.storage.objects import Cache
from pipeline.storage.windows import Window
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params.storage import Storage


def kept(options: Storage, windows: Sequence[Window], history: pl.DataFrame | None) -> dict[str, str]:
    """Iterations that stay, each with the first reason that holds. `history` is needed for `best` alone.

    All of a window that is open or was left unfinished stay, so that it can go on; and the end of each window, which
    the next starts from.
    """
    reasons: dict[str, str] = {}
    finished = [name for window in windows if window.is_finished for name in window.trained]
    trained = sorted({name for window in windows for name in window.trained}, key=paths.iteration_number)
    for window in windows:
        if window.is_finished:
            reasons.setdefault(window.plan.last, f"end of {window.name}")
        else:
            state = "open" if window.is_open else "not finished"
            reasons |= dict.fromkeys(window.plan.names, f"{window.name} is {state}")
    if options.keep_last is None:
        return {**dict.fromkeys(finished, "nothing is pruned"), **reasons}
    for name in trained[-options.keep_last :]:
        reasons.setdefault(name, f"last {options.keep_last}")
    if options.keep_every is not None:
        for name in finished:
            if paths.iteration_number(name) % options.keep_every == 0:
                reasons.setdefault(name, f"every {options.keep_every}")
    if options.best is not None and finished:
        reasons.setdefault(best(options.best, finished, history), f"best {options.best}")
    return reasons


def best(column: str, names: Sequence[str], history: pl.DataFrame | None) -> str:
    """Of these iterations the one with the highest value, the first of equals."""
    if history is None:
        raise StageError(
            f"storage.best = {column!r} needs the history, of which no finished window has one here; "
            "`rloo pull` fetches it"
        )
    if column not in history.columns:
        known = ", ".join(name for name in history.columns if history[name].dtype.is_numeric())
        raise StageError(f"storage.best = {column!r} is not a column of the history; it has {known}")
    numbers = [paths.iteration_number(name) for name in names]
    values = history.select("iteration", value=pl.col(column).cast(pl.Float64))
    rows = values.filter(pl.col("iteration").is_in(numbers)).drop_nulls().drop_nans("value")
    if rows.is_empty():
        raise StageError(f"storage.best = {column!r}: the history has no value of it for {names[0]} to {names[-1]}")
    top = rows.sort("value", "iteration", descending=[True, False])["iteration"][0]
    return paths.iteration_name(int(top))


def history_of(windows: Sequence[Window], cache: Cache) -> pl.DataFrame | None:
    """Rows of the iterations of finished windows, from the history that each of them ended with; None: none is here."""
    files = [
        cache.file(out.md5)
        for window in windows
        if window.is_finished
        for out in window.outs
        if out.path == str(paths.HISTORY) and cache.has(out.md5)
    ]
    if not files:
        return None
    frames = [pl.read_parquet(file) for file in files]
    return pl.concat(frames, how="diagonal_relaxed").unique("iteration", keep="last").sort("iteration")
