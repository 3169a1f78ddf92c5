"""The loss of a micro-batch: the objective's terms, importance weights, KL and entropy, each reduced over the step.

    loss = reduce(objective * importance weight) + beta * reduce(KL) - entropy_bonus * mean entropy of a token

Dimension suffixes: T completion tokens of the micro-batch, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stages.common.logprobs import entropy, row_logprobs
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
    logp_T, logits_TV = row_logprobs(model, packed, recipe.temperature)
    tokens = rows.tokens(packed, logp_T, old_is_now=recipe.update.importance_correction is not None)
    bonus = recipe.update.entropy_bonus
    entropy_T = entropy(logits_TV if bonus else logits_TV.detach())
    return Parts(
        policy=_policy_loss(tokens, rows, packed, recipe, totals, meter, entropy_T),
        kl=_kl_loss(tokens, rows, packed, recipe, totals),
        entropy=bonus * entropy_T.sum() / totals.tokens if bonus else 0.0,
    )


def _policy_loss(
    tokens: Tokens,
    rows: StepRows,
    packed: PackedRow,
    recipe: Recipe,
    totals: Totals,
    meter: Meter,
    entropy_T: Tensor,
) -> Tensor:
    terms = objective_terms(tokens, recipe.update)
    sampler_T = rows.column(rows.sampler, packed, tokens.logp_T.device)
    meter.add(tokens, terms, sampler_T, entropy_T)
    loss_T = terms.loss_T
    if recipe.update.importance_correction is not None:
        weight_T, outside_T = importance_weights(tokens, sampler_T, recipe.update.importance_correction)
        meter.add_importance(weight_T, outside_T)
        loss_T = loss_T * weight_T
    return reduce_terms(loss_T, tokens, recipe.update, totals, of_sequences=terms.of_sequences)


def _kl_loss(tokens: Tokens, rows: StepRows, packed: PackedRow, recipe: Recipe, totals: Totals) -> Tensor | float:
    if not recipe.kl_beta:
        return 0.0
    if rows.reference is None:
        raise ValueError("the KL inside the loss needs the reference's log-probs")
    ref_T = rows.column(rows.reference, packed, tokens.logp_T.device)
    kl_T = kl_terms(tokens, ref_T, recipe.kl)
    return recipe.kl_beta * reduce_terms(kl_T, tokens, recipe.update, totals, of_sequences=False)


def scalar(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, torch.Tensor) else value
