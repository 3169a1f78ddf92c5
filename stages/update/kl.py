"""KL to the reference inside the loss, per token, by the three estimators of Schulman's "Approximating KL divergence".

    k1 = log(pi / pi_ref)       unbiased as a value; its gradient is zero in expectation: it regularises nothing
    k2 = k1^2 / 2               biased as a value; its gradient is that of KL(pi || pi_ref)
    k3 = pi_ref / pi - 1 + k1   unbiased as a value, never negative; its gradient is that of KL(pi_ref || pi)

All of it on-policy, and of the KL of one token given those before it. Multiplied by the ratio pi / pi_old, whose
gradient counts as well, k1 and k3 have the gradient of KL(pi || pi_ref), on-policy and off it.
"""

from torch import Tensor

from stages.common.params import Kl
from stages.update.tokens import Tokens


def kl_terms(tokens: Tokens, ref_T: Tensor, options: Kl) -> Tensor:
    """[T], in nats (k2: nats squared), with gradient."""
    kl_T = estimate(tokens.logp_T - ref_T, options.estimator)
    return kl_T * tokens.log_ratio().exp() if options.importance_weighted else kl_T


def estimate(k1_T: Tensor, estimator: str) -> Tensor:
    """[T], from log(pi / pi_ref)."""
    match estimator:
        case "k1":
            return k1_T
        case "k2":
            return k1_T.square() / 2
        case "k3":
            return (-k1_T).exp() - 1 + k1_T
    raise ValueError(f"no KL estimator {estimator!r}")
