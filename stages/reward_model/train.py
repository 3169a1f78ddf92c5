"""Training on pairs: optimizer steps over seeded epochs, each over its micro-batches under one denominator."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from stages.common.journal import Journal
from stages.common.kept.parts import Work
from stages.common.kept.steps import resumed, state_of
from stages.common.optimizer import StoredAdamW
from stages.common.params import RewardModel
from stages.common.policy import trainable
from stages.common.reward_model import padded, score_batch
from stages.reward_model.loss import pair_losses
from stages.reward_model.pairs import Pair, epoch_batches, micro_batches


def train(
    model: Any, pairs: Sequence[Pair], settings: RewardModel, seed: int, journal: Journal
) -> list[dict[str, Any]]:
    """All optimizer steps on the trainable weights of `model`, one row of the steps table each. Steps that a killed
    run of the stage had taken are not taken again.
    """
    optimizer = StoredAdamW(trainable(model), settings)
    total = settings.epochs * -(-len(pairs) // settings.batch_pairs)
    kept = resumed(state_of(_work(model, pairs, settings, seed), optimizer), total, "optimizer steps")
    for number, (epoch, batch) in enumerate(batches_of(pairs, settings, seed), start=1):
        if number <= len(kept.rows):
            continue
        row = accumulate(model, batch, settings, optimizer)
        norm, rate = optimizer.step()
        kept.taken({"step": number, "epoch": epoch, **row, "grad_norm": norm, "learning_rate": rate})
        journal.progress(number, total, "optimizer steps")
    return kept.rows


def batches_of(pairs: Sequence[Pair], settings: RewardModel, seed: int) -> Iterator[tuple[int, Sequence[Pair]]]:
    """(epoch, pairs) of each optimizer step."""
    for epoch in range(1, settings.epochs + 1):
        for batch in epoch_batches(pairs, settings.batch_pairs, seed, epoch):
            yield epoch, batch


def _work(model: Any, pairs: Sequence[Pair], settings: RewardModel, seed: int) -> Work:
    content = {"pairs": [vars(pair) for pair in pairs], "settings": settings.model_dump(mode="json"), "seed": seed}
    return Work("reward-steps", "optimizer steps", ("reward_model",), model, content)


def accumulate(model: Any, batch: Sequence[Pair], settings: RewardModel, optimizer: StoredAdamW) -> dict[str, Any]:
    """Gradients of the mean loss over the batch; they do not depend on its micro-batches, nor on its order."""
    sums = dict.fromkeys(("loss", "accuracy", "difference"), 0.0)
    for micro in micro_batches(batch, settings.batch_tokens):
        sequences = [pair.chosen_ids for pair in micro] + [pair.rejected_ids for pair in micro]
        chosen_P, rejected_P = score_batch(model, *padded(sequences)).chunk(2)
        margin_P = torch.tensor([pair.margin for pair in micro], device=chosen_P.device)
        loss = pair_losses(chosen_P, rejected_P, margin_P, settings.centring).sum() / len(batch)
        torch.autograd.backward(loss)
        optimizer.collect_gradients()
        sums["loss"] += loss.item()
        sums["accuracy"] += (chosen_P > rejected_P).sum().item() / len(batch)
        sums["difference"] += (chosen_P - rejected_P).sum().item() / len(batch)
    tokens = sum(len(pair.chosen_ids) + len(pair.rejected_ids) for pair in batch)
    return {"pairs": len(batch), "tokens": tokens, **sums}
