"""Micro-batches by hand: log-probs of rows of unequal length."""

import torch

from stages.common.params import Update
from stages.update.reduction import Totals, reduce_terms
from stages.update.reinforce import reinforce
from stages.update.tokens import Tokens


def tokens_of(logp, old, advantage):
    """Lists of rows, each a list of its tokens' values; a row's advantage may be one number."""
    lengths = [len(row) for row in logp]
    per_token = [a if isinstance(a, list) else [a] * n for a, n in zip(advantage, lengths, strict=True)]

    def flat(rows):
        return torch.tensor([x for row in rows for x in row], dtype=torch.float64)

    return Tokens(
        logp_T=flat(logp).requires_grad_(),
        old_T=flat(old),
        advantage_T=flat(per_token),
        row_T=torch.tensor([row for row, n in enumerate(lengths) for _ in range(n)]),
        length_R=torch.tensor(lengths),
    )


def reinforce_loss(logp_RT, advantage_RT):
    """The default loss of rows of one length: REINFORCE, tokens summed, rows averaged."""
    rows, length = logp_RT.shape
    tokens = Tokens(
        logp_T=logp_RT.flatten(),
        old_T=logp_RT.detach().flatten(),
        advantage_T=advantage_RT.flatten(),
        row_T=torch.arange(rows).repeat_interleave(length),
        length_R=torch.full((rows,), length),
    )
    update = Update(learning_rate=1.0, max_grad_norm=1.0)
    totals = Totals(rows, rows * length, length)
    return reduce_terms(reinforce(tokens).loss_T, tokens, update, totals, of_sequences=False)
