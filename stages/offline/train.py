"""Training on pairs: optimizer steps over seeded epochs, each over its micro-batches under one denominator.

loss = (1/P) * sum over the pairs of the optimizer step of the objective's loss of a pair
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from stages.common.journal import Journal
from stages.common.kept.parts import Work
from stages.common.kept.steps import State, resumed
from stages.common.optimizer import StoredAdamW
from stages.common.params import Offline
from stages.offline.answers import Reading, answers_of
from stages.offline.objective import terms_of
from stages.offline.pairs import Pair, Splits, epoch_batches, micro_batches


def accumulate(
    model: Any, batch: Sequence[Pair], settings: Offline, reading: Reading, optimizer: StoredAdamW
) -> dict[str, Any]:
    """Gradients of the mean loss over the batch; they depend neither on its micro-batches nor on its order."""
    sums = dict.fromkeys(("loss", "accuracy", "difference"), 0.0)
    for micro in micro_batches(batch, reading.max_tokens, one_by_one=reading.one_by_one):
        terms = terms_of(answers_of(model, micro, reading), settings)
        loss = terms.loss_P.sum() / len(batch)
        torch.autograd.backward(loss)
        optimizer.collect_gradients()
        sums["loss"] += loss.item()
        sums["accuracy"] += terms.right.sum().item() / len(batch)
        sums["difference"] += terms.difference_P.sum().item() / len(batch)
    return {"pairs": len(batch), "tokens": sum(sum(pair.lengths) for pair in batch), **sums}


@torch.no_grad()
def measure(model: Any, pairs: Sequence[Pair], settings: Offline, reading: Reading) -> dict[str, float | None]:
    """Mean loss and accuracy on held-out pairs; null if there are none."""
    if not pairs:
        return {"heldout_loss": None, "heldout_accuracy": None}
    loss = right = 0.0
    for batch in micro_batches(pairs, reading.max_tokens, one_by_one=reading.one_by_one):
        terms = terms_of(answers_of(model, batch, reading), settings)
        loss += terms.loss_P.sum().item()
        right += terms.right.sum().item()
    return {"heldout_loss": loss / len(pairs), "heldout_accuracy": right / len(pairs)}


def train(
    model: Any,
    optimizer: StoredAdamW,
    splits: Splits,
    settings: Offline,
    reading: Reading,
    run_seed: int,
    journal: Journal,
    state: State | None = None,
) -> list[dict[str, Any]]:
    """All epochs; one row per optimizer step, and row 0 for what the policy was before the first. Steps that a killed
    run of the stage had taken are not taken again.
    """
    before = {"step": 0, "epoch": 0, "pairs": 0, "tokens": 0}
    per_epoch = -(-len(splits.training) // settings.batch_pairs)
    total = settings.epochs * per_epoch
    kept = resumed(state, total, "optimizer steps", before=1)
    if not kept.rows:
        kept.taken(before | measure(model, splits.heldout, settings, reading))
    for number, (epoch, batch) in enumerate(batches_of(splits.training, settings, run_seed), start=1):
        if number < len(kept.rows):
            continue
        row = accumulate(model, batch, settings, reading, optimizer)
        norm, rate = optimizer.step()
        row = {"step": number, "epoch": epoch, **row, "grad_norm": norm, "learning_rate": rate}
        journal.progress(number, total, "optimizer steps")
        if number % per_epoch == 0:
            row |= measure(model, splits.heldout, settings, reading)
        kept.taken(row, last=number == total)
    return kept.rows


def batches_of(pairs: Sequence[Pair], settings: Offline, run_seed: int) -> Iterator[tuple[int, Sequence[Pair]]]:
    """(epoch, pairs) of each optimizer step."""
    for epoch in range(1, settings.epochs + 1):
        for batch in epoch_batches(pairs, settings.batch_pairs, run_seed, epoch):
            yield epoch, batch


def work_of(model: Any, splits: Splits, settings: Offline, reading: Reading, run_seed: int) -> Work:
    """What the steps depend on, beside the policy that they start from."""
    pairs = [[vars(pair) for pair in part] for part in (splits.training, splits.heldout)]
    content = {"pairs": pairs, "settings": settings.model_dump(mode="json"), "reading": vars(reading), "seed": run_seed}
    return Work("offline-steps", "optimizer steps", ("offline",), model, content)
