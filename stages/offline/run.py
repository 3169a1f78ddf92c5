"""Stage `offline`: the initial policy and preference pairs -> data/offline/NAME/policy and its steps.parquet.

A comparator of the iterations: trained on the same pairs as a reward model, and on nothing that it samples itself.
"""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.kept.steps import state_of
from stages.common.logprobs import say_one_by_one, takes_block_mask
from stages.common.optimizer import StoredAdamW
from stages.common.params import Offline, Params
from stages.common.policy import Models, save_policy, trainable
from stages.common.tables import OFFLINE_STEPS, PREFERENCES, read_table, write_table
from stages.offline.answers import Reading, with_reference
from stages.offline.objective import WITH_REFERENCE
from stages.offline.pairs import Splits, pairs_of
from stages.offline.train import train, work_of


def read_pairs(settings: Offline) -> Splits:
    path = paths.preferences(settings.pairs)
    table = read_table(path, PREFERENCES, ("pair_id",))
    splits = Splits(pairs_of(table.filter(split="train")), pairs_of(table.filter(split="heldout")))
    if not splits.training:
        raise StageError(f"{path} has no pairs to train on; give reward_models.{settings.pairs}.preferences more")
    return splits


def add_reference(splits: Splits, params: Params, settings: Offline, models: Models, journal: Journal) -> Splits:
    """Log-probs under the reference, once for all steps."""

    def progress(done: int, total: int) -> None:
        journal.progress(done, total, "pairs of the reference")

    with models.reference() as reference:
        reading = reading_of(reference, params, settings)
        return Splits(
            with_reference(reference, splits.training, reading, progress),
            with_reference(reference, splits.heldout, reading, progress),
        )


def reading_of(model: Any, params: Params, settings: Offline) -> Reading:
    return Reading(params.rollout.temperature, settings.pack_tokens, not takes_block_mask(model))


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    settings = params.offline[name]
    splits = read_pairs(settings)
    if settings.objective in WITH_REFERENCE:
        splits = add_reference(splits, params, settings, models, journal)
    model = models.policy(paths.policy(paths.INITIAL))
    say_one_by_one("this model", journal, packed=takes_block_mask(model))
    optimizer = StoredAdamW(trainable(model), settings)
    reading = reading_of(model, params, settings)
    state = state_of(work_of(model, splits, settings, reading, params.seed), optimizer)
    models.dirty()
    steps = train(model, optimizer, splits, settings, reading, params.seed, journal, state)
    write_table(pl.DataFrame(steps, schema=OFFLINE_STEPS), OFFLINE_STEPS, ("step",), paths.steps(name))
    with publish(paths.policy(name)) as scratch:
        save_policy(model, paths.policy(paths.INITIAL), scratch)
    models.saved(paths.policy(name))
    journal.say(summary(settings, splits, steps))


def summary(settings: Offline, splits: Splits, steps: list[dict[str, Any]]) -> str:
    told = f"{settings.objective}, {len(steps) - 1} steps on {len(splits.training)} pairs of {settings.pairs}"
    first, last = steps[0], steps[-1]
    if first["heldout_loss"] is None:
        return f"{told}: loss {steps[1]['loss']:.4f} -> {last['loss']:.4f}"
    return (
        f"{told}: held-out loss {first['heldout_loss']:.4f} -> {last['heldout_loss']:.4f}, "
        f"accuracy {first['heldout_accuracy']:.3f} -> {last['heldout_accuracy']:.3f}"
    )
