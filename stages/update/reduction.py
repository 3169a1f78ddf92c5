"""From loss terms of tokens to the loss of an optimizer step.

    sequence_sum       sum over the tokens of a sequence, mean over sequences     divisor N
    response_mean      mean over the tokens of a sequence, mean over sequences    divisor N, each token over its length
    token_mean         mean over all tokens                                       divisor the number of tokens
    constant_length    as sequence_sum, over a constant length                    divisor N * constant_length

N and the number of tokens are those of all rows in the loss of the optimizer step: they depend neither on micro-batches
nor on rows that are skipped because they have no gradient. A term that belongs to a whole sequence stands on each of
its tokens. The product ratio of `ppo` has the sum over tokens inside already: its terms go with sequence_sum, which
then averages them over sequences. The mean ratio of `gspo` goes with the other three, under which it has the gradient
of `reinforce` on-policy.

Dimension suffixes: T tokens of a micro-batch, R its rows.
"""

from dataclasses import dataclass

from torch import Tensor

from stages.common.params import Update
from stages.update.tokens import Tokens


@dataclass(frozen=True)
class Totals:
    """Rows and tokens in the loss of the whole optimizer step, and the constant length."""

    rows: int
    tokens: int
    constant_length: int


def reduce_terms(loss_T: Tensor, tokens: Tokens, options: Update, totals: Totals, *, of_sequences: bool) -> Tensor:
    """This micro-batch's share of the step's loss (scalar); the shares add up to it."""
    per_response = options.reduction == "response_mean" or (of_sequences and options.reduction == "sequence_sum")
    weighted_T = loss_T / tokens.spread(tokens.length_R) if per_response else loss_T
    return weighted_T.sum() / divisor(options, totals)


def divisor(options: Update, totals: Totals) -> int:
    if options.reduction == "token_mean":
        return totals.tokens
    return totals.rows * (totals.constant_length if options.reduction == "constant_length" else 1)
