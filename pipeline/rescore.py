"""`rloo rescore`: existing rollouts under other rewards, and how far the new rewards agree with the old ones."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.plan import read_plan
from pipeline.windows.present import check_rollouts, with_tables
from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.journal import journalled
from stages.common.params import Params
from stages.common.tables import ADVANTAGES, KEY, SCORES, read_table
from stages.compare.agreement import agreement, joined, statuses
from stages.compare.sides import check_together, folder_of
from stages.entry import models_of
from stages.rescore.made_of import manifest_path
from stages.rescore.rewards_file import read_rewards
from stages.rescore.run import prepare
from stages.rescore.run import rescore as compute
from stages.rescore.selection import OWN, check_name, select

COLUMNS = {
    "rows": "rows",
    "old": "old",
    "new": "new",
    "pearson_within": "pearson in",
    "spearman_within": "spearman in",
    "pearson_across": "pearson of",
    "spearman_across": "spearman of",
    "sign_flips": "sign flips",
    "gained": "gain signal",
    "lost": "lose it",
}
SHARES = ("sign_flips", "gained", "lost")
CAPTION = """\
old, new: mean task reward
in, of: correlation of the two, less each group's mean, and of the groups' means; - where one of them does not vary
sign flips: share of the rows whose advantage changes from above 0 to below, or back
gain signal: share of the groups in which a row gets an advantage and none had one; lose it: the reverse"""


def rescore(
    console: Console, name: str, rewards: Sequence[str], iterations: str, params: Params, overwrite: bool
) -> None:
    """Check, compute what is stale, and show."""
    check_name(name)
    given = read_rewards(rewards)
    known = read_plan().whole.names
    chosen = select(iterations, with_tables(known) if iterations == "all" else known)
    for one in chosen:
        check_rollouts(one)
    work = prepare(name, given, chosen, params, overwrite=overwrite)
    sweep_partial()
    with journalled("rescore", name) as journal:
        compute(work, lambda: models_of(params.compute), journal)
    left = len(chosen) - len(work.stale)
    console.print(
        f"{paths.RESCORED / name}: {len(work.stale)} iterations scored, {left} were up to date; made with "
        f"{manifest_path(name)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    show(console, name, chosen)


def show(console: Console, name: str, chosen: Sequence[str]) -> None:
    """The agreement per iteration and in all, and the rows that could not be scored."""
    new = {one: read_pair(name, one) for one in chosen}
    try:
        old = {one: read_pair(OWN, one) for one in chosen}
    except StageError as error:
        console.print(f"not compared with the run's own tables: {error}", markup=False, highlight=False, soft_wrap=True)
    else:
        _print_agreement(console, name, {one: joined_pair(old[one], new[one]) for one in chosen})
    _print_statuses(console, pl.concat([scores for scores, _ in new.values()]))


def read_pair(name: str, iteration: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores and advantages of a set of tables, made of each other."""
    folder = folder_of(name, iteration)
    scores = read_table(folder / "scores.parquet", SCORES, KEY)
    advantages = read_table(folder / "advantages.parquet", ADVANTAGES, KEY)
    check_together(scores, advantages, folder)
    return scores, advantages


def joined_pair(old: tuple[pl.DataFrame, pl.DataFrame], new: tuple[pl.DataFrame, pl.DataFrame]) -> pl.DataFrame:
    return joined((old[0], new[0]), (old[1], new[1]))


def _print_agreement(console: Console, name: str, rows: dict[str, pl.DataFrame]) -> None:
    table = Table(title=f"Rewards {name}, beside the run's own", caption=CAPTION, caption_justify="left")
    table.add_column("", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for one, frame in rows.items():
        table.add_row(one, *_cells(frame))
    if len(rows) > 1:
        table.add_section()
        table.add_row("all", *_cells(pl.concat(rows.values())))
    console.print(table)


def _cells(rows: pl.DataFrame) -> list[str]:
    found = agreement(rows)
    return [_cell(found[column], share=column in SHARES) for column in COLUMNS]


def _cell(value: float | int | None, *, share: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0%}" if share else f"{value:z.3f}"


def _print_statuses(console: Console, scores: pl.DataFrame) -> None:
    found = statuses(scores)
    if found.is_empty():
        console.print("every reward scored every row")
        return
    table = Table(title=f"Not scorable, of {scores.height} rows")
    for title in ("reward", "status", "rows", "most of them say"):
        table.add_column(title, justify="right" if title == "rows" else "left")
    for reward, status, rows, message in found.select("reward", "status", "rows", "message").rows():
        table.add_row(reward, status, str(rows), Text(message or ""))
    console.print(table)
