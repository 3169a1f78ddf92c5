"""The training curve, and the diagnostics section of the history."""

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.show.text import text
from stages.common import paths
from stages.common.checked import checked
from stages.common.errors import StageError

HISTORY_COLUMNS = {
    "iteration": "it",
    "reward": "reward",
    "reward_std": "std in group",
    "groups/mixed": "mixed groups",
    "kl": "KL",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
    "grad_norm": "grad norm",
    "eval/reward": "held out",
}


LINES, AT_ENDS = 60, 5  # a longer history is folded to about so many; so many at both ends are shown
QUARTERS = {1: "shortest", 2: "2nd", 3: "3rd", 4: "longest"}
DIAGNOSTICS = {
    "Groups by kind (shares); groups and tokens sampled, and kept by dynamic sampling": {
        "iteration": "it",
        "groups/all_correct": "all correct",
        "groups/mixed": "mixed",
        "groups/all_equal": "all equal",
        "groups/all_wrong": "all wrong",
        "groups/unscorable": "not scored",
        "groups/sampled": "groups",
        "groups/accepted": "kept",
        "tokens/sampled": "tokens",
        "tokens/accepted": "tokens kept",
    },
    "Standard deviation of the reward within groups, by quartile of the groups' mean length": {
        "iteration": "it",
        "reward_std": "all",
        **{f"reward_std/length_q{number}": name for number, name in QUARTERS.items()},
    },
    "How far the update went from the policy that sampled (one step per iteration: ratios are 1)": {
        "iteration": "it",
        "approx_kl": "approx. KL",
        "ratio/mean": "mean ratio",
        "ratio/min": "min",
        "ratio/max": "max",
        "clip_ratio/low": "clipped low",
        "clip_ratio/high": "clipped high",
        "importance/mean": "sampler weight",
        "importance/outside": "truncated",
        "kl_loss": "KL loss",
    },
    "The critic: loss, and the share of the returns' variance that its values explain": {
        "iteration": "it",
        "value_loss": "value loss",
        "explained_variance": "explained",
        "value_clip": "clipped",
    },
    "Share of the gradient's norm by quartile of completion length, tokens summed": {
        "iteration": "it",
        **{f"grad_share/sequence_sum/q{number}": name for number, name in QUARTERS.items()},
    },
    "The same with each response averaged over its length": {
        "iteration": "it",
        **{f"grad_share/response_mean/q{number}": name for number, name in QUARTERS.items()},
    },
}


def read_history() -> pl.DataFrame:
    if not paths.HISTORY.exists():
        raise StageError(f"{paths.HISTORY} does not exist yet; `rloo train` or `dvc repro` makes it")
    return pl.read_parquet(checked(paths.HISTORY))


def history(console: Console, *, folded: bool = True) -> None:
    """The training curve, one line per iteration; of a long run those that `shown` chooses, if `folded`."""
    frame = read_history()
    title = f"{paths.HISTORY}: {frame.width} columns, these are some"
    rows = shown(frame) if folded else frame
    if rows.height < frame.height:
        title += f"; {rows.height} of {frame.height} rows (`rloo show history --all` shows all)"
    _columns(console, rows, HISTORY_COLUMNS, title)


def shown(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that tell a long run: the first and the last few, and one of each stretch between, an evaluated one if the
    stretch has any.
    """
    if frame.height <= LINES:
        return frame
    step = -(-frame.height // (LINES - 2 * AT_ENDS))
    held_out = pl.col("eval/reward").is_not_null() if "eval/reward" in frame.columns else pl.lit(False)
    number = pl.int_range(pl.len())
    of_steps = held_out.cast(pl.Int8).arg_max().over(number // step)  # place in its stretch of the first evaluated one
    chosen = (number < AT_ENDS) | (number >= pl.len() - AT_ENDS) | (number % step == of_steps)
    return frame.filter(chosen)


def diagnostics(console: Console) -> None:
    """The diagnostics section of the history, one table per question; what was never measured is left out."""
    frame = shown(read_history().filter(pl.col("iteration") > 0))
    for title, columns in DIAGNOSTICS.items():
        measured = {c: t for c, t in columns.items() if c in frame.columns and frame[c].null_count() < frame.height}
        if len(measured) > 1:
            kept = frame.filter(~pl.all_horizontal(pl.col(c).is_null() for c in measured if c != "iteration"))
            _columns(console, kept, measured, title)


def _columns(console: Console, frame: pl.DataFrame, columns: dict[str, str], title: str) -> None:
    """Some columns of a frame as a table, under shorter names."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown = {column: name for column, name in columns.items() if column in frame.columns}
    for name in shown.values():
        table.add_column(name, justify="right", overflow="fold")
    for row in frame.select(list(shown)).rows():
        table.add_row(*("-" if value is None else text(value) for value in row))
    console.print(table)
