"""What a run leaves in the Prefect UI: metrics by iteration, samples, progress, the stages' lines. Files stay files.

All of it is bounded: a run of a thousand iterations leaves no more in one artifact, or of one stage, than a short one.
"""

import logging
import time
from collections.abc import Callable, Iterator
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
from prefect.exceptions import MissingContextError, PrefectException
from prefect.logging import get_run_logger

from pipeline.door import StageId
from pipeline.follow import Record
from pipeline.show.text import text
from stages.common import paths
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, read_table
from stages.history.alarms import Alarm
from stages.history.rows import training_row

PROGRESS_SECONDS = 2.0
LAST_ROWS = 50  # of the metrics that are shown, and of the evaluated ones before them
SAID_LINES = 200  # that the log of one task gets of its stage, at each look
PREPARATORY = frozenset({"sft", "preferences", "reward_model", "critic", "offline"})
LONG_STAGES = PREPARATORY | {"rollout", "score", "update", "evaluate", "judge", "method"}
EXTREMES = 3


def row_of(name: str) -> dict[str, Any]:
    row = training_row(name, read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)))
    return {"iteration": name, **{key: _short(value) for key, value in row.items()}}


def _short(value: Any) -> Any:
    return round(value, 4) + 0.0 if isinstance(value, float) else value  # -0.0 + 0.0 is 0.0


@contextmanager
def unimportant() -> Iterator[None]:
    """Training goes on if the Prefect server cannot be reached for an artifact; the log says so."""
    try:
        yield
    except MissingContextError:  # no run is under way that could show it
        pass
    except (OSError, httpx.HTTPError, PrefectException) as error:
        logging.getLogger(__name__).warning("artifact not written: %s: %s", type(error).__name__, error)


@unimportant()
def iteration(name: str) -> None:
    """The best and worst completions of an iteration, and where its files are."""
    create_markdown_artifact(key="rloo-completions", markdown=extremes(name), description=f"Completions of {name}")
    create_markdown_artifact(key="rloo-files", markdown=files(name), description=f"Files of {name}")


def files(name: str) -> str:
    """Links to the tables and the policy of an iteration, where this machine has them."""
    found = [*sorted(paths.iteration(name).iterdir()), paths.policy(name), paths.LOGS / name]
    lines = [f"- [`{path}`]({path.resolve().as_uri()})" for path in found if path.exists()]
    return "\n".join([f"## Files of {name}", *lines])


SHOWN = {  # column of the history -> heading
    "reward": "reward",
    "kl": "KL",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
    "groups/mixed": "mixed groups",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "eval/reward": "held-out reward",
    "judge/win_rate": "win-rate",
}


@unimportant()
def metrics(rows: dict[int, dict[str, Any]]) -> None:
    """The table that grows by iteration; `rows` of the history, by number."""
    create_table_artifact(key="rloo-metrics", table=shown(rows), description="Metrics, the newest iterations last")


def shown(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The last iterations, and the evaluated ones before them."""
    numbers = sorted(rows)
    evaluated = [number for number in numbers[:-LAST_ROWS] if rows[number].get("eval/reward") is not None]
    kept = [*evaluated[-LAST_ROWS:], *numbers[-LAST_ROWS:]]
    return [
        {"iteration": number} | {heading: _short(rows[number].get(key)) for key, heading in SHOWN.items()}
        for number in kept
    ]


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
        f"baseline {text(row['baseline']) or 'none'}, advantage {row['advantage']:+z.3f} by {row['estimator']}"
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
    """The history, all its columns: the last iterations, and the evaluated ones before them."""
    frame = pl.read_parquet(paths.HISTORY)
    evaluated = pl.col("eval/reward").is_not_null() if "eval/reward" in frame.columns else pl.lit(value=False)
    early = frame.head(max(0, frame.height - LAST_ROWS)).filter(evaluated).tail(LAST_ROWS)
    rows = pl.concat([early, frame.tail(LAST_ROWS)])
    table = [{key: _short(value) for key, value in row.items()} for row in rows.to_dicts()]
    create_table_artifact(key="rloo-history", table=table, description=f"From {paths.HISTORY}")


@unimportant()
def said(records: list[Record]) -> None:
    """The stage's own lines, in the log of its task."""
    lines = [str(record["text"]) for record in records if record["event"] == "said"]
    left_out = len(lines) - SAID_LINES
    if left_out > 0:
        lines = [f"({left_out} lines left out)", *lines[-SAID_LINES:]]
    for line in lines:
        get_run_logger().info(line)


def progress_key(stage: StageId) -> str:
    """Prefect takes lowercase letters, digits and dashes."""
    return f"{stage.stage}-{stage.name}".replace("_", "-")


@contextmanager
def progress(stage: StageId) -> Iterator[Callable[[list[Record]], None]]:
    """Gives a function that takes new records of the stage's journal: a long stage that is computed has a progress
    artifact, once it has taken so long that somebody might look.
    """
    made: list[Any] = []
    sent = time.monotonic()

    def show(percent: float) -> None:
        with unimportant():
            if made:
                update_progress_artifact(made[0], percent)
            else:
                name = f"{stage.stage} of {stage.name}"
                made.append(create_progress_artifact(percent, key=progress_key(stage), description=name))

    def tell(records: list[Record]) -> None:
        nonlocal sent
        newest = [record for record in records if record["event"] == "progress"][-1:]
        for record in newest:
            if stage.stage in LONG_STAGES and time.monotonic() - sent > PROGRESS_SECONDS:
                sent = time.monotonic()
                show(100.0 * record["done"] / max(1, record["total"]))

    yield tell
    if made:
        show(100.0)
