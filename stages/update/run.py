"""Stage `update`: policy i-1, rollouts, advantages -> policy i, optimizer state i, steps.parquet.

Then the critic's part, on the same samples, when the policy's optimizer is gone from memory.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.checkpointing import gradient_checkpointing
from stages.common.durable import sync
from stages.common.files import publish
from stages.common.fingerprint import file_hash
from stages.common.journal import Journal
from stages.common.kept.key import frame_hash
from stages.common.kept.parts import Work
from stages.common.kept.steps import State, resumed, state_of
from stages.common.logprobs import completion_logprobs, reads_one_by_one
from stages.common.memory import release
from stages.common.optimizer import StoredAdamW
from stages.common.packing import groups_of
from stages.common.params import Params
from stages.common.policy import Models, save_policy, trainable
from stages.common.signal import has_advantage
from stages.common.tables import STEPS, write_table
from stages.critic.update import check_critic, update_critic
from stages.update.batches import micro_batches, minibatches
from stages.update.recipe import Recipe, recipe_of
from stages.update.step import optimizer_step
from stages.update.training_rows import training_rows


def add_old(model: Any, rows: pl.DataFrame, recipe: Recipe, *, one_by_one: bool, journal: Journal) -> pl.DataFrame:
    """Add `old_logprobs`, the trainer's own before the first of several steps, which the ratios then compare with.

    Only where a correction keeps the mismatch with the sampler apart from the drift over the steps.
    """
    if recipe.update.importance_correction is None or recipe.steps == 1:
        return rows
    journal.say("log-probs of the trainer before the first step")
    groups = groups_of(rows.with_row_index("index"))
    found = completion_logprobs(
        model,
        groups,
        recipe.temperature,
        recipe.update.pack_tokens,
        one_by_one=one_by_one,
        kept_as="passes before the first step",
    )
    return rows.with_columns(old_logprobs=pl.Series([found[i] for i in range(rows.height)], dtype=pl.List(pl.Float32)))


def batches_of(rows: pl.DataFrame, iteration: int, params: Params) -> Iterator[tuple[int, pl.DataFrame]]:
    """(epoch, rows) of each optimizer step of the iteration."""
    for epoch in range(1, params.update.epochs + 1):
        for batch in minibatches(rows, params.update.minibatches, params.seed, iteration, epoch):
            yield epoch, batch


def run_steps(
    model: Any,
    optimizer: StoredAdamW,
    rows: pl.DataFrame,
    iteration: int,
    params: Params,
    journal: Journal,
    state: State | None = None,
    save_to: Path | None = None,
) -> list[dict[str, Any]]:
    """All optimizer steps of the iteration, one row of the steps table each; those that `state` holds are not taken
    again. `save_to`: where the last one leaves the optimizer's state, if it is taken.
    """
    recipe, one_by_one = recipe_of(params), reads_one_by_one(model, journal)
    rows = add_old(model, rows, recipe, one_by_one=one_by_one, journal=journal)
    kept = resumed(state, recipe.steps, "optimizer steps")
    for number, (epoch, batch) in enumerate(batches_of(rows, iteration, params), start=1):
        if number <= len(kept.rows):
            continue
        in_loss = batch.filter("in_loss").with_row_index("index")
        computed = in_loss.filter(has_advantage()) if recipe.only_advantages else in_loss
        packed = micro_batches(computed, params.update.pack_tokens, one_by_one=one_by_one)
        done = kept.inside.done

        def progress(total: int = len(packed), number: int = number) -> None:
            nonlocal done
            done += 1
            unit = "micro-batches" if recipe.steps == 1 else f"micro-batches of step {number}/{recipe.steps}"
            journal.progress(done, total, unit)

        with gradient_checkpointing(model, params.update.gradient_checkpointing, "update.gradient_checkpointing"):
            row = optimizer_step(
                model, optimizer, in_loss, packed, recipe, progress, kept, save_to if number == recipe.steps else None
            )
        if not row["grad_norm"]:
            journal.say(f"step {number}: no row has a gradient; weights and optimizer state stay as they are")
        nothing_follows = number == recipe.steps and params.critic is None
        kept.taken(
            {"iteration": iteration, "step": number, "epoch": epoch, "rows": batch.height, **row}, last=nothing_follows
        )
    return kept.rows


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    rows = training_rows(name, needs_reference=params.score.kl.beta_in("loss") > 0)
    check_critic(name, rows, params.critic)
    update_policy(name, rows, params, models, journal)
    if params.critic is not None:
        release()  # the policy's optimizer, before the critic has one
    update_critic(name, rows, params, models, journal)


def work_of(model: Any, before: str, rows: pl.DataFrame, iteration: int, params: Params) -> Work:
    """What the steps depend on, beside the policy that they start from."""
    content = {
        "optimizer": file_hash(paths.optimizer(before)),
        "rows": frame_hash(rows),
        "iteration": iteration,
        "seed": params.seed,
        "update": params.update.model_dump(mode="json"),
        "kl": params.score.kl.model_dump(mode="json"),
        "rollout": [params.rollout.temperature, params.rollout.max_new_tokens],
    }
    return Work("policy-steps", "optimizer steps", ("update",), model, content)


def update_policy(name: str, rows: pl.DataFrame, params: Params, models: Models, journal: Journal) -> None:
    iteration, before = paths.iteration_number(name), paths.previous(name)
    model = models.policy(paths.policy(before))
    models.keep_policy_alone()
    optimizer = StoredAdamW(trainable(model), params.update)
    optimizer.load(paths.optimizer(before))
    state = state_of(work_of(model, before, rows, iteration, params), optimizer)
    models.dirty()
    with publish(paths.optimizer(name)) as scratch, ThreadPoolExecutor(1) as beside:
        steps = run_steps(model, optimizer, rows, iteration, params, journal, state, scratch)
        if not scratch.exists():
            optimizer.save(scratch)
        syncing = beside.submit(sync, scratch)  # which the disk does while the policy is written and hashed
        with publish(paths.policy(name)) as folder:
            save_policy(model, paths.policy(before), folder)
        syncing.result()
    write_table(pl.DataFrame(steps, schema=STEPS), STEPS, ("iteration", "step"), paths.steps(name))
    models.saved(paths.policy(name))
    last = steps[-1]
    journal.say(f"loss {last['loss']:.4f}, gradient norm {last['grad_norm']:.3f}, {last['tokens']} tokens")
