"""The sets of tables that can be compared: the run's own, called `scores`, and those of `rloo rescore`, by name."""

from pathlib import Path

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.fingerprint import file_hash
from stages.common.params import Params
from stages.common.tables import ADVANTAGES, KEY, SCORES, read_table
from stages.compare.details import Weights
from stages.compare.differs import numbers_differ
from stages.compare.rows_changed import Side
from stages.rescore.made_of import read_made_of
from stages.rescore.scores import read_old
from stages.rescore.selection import OWN
from stages.score.rewards import add_task_reward
from stages.score.rows import rollout_rows


def folder_of(name: str, iteration: str) -> Path:
    """Where the tables `scores.parquet` and `advantages.parquet` of a set lie."""
    return paths.iteration(iteration) if name == OWN else paths.rescored(name, iteration)


def known_sets() -> list[str]:
    return [OWN, *sorted(path.name for path in paths.RESCORED.glob("*") if path.is_dir())]


def check_set(name: str) -> None:
    if name not in known_sets():
        raise StageError(f"no tables called {name!r}; there are {', '.join(known_sets())} (`rloo rescore` makes more)")


def iterations_of(name: str) -> list[str]:
    """Iterations that the set has both tables of."""
    root = paths.DATA / "iterations" if name == OWN else paths.RESCORED / name
    found = sorted(path.parent.name for path in root.glob("i*/advantages.parquet"))
    return [one for one in found if (folder_of(name, one) / "scores.parquet").exists()]


def read_side(name: str, iteration: str, params: Params) -> Side:
    """Both tables of an iteration, refused if they were made of other rollouts, or of each other's past."""
    check_set(name)
    folder = folder_of(name, iteration)
    if iteration not in iterations_of(name):
        there = ", ".join(iterations_of(name)) or "none"
        raise StageError(f"{folder} has no tables of scores and advantages; {name} has those of {there}")
    scores = read_table(folder / "scores.parquet", SCORES, KEY)
    advantages = read_table(folder / "advantages.parquet", ADVANTAGES, KEY)
    check_together(scores, advantages, folder)
    if name == OWN:
        read_old(iteration, rollout_rows(iteration))
        return Side(scores, advantages, own_weights(scores, params))
    made = read_made_of(folder)
    check_rollouts(made.get("inputs", {}).get("rollouts"), name, iteration)
    recipe = made["recipe"]
    return Side(scores, advantages, {n: one["weight"] for n, one in recipe["rewards"].items()}, recipe["kl"])


def own_weights(scores: pl.DataFrame, params: Params) -> Weights:
    """The weights of params.yaml, if they are those that the run's own task rewards were made with; else none."""
    rewards = params.score.rewards
    if any(f"{part}/{name}" not in scores.columns for name in rewards for part in ("reward", "status")):
        return {}
    again = add_task_reward(scores, rewards)["task_reward"].alias("task_reward_b")
    differs = scores.select(task_reward_a="task_reward").with_columns(again).select(numbers_differ("task_reward"))
    return {} if differs.to_series().any() else {name: reward.weight for name, reward in rewards.items()}


def check_together(scores: pl.DataFrame, advantages: pl.DataFrame, folder: Path) -> None:
    """The advantages were made of these scores: the same keys and the same scores."""
    both = scores.select(*KEY, score_a="score", a=True).join(
        advantages.select(*KEY, score_b="score", b=True), on=KEY, how="full", coalesce=True
    )
    strange = both.filter(pl.col("a").is_null() | pl.col("b").is_null() | numbers_differ("score"))
    if strange.height:
        raise StageError(
            f"{folder}/advantages.parquet was made of other scores than {folder}/scores.parquet: {strange.height} rows "
            "differ; bring them up to date (`rloo train`, `dvc repro`, `rloo rescore`)"
        )


def check_rollouts(found: str | None, name: str, iteration: str) -> None:
    """Rescored tables were made of the rollouts that lie there now."""
    if not paths.rollouts(iteration).exists() or file_hash(paths.rollouts(iteration)) != found:
        raise StageError(
            f"{paths.rescored(name, iteration)} was made of other rollouts than {paths.rollouts(iteration)} as it is "
            f"now: there is nothing to compare row by row; run `rloo rescore {name}` with its rewards again"
        )
