"""The loss of a micro-batch: the objective's terms, importance weights, KL and entropy, each reduced over the step.

    loss = reduce(objective * importance weight) + beta * reduce(KL) - entropy_bonus * mean entropy of a token

Dimension suffixes: T completion tokens of the micro-batch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.common.logprobs import row_logprobs_and_entropy
from stages.common.packing import PackedRow
from stages.update.importance import importance_weights
from stages.update.kl import kl_terms
from stages.update.meter import Meter
from stages.update.objective import objective_terms
from stages.update.recipe import Recipe
from stages.update.reduction import Totals, reduce_terms
from stages.update.rows import StepRows
from stages.update.tokens import Tokens


@dataclass(frozen=True)
class Parts:
    """This micro-batch's shares (scalars) of the three parts of the loss; the weights are in them."""

    policy: Tensor
    kl: Tensor | float
    entropy: Tensor | float

    @property
    def total(self) -> Tensor:
        return self.policy + self.kl - self.entropy


def micro_batch_loss(
    model: Any, packed: PackedRow, rows: StepRows, recipe: Recipe, totals: Totals, meter: Meter
) -> Parts:
    """Forward pass and loss, with gradient. Without KL, entropy bonus and weights it is the objective alone."""
    logp_T, entropy_T = row_logprobs_and_entropy(model, packed, recipe.temperature)
    corrected = recipe.update.importance_correction is not None
    tokens = rows.tokens(packed, logp_T, old_is_now=corrected)
    sampler_T = rows.column(rows.sampler, packed, logp_T.device)
    bonus = recipe.update.entropy_bonus
    terms = objective_terms(tokens, recipe.update)
    meter.add(tokens, terms, sampler_T, entropy_T)
    weighted_T = terms.loss_T * _weights(tokens, sampler_T, recipe, meter) if corrected else terms.loss_T
    return Parts(
        policy=reduce_terms(weighted_T, tokens, recipe.update, totals, of_sequences=terms.of_sequences),
        kl=_kl_loss(tokens, rows, packed, recipe, totals) if recipe.kl_beta else 0.0,
        entropy=bonus * entropy_T.sum() / totals.tokens if bonus else 0.0,
    )


def _weights(tokens: Tokens, sampler_T: Tensor, recipe: Recipe, meter: Meter) -> Tensor:
    assert recipe.update.importance_correction is not None
    weight_T, outside_T = importance_weights(tokens, sampler_T, recipe.update.importance_correction)
    meter.add_importance(weight_T, outside_T)
    return weight_T


def _kl_loss(tokens: Tokens, rows: StepRows, packed: PackedRow, recipe: Recipe, totals: Totals) -> Tensor:
    assert rows.reference is not None, "training rows bring the reference's log-probs where the KL is in the loss"
    ref_T = rows.column(rows.reference, packed, tokens.logp_T.device)
    kl_T = kl_terms(tokens, ref_T, recipe.kl)
    return recipe.kl_beta * reduce_terms(kl_T, tokens, recipe.update, totals, of_sequences=False)


def scalar(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, torch.Tensor) else value
