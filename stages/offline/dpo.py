"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290).

The policy that is best for a reward r at a KL penalty beta has r(x, y) = beta * log(pi(y|x) / pi_ref(y|x)) + c(x).
So the policy is a reward model itself, and the Bradley-Terry likelihood of a pair needs no other; c(x) cancels:

    d = beta * ((log pi(y+|x) - log pi_ref(y+|x)) - (log pi(y-|x) - log pi_ref(y-|x)))
    loss = -(1 - e) * log sigmoid(d) - e * log sigmoid(-d)

e is the probability that a label is wrong (conservative DPO, Mitchell 2023); the loss is least at d = log((1 - e) / e),
and without it (e = 0) it never stops pushing the two apart. At the start pi = pi_ref: d = 0, loss = log 2.

Dimension suffixes: P pairs, 2 answers: the chosen one, the rejected one.
"""

from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.common.params import Dpo


def differences(logp_P2: Tensor, reference_P2: Tensor, options: Dpo) -> Tensor:
    """Implicit reward of the chosen answer less that of the rejected one [P], from log-probs of whole answers."""
    reward_P2 = options.beta * (logp_P2 - reference_P2)
    return reward_P2[:, 0] - reward_P2[:, 1]


def losses(difference_P: Tensor, options: Dpo) -> Tensor:
    """Nats of each pair [P]; the caller divides by the pairs of the whole optimizer step."""
    wrong = options.label_smoothing
    return -(1 - wrong) * logsigmoid(difference_P) - wrong * logsigmoid(-difference_P)
