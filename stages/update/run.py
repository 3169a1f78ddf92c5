"""Stage `update`: policy i-1, rollouts, advantages -> policy i, optimizer state i, steps.parquet."""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.files import publish
from stages.common.gate import check_same_keys
from stages.common.journal import Journal
from stages.common.logprobs import takes_block_mask
from stages.common.params import Params, ParamsError
from stages.common.policy import Models, save_policy, trainable
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, STEPS, read_table, write_table
from stages.update.batches import micro_batches, minibatches
from stages.update.optimizer import StoredAdamW
from stages.update.step import optimizer_step


def training_rows(name: str) -> pl.DataFrame:
    """Rollouts, advantages and prompt ids of the iteration, joined by key, greedy rows left out."""
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    advantages = read_table(paths.advantages(name), ADVANTAGES, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt_ids")
    check_same_keys(rollouts, advantages, "rollouts", "advantages")
    rows = rollouts.join(advantages, on=KEY, validate="1:1", maintain_order="left")
    return rows.join(prompts, on="prompt_id", validate="m:1", maintain_order="left").filter(pl.col("kind") == "sample")


def run_steps(
    model: Any, optimizer: StoredAdamW, rows: pl.DataFrame, iteration: int, params: Params, journal: Journal
) -> list[dict[str, Any]]:
    """All optimizer steps of the iteration, one row of the steps table each."""
    one_by_one = not takes_block_mask(model)
    steps: list[dict[str, Any]] = []
    batches = minibatches(rows, params.update.minibatches, params.seed, iteration)
    for number, batch in enumerate(batches, start=1):
        in_loss = batch.filter("in_loss").with_row_index("index")
        packed = micro_batches(
            in_loss.filter(pl.col("advantage") != 0.0), params.update.pack_tokens, one_by_one=one_by_one
        )
        done = 0

        def progress(total: int = len(packed)) -> None:
            nonlocal done
            done += 1
            journal.progress(done, total, "micro-batches")

        if not packed:
            journal.say(f"step {number}: no row has a gradient; weights and optimizer state stay as they are")
        row = optimizer_step(model, optimizer, in_loss, packed, params.rollout.temperature, progress)
        steps.append({"iteration": iteration, "step": number, "rows": batch.height, **row})
    return steps


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    iteration, before = paths.iteration_number(name), paths.previous(name)
    rows = training_rows(name)
    prompts = rows["prompt_id"].n_unique()
    if params.update.minibatches > prompts:
        raise ParamsError(
            f"params.yaml: update.minibatches = {params.update.minibatches}: {name} has only {prompts} prompts"
        )
    model = models.policy(paths.policy(before))
    optimizer = StoredAdamW(trainable(model), params.update)
    optimizer.load(paths.optimizer(before))
    models.dirty()
    steps = run_steps(model, optimizer, rows, iteration, params, journal)
    write_table(pl.DataFrame(steps, schema=STEPS), STEPS, ("iteration", "step"), paths.steps(name))
    with publish(paths.optimizer(name)) as scratch:
        optimizer.save(scratch)
    with publish(paths.policy(name)) as scratch:
        save_policy(model, paths.policy(before), scratch)
    models.saved(paths.policy(name))
    last = steps[-1]
    journal.say(f"loss {last['loss']:.4f}, gradient norm {last['grad_norm']:.3f}, {last['tokens']} tokens")
