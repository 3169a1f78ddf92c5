"""What a run leaves in the Prefect UI: metrics by iteration, samples, progress. Files stay files."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
from pipeline.follow import followed
from pipeline.show.text import text
from stages.common import paths
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, read_table
from stages.history.alarms import Alarm
from stages.history.rows import training_row

POLL_SECONDS = 1.0
PREPARATORY = frozenset({"sft", "preferences", "reward_model", "critic", "offline"})
LONG_STAGES = PREPARATORY | {"rollout", "score", "update", "evaluate", "judge", "method"}
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
    return (
        f"~~~~text\n{row['prompt']}\n~~~~\n\n~~~~text\n{row['completion']}\n~~~~\n\n"
        f"`{row['prompt_id']}` sample {row['sample']}: reward {text(row['task_reward'])}, score {text(row['score'])}, "
        f"baseline {text(row['baseline']) or 'none'}, advantage {row['advantage']:+.3f} by {row['estimator']}"
    )


@unimportant()
def alarms(name: str, found: list[Alarm]) -> None:
    """What is wrong with an iteration, if anything."""
    if found:
        lines = [f"- **{alarm.name}**: {alarm.text}" for alarm in found]
        markdown = "\n".join([f"## Alarms of {name}", *lines])
        create_markdown_artifact(key="rloo-alarms", markdown=markdown, description=f"Alarms of {name}")


@unimportant()
def page(file: Path, key: str) -> None:
    """A page in Markdown; its images stay in its folder."""
    create_markdown_artifact(key=key, markdown=file.read_text(encoding="utf-8"), description=f"From {file}")


@unimportant()
def history() -> None:
    """The whole history, one row per iteration."""
    frame = pl.read_parquet(paths.HISTORY)
    table = [{key: _short(value) for key, value in row.items()} for row in frame.to_dicts()]
    create_table_artifact(key="rloo-history", table=table, description=f"All iterations, from {paths.HISTORY}")


def progress_key(stage: StageId) -> str:
    """Prefect takes lowercase letters, digits and dashes."""
    return f"{stage.stage}-{stage.name}".replace("_", "-")


@contextmanager
def progress(stage: StageId) -> Iterator[None]:
    """A progress artifact for a long stage, once it turns out to be computed."""
    if stage.stage not in LONG_STAGES:
        yield
        return
    made: list[Any] = []

    def show(percent: float) -> None:
        with unimportant():
            if made:
                update_progress_artifact(made[0], percent)
            else:
                name = f"{stage.stage} of {stage.name}"
                made.append(create_progress_artifact(percent, key=progress_key(stage), description=name))

    with followed(stage, POLL_SECONDS, lambda record: show(100.0 * record["done"] / record["total"])):
        yield
    if made:
        show(100.0)
