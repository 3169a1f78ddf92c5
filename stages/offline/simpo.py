"""Simple preference optimisation (Meng et al. 2024, arXiv 2405.14734).

The reward of an answer is beta times its mean log-prob per token, by which answers are ranked when text is generated:
it takes no reference, and a long answer does not lose by its length. A pair is to differ by a margin (gamma):

    d = beta / |y+| * log pi(y+|x) - beta / |y-| * log pi(y-|x)
    loss = -log sigmoid(d - margin)

|y| counts the tokens of an answer, with the one that ends it. Nothing holds the policy near where it began but the
learning rate and the number of epochs.

Dimension suffixes: P pairs, 2 answers: the chosen one, the rejected one.
"""

from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.common.params import Simpo


def differences(logp_P2: Tensor, length_P2: Tensor, options: Simpo) -> Tensor:
    """Implicit reward of the chosen answer less that of the rejected one [P]; the margin is no part of it."""
    reward_P2 = options.beta * logp_P2 / length_P2
    return reward_P2[:, 0] - reward_P2[:, 1]


def losses(difference_P: Tensor, options: Simpo) -> Tensor:
    """Nats of each pair [P]; the caller divides by the pairs of the whole optimizer step."""
    return -logsigmoid(difference_P - options.margin)
