"""REINFORCE with a given advantage (Williams 1992): loss_i = -A_i * sum_t log pi(y_it | x, y_i<t).

Reduction: sum over the tokens of a sequence, mean over the sequences of the optimizer step. The denominator N is the
number of rows in the loss of the whole step. It does not depend on micro-batches, or on rows skipped because their
advantage is exactly zero.

Dimension suffixes: T completion tokens of a micro-batch, whichever rows they belong to.
"""

from torch import Tensor


def reinforce_loss(logp_T: Tensor, advantage_T: Tensor, rows_in_loss: int) -> Tensor:
    """This micro-batch's share of the step's loss (scalar); the shares add up to the loss.

    `advantage_T` holds each token's sequence advantage, detached; `rows_in_loss` is N of the whole optimizer step.
    """
    return -(advantage_T * logp_T).sum() / rows_in_loss
