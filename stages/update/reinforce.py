"""REINFORCE with a given advantage (Williams 1992): loss_t = -A * log pi(y_t | x, y_<t).

There is no ratio and nothing is clipped: with one optimizer step per iteration the samples are the policy's own.
"""

from stages.update.tokens import Terms, Tokens


def reinforce(tokens: Tokens) -> Terms:
    """One term per token."""
    return Terms(-(tokens.advantage_T * tokens.logp_T), tokens.log_ratio().detach().exp())
