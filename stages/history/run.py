"""Stage `history`: the tables of all iterations -> history.parquet and history.csv, one row per iteration; and
over_optimisation.csv, the curve that the plot of that name draws; summary.json, the numbers of the whole run.

`data/seconds.csv` goes beside them: durations are not reproducible, so they are in no file that DVC hashes.
"""

from collections.abc import Iterable
from typing import Any

import polars as pl
import yaml

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal, seconds_of
from stages.common.params import Params
from stages.common.write_json import write_json
from stages.history.rows import history_frame
from stages.history.summary import summary

TIMED = ("rollout", "score", "advantage", "diagnose", "update", "evaluate")


def seconds_frame(last: str, entry: str | None = None) -> pl.DataFrame:
    """Seconds of each stage of each iteration, as last computed on this machine; null where it never was.

    Up to `entry`, which the window starts from, they are taken from the file as it is: a long run has many journals.
    """
    schema = {"iteration": pl.Int32, **{f"seconds/{stage}": pl.Float64 for stage in TIMED}}
    known = _known_seconds(schema) if entry else pl.DataFrame(schema=schema)
    known = known.filter(pl.col("iteration") <= paths.iteration_number(entry or paths.INITIAL))
    missing = sorted(set(range(paths.iteration_number(last) + 1)) - set(known["iteration"]))
    rows = [{"iteration": number, **_seconds(paths.iteration_name(number))} for number in missing]
    return pl.concat([known, pl.DataFrame(rows, schema=schema)]).sort("iteration")


def _known_seconds(schema: dict[str, Any]) -> pl.DataFrame:
    try:
        return pl.read_csv(paths.SECONDS_CSV, schema=schema)
    except (OSError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=schema)


def _seconds(name: str) -> dict[str, float | None]:
    return {f"seconds/{stage}": seconds_of(stage, name) for stage in TIMED}


def over_optimisation(history: pl.DataFrame, measured: Iterable[str]) -> pl.DataFrame:
    """Of the evaluated iterations: KL to the reference, the reward that is trained on, and the first of those that are
    only measured (null: there is none).
    """
    gold = next((pl.col(f"eval/rewards/{name}/mean") for name in measured), pl.lit(None, dtype=pl.Float64))
    columns = {"kl": pl.col("eval/kl"), "proxy": pl.col("eval/reward"), "gold": gold}
    return history.drop_nulls("eval/kl").select("iteration", **columns)


def run(last: str, params: Params, journal: Journal) -> None:
    plan = yaml.safe_load(paths.PLAN.read_text(encoding="utf-8"))
    entry = next(iter(plan["entry"]), None)  # the iteration that the window starts from
    history = history_frame(last, plan["evaluated"], params.alarms, entry)
    with publish(paths.HISTORY) as scratch:
        history.write_parquet(scratch)
    with publish(paths.HISTORY_CSV) as scratch:
        history.write_csv(scratch)
    with publish(paths.OVER_OPTIMISATION_CSV) as scratch:
        over_optimisation(history, params.evaluate.rewards).write_csv(scratch)
    with publish(paths.SUMMARY) as scratch:
        write_json(summary(history, params.evaluate.rewards), scratch)
    with publish(paths.SECONDS_CSV) as scratch:
        seconds_frame(last, entry).write_csv(scratch)
    journal.say(f"{history.height} rows, {history.width} columns")
