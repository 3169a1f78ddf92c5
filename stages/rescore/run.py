"""Existing rollouts, scored with other rewards: new tables beside the old ones, under data/rescored/NAME.

Nothing is sampled. Each iteration's folder is published whole; a rescore that was interrupted goes on behind the last
of them, and what is up to date is left alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from stages.advantage.moving_average import Carried
from stages.advantage.run import advantage_table
from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.tables import ADVANTAGES, KEY, SCORES, read_table, reward_schema, write_table
from stages.common.write_json import write_json
from stages.rescore import made_of
from stages.rescore.checks import check_estimator, check_given, check_past
from stages.rescore.rewards_file import Rewards
from stages.rescore.scores import read_old, scores_table
from stages.score.rows import rollout_rows, score_rows

if TYPE_CHECKING:
    from stages.common.policy import Models

ModelsOf = Callable[[], "Models"]


@dataclass(frozen=True)
class Work:
    """A rescore that has passed every check: `stale` are the iterations to compute, `ready` the others."""

    name: str
    given: Rewards
    params: Params
    recipe: made_of.Json
    stale: list[str]
    ready: list[str]


def prepare(name: str, given: Rewards, chosen: Sequence[str], params: Params, *, overwrite: bool = False) -> Work:
    """Check everything that can be checked without scoring a row; nothing is written."""
    check_given(given, params)
    for iteration in chosen:
        if not paths.scores(iteration).exists():
            raise StageError(
                f"{paths.scores(iteration)} does not exist: the KL comes from there; `dvc repro score@{iteration}` "
                "makes it"
            )
        check_estimator(iteration, read_old(iteration, rollout_rows(iteration)), params)
    recipe = made_of.recipe(given.rewards, params)
    made_of.check_recipe(name, recipe, overwrite=overwrite)
    there = [p.parent.name for p in sorted((paths.RESCORED / name).glob("i*/made_of.json"))]
    ready = [one for one in there if paths.rollouts(one).exists() and paths.scores(one).exists()]
    ready = [one for one in ready if made_of.up_to_date(name, one, recipe, params)]
    stale = [one for one in chosen if one not in ready]
    check_past(stale, ready, params)
    return Work(name, given, params, recipe, _and_after(stale, chosen, params), ready)


def _and_after(stale: list[str], chosen: Sequence[str], params: Params) -> list[str]:
    """A moving average hands on: after a stale iteration, those that follow are stale as well."""
    if params.advantage.estimator != "moving_average" or not stale:
        return stale
    return list(chosen[chosen.index(stale[0]) :])


def rescore(work: Work, models_of: ModelsOf, journal: Journal) -> None:
    """Compute what is stale, iteration by iteration, and then say in `rewards.json` what lies there. Models are asked
    for, and all that they need imported, only if a reward is one.
    """
    made_of.clear_other(work.name, work.recipe)
    if work.stale:
        made_of.manifest_path(work.name).unlink(missing_ok=True)  # written last: until then it would speak of others
    models = models_of() if work.stale and any(one.model for one in work.given.rewards.values()) else None
    for number, iteration in enumerate(work.stale):
        _publish(work, iteration, models, journal)
        journal.progress(number + 1, len(work.stale), "iterations scored")
    if work.stale or not made_of.manifest_path(work.name).exists():
        made_of.write_manifest(work.name, work.recipe)


def _publish(work: Work, iteration: str, models: "Models | None", journal: Journal) -> None:
    """Both tables and what they were made of, as one folder that appears whole."""
    found = made_of.inputs(work.name, iteration, work.params)  # before the work: what changes meanwhile is stale
    scores = _scores(work, iteration, models)
    advantages = advantage_table(scores, work.params, carried_from(work.name, iteration, work.params))
    with publish(paths.rescored(work.name, iteration)) as scratch:
        scratch.mkdir()
        write_table(scores, SCORES | reward_schema(list(work.given.rewards)), KEY, scratch / "scores.parquet")
        write_table(advantages, ADVANTAGES, KEY, scratch / "advantages.parquet")
        write_json(made_of.made_of(work.recipe, found, scratch), scratch / "made_of.json")
    samples = scores.filter(kind="sample")
    journal.say(f"{iteration}: {samples.height} samples, {samples['task_reward'].null_count()} of them not scorable")


def _scores(work: Work, iteration: str, models: "Models | None") -> pl.DataFrame:
    rows = rollout_rows(iteration)
    try:
        columns = score_rows(work.given.rewards, rows, models, work.params.score)
    except StageError as error:
        raise type(error)(work.given.placed(str(error))) from error
    return scores_table(rows, read_old(iteration, rows), columns, work.params).sort(KEY)


def carried_from(name: str, iteration: str, params: Params) -> Carried:
    """What a moving average goes on from: the rescored table of the iteration before."""
    if params.advantage.estimator != "moving_average" or iteration == paths.iteration_name(1):
        return []
    before = read_table(paths.rescored(name, paths.previous(iteration)) / "advantages.parquet", ADVANTAGES, KEY)
    return list(before["carried"][0])
