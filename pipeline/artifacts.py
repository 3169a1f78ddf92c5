"""What a run leaves in the Prefect UI: metrics by iteration, samples, progress. Files stay files."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import httpx
import polars as pl
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException

from pipeline.door import StageId
from stages.common import paths
from stages.common.journal import read_journal
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, read_table
from stages.history.rows import training_row

POLL_SECONDS = 1.0
LONG_STAGES = frozenset({"rollout", "score", "update", "evaluate"})
EXTREMES = 3


def row_of(name: str) -> dict[str, Any]:
    row = training_row(name, read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)))
    return {"iteration": name, **{key: _short(value) for key, value in row.items()}}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


@contextmanager
def unimportant() -> Iterator[None]:
    """Training goes on if the Prefect server cannot be reached for an artifact; the log says so."""
    try:
        yield
    except (OSError, httpx.HTTPError, PrefectException) as error:
        logging.getLogger(__name__).warning("artifact not written: %s: %s", type(error).__name__, error)


@unimportant()
def iteration(name: str) -> None:
    """Metrics of an iteration as a table, and its best and worst completions."""
    create_table_artifact(
        key="rloo-iteration",
        table=[{"metric": key, "value": value} for key, value in row_of(name).items()],
        description=f"Metrics of {name}",
    )
    create_markdown_artifact(key="rloo-completions", markdown=extremes(name), description=f"Completions of {name}")


def extremes(name: str) -> str:
    """The completions with the highest and the lowest advantage, as Markdown."""
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    advantages = read_table(paths.advantages(name), ADVANTAGES, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt")
    rows = rollouts.join(advantages, on=KEY).join(prompts, on="prompt_id").filter("in_loss").sort("advantage", *KEY)
    best, worst = rows.reverse().head(EXTREMES), rows.head(EXTREMES)
    return "\n\n".join(
        [f"## Best of {name}", *map(_card, best.to_dicts()), f"## Worst of {name}", *map(_card, worst.to_dicts())]
    )


def _card(row: dict[str, Any]) -> str:
    quoted = "\n".join("> " + line for line in row["completion"].splitlines() or [""])
    return (
        f"**{row['prompt']}**\n\n{quoted}\n\n"
        f"`{row['prompt_id']}` sample {row['sample']}: reward {row['task_reward']:.3f}, "
        f"score {row['score']:.3f}, baseline {row['baseline']:.3f}, advantage {row['advantage']:+.3f}"
    )


@unimportant()
def history() -> None:
    """The whole history, one row per iteration."""
    frame = pl.read_parquet(paths.HISTORY)
    table = [{key: _short(value) for key, value in row.items()} for row in frame.to_dicts()]
    create_table_artifact(key="rloo-history", table=table, description=f"All iterations, from {paths.HISTORY}")


@contextmanager
def progress(stage: StageId) -> Iterator[None]:
    """A progress artifact for a long stage, once it turns out to be computed."""
    if stage.stage not in LONG_STAGES:
        yield
        return
    done = threading.Event()
    state: dict[str, Any] = {}
    in_this_task = copy_context().run  # so that Prefect knows which task the artifact belongs to
    follower = threading.Thread(target=in_this_task, args=(_follow, stage, done, state), daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
        if state:
            with unimportant():
                update_progress_artifact(state["id"], 100.0)


def _follow(stage: StageId, done: threading.Event, state: dict[str, Any]) -> None:
    known = len(read_journal(stage.stage, stage.name))
    key = f"{stage.stage}-{stage.name}"
    while not done.wait(POLL_SECONDS):
        records = read_journal(stage.stage, stage.name)
        if len(records) == known or records[-1]["event"] != "progress":
            continue
        percent = 100.0 * records[-1]["done"] / records[-1]["total"]
        with unimportant():
            if not state:
                state["id"] = create_progress_artifact(percent, key=key, description=f"{stage.stage} of {stage.name}")
            else:
                update_progress_artifact(state["id"], percent)
