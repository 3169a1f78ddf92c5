"""Cross-entropy on completions: the steps of supervised fine-tuning, over packed rows.

    loss = -(1/T) * sum over rows and their completion tokens of log pi(y_t | x, y_<t)

T counts the completion tokens of the whole optimizer step, so neither micro-batches nor the order within a step change
it. Tokens of prompts are read and never predicted.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl
import torch

from stages.common.journal import Journal
from stages.common.kept.key import frame_hash
from stages.common.kept.parts import Work
from stages.common.kept.steps import resumed, state_of
from stages.common.logprobs import completion_logprobs, reads_one_by_one, row_logprobs
from stages.common.optimizer import StoredAdamW
from stages.common.packing import Group, PackedRow, pack
from stages.common.params import Sft
from stages.common.seeds import seed_of

TEMPERATURE = 1.0  # of the data, which nobody sampled from this model


def groups_of(rows: pl.DataFrame) -> list[Group]:
    """Each demonstration is a group of its own; `rows` of a group is its place in the frame."""
    pairs = rows.select("prompt_ids", "completion_ids").iter_rows()
    return [Group(prompt, [completion], [place]) for place, (prompt, completion) in enumerate(pairs)]


def micro_batches(rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> list[PackedRow]:
    """Packed rows, the longest first."""
    return pack(groups_of(rows), max_tokens, one_by_one=one_by_one)


def epoch_batches(rows: pl.DataFrame, sequences: int, run_seed: int, epoch: int) -> Iterator[pl.DataFrame]:
    """The rows of each optimizer step, in an order drawn anew for the epoch; the last step takes what is left."""
    seeds = [seed_of(run_seed, "sft", epoch, prompt_id) for prompt_id in rows["prompt_id"]]
    ordered = rows.with_columns(_order=pl.Series(seeds, dtype=pl.UInt64)).sort("_order", "prompt_id").drop("_order")
    yield from ordered.iter_slices(sequences)


def optimizer_step(model: Any, optimizer: StoredAdamW, packed_rows: list[PackedRow]) -> dict[str, Any]:
    """Take one step over all its micro-batches; its numbers, by the columns of the steps table."""
    tokens, loss = sum(len(packed.target_T) for packed in packed_rows), 0.0
    for packed in packed_rows:
        logp_T = row_logprobs(model, packed, TEMPERATURE)
        part = -logp_T.sum() / tokens
        torch.autograd.backward(part)
        optimizer.collect_gradients()
        loss += part.item()
    norm, rate = optimizer.step()
    return {"loss": loss, "grad_norm": norm, "learning_rate": rate, "tokens": tokens, "heldout_loss": None}


def mean_loss(model: Any, rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> float:
    """Nats per completion token, without gradient."""
    found = completion_logprobs(model, groups_of(rows), TEMPERATURE, max_tokens, one_by_one=one_by_one)
    logprobs = [logp for row in found.values() for logp in row]
    return -sum(logprobs) / len(logprobs)


def train(
    model: Any, optimizer: StoredAdamW, table: pl.DataFrame, sft: Sft, run_seed: int, journal: Journal
) -> list[dict[str, Any]]:
    """All epochs; one row per optimizer step, and row 0 for what the model was before the first. Steps that a killed
    run of the stage had taken are not taken again.
    """
    training, heldout = table.filter(split="train"), table.filter(split="heldout")
    one_by_one = reads_one_by_one(model, journal)
    per_epoch = -(-training.height // sft.batch_sequences)
    total = sft.epochs * per_epoch
    kept = resumed(state_of(_work(model, table, sft, run_seed), optimizer), total, "optimizer steps", before=1)
    if not kept.rows:
        kept.taken(_before(mean_loss(model, heldout, sft.pack_tokens, one_by_one=one_by_one)))
    batches = (
        (e, batch)
        for e in range(1, sft.epochs + 1)
        for batch in epoch_batches(training, sft.batch_sequences, run_seed, e)
    )
    for number, (epoch, batch) in enumerate(batches, start=1):
        if number < len(kept.rows):
            continue
        packed_rows = micro_batches(batch, sft.pack_tokens, one_by_one=one_by_one)
        row = {"step": number, "epoch": epoch, **optimizer_step(model, optimizer, packed_rows)}
        journal.progress(number, total, "optimizer steps")
        if number % per_epoch == 0:
            row["heldout_loss"] = mean_loss(model, heldout, sft.pack_tokens, one_by_one=one_by_one)
            journal.say(f"epoch {epoch} of {sft.epochs}: held-out loss {row['heldout_loss']:.4f} nats per token")
        kept.taken(row, last=number == total)
    return kept.rows


def _work(model: Any, table: pl.DataFrame, sft: Sft, run_seed: int) -> Work:
    content = {"table": frame_hash(table), "sft": sft.model_dump(mode="json"), "seed": run_seed}
    return Work("sft-steps", "optimizer steps", ("sft",), model, content)


def _before(heldout_loss: float) -> dict[str, Any]:
    nothing = {"loss": None, "grad_norm": None, "learning_rate": None, "tokens": 0}
    return {"step": 0, "epoch": 0, **nothing, "heldout_loss": heldout_loss}
