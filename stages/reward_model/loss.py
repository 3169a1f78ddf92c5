"""The Bradley-Terry loss of a pair (Bradley and Terry 1952; Christiano et al. 2017; Ouyang et al. 2022).

People prefer y+ to y- with probability sigmoid(r(y+) - r(y-)), so the negative log-likelihood of a pair is
-log sigmoid(r(y+) - r(y-)), in nats. A margin (Touvron et al. 2023) asks for a difference of that much. The likelihood
fixes rewards up to a constant per prompt only; centring (Eisenstein et al. 2023) adds c * (r(y+) + r(y-))^2, which
draws the constant to where the two are opposite.

Dimension suffix: P pairs.
"""

from torch import Tensor
from torch.nn.functional import logsigmoid


def pair_losses(chosen_P: Tensor, rejected_P: Tensor, margin_P: Tensor, centring: float) -> Tensor:
    """The loss [P] of each pair; the caller divides by the pairs of the whole optimizer step."""
    likelihood_P = -logsigmoid(chosen_P - rejected_P - margin_P)
    return likelihood_P + centring * (chosen_P + rejected_P) ** 2
