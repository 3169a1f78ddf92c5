"""KL to the reference inside the loss, per token, by the three estimators of Schulman's "Approximating KL divergence".

    k1 = log(pi / pi_ref)       unbiased as a value; its gradient is zero in expectation: it regularises nothing
    k2 = k1^2 / 2               biased as a value; its gradient is that of KL(pi || pi_ref)
    k3 = pi_ref / pi - 1 + k1   unbiased as a value, never negative; its gradient is that of KL(pi_ref || pi)

All of it on-policy, and of the KL of one token given those before it.
"""

from typing import Literal

from torch import Tensor


def kl_terms(logp_T: Tensor, ref_T: Tensor, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """[T], in nats (k2: nats squared), with gradient."""
    difference_T = logp_T - ref_T
    if estimator == "k1":
        return difference_T
    if estimator == "k2":
        return difference_T.square() / 2
    return (-difference_T).exp() - 1 + difference_T
