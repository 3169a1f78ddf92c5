"""One token for each row, with its log-prob and the entropy of the distribution.

All three come from one pass of exponentials: with m the largest scaled logit x, w = exp(x - m) and Z = sum(w),

    log p(v) = x_v - m - log Z        H = log Z - sum(w * (x - m)) / Z

so that no tensor of log-probs or probabilities over the vocabulary is made.
Dimension suffixes: B live sequences, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from stages.common.errors import StageError
from stages.common.head import exponentials, weighted_sum
from stages.rollout.draw import in_blocks, invert_cumulative, mass_of
from stages.rollout.live import Row
from stages.rollout.samples import SamplerSettings


def choose(logits_BV: Tensor, rows: Sequence[Row], settings: SamplerSettings) -> Tensor:
    """Draw one token per sequence, on the CPU, and note it with its log-prob and the entropy, in nats."""
    weight_BV = torch.empty_like(logits_BV)
    shifted_BV = exponentials(logits_BV, settings.temperature, weight_BV)
    weight_BNC = in_blocks(weight_BV)
    mass_BN = mass_of(weight_BNC)
    if settings.greedy:
        token_B = logits_BV.argmax(dim=-1).cpu()
    else:
        uniform_B = torch.tensor([row.uniform for row in rows], dtype=torch.float64)
        token_B = invert_cumulative(weight_BNC, mass_BN, uniform_B)
    log_total_B = mass_BN.sum(dim=-1).log()
    logp_B = _at(shifted_BV, token_B).double() - log_total_B
    if not logp_B.isfinite().all():
        raise StageError("the policy's log-probs are not finite: its weights are broken, or the precision too low")
    entropy_B = log_total_B - weighted_sum(weight_BV, shifted_BV).cpu().double() / mass_BN.sum(dim=-1)
    noted = zip(rows, token_B.tolist(), logp_B.tolist(), entropy_B.tolist(), strict=True)
    for row, token, logp, nats in noted:
        row.sample.completion_ids.append(token)
        row.sample.logprobs.append(logp)
        row.sample.entropies.append(nats)
    return token_B


def _at(values_BV: Tensor, token_B: Tensor) -> Tensor:
    return values_BV.gather(-1, token_B.to(values_BV.device)[:, None])[:, 0].cpu()
