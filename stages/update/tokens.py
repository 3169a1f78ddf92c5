"""What an objective sees of a micro-batch, and what it gives back.

Dimension suffixes: T completion tokens of the micro-batch, row after row; R its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """Log-probs in nats, at the sampling temperature. Only `logp_T` has a gradient."""

    logp_T: Tensor  # of the policy that is being trained
    old_T: Tensor  # of the policy that the ratio compares with
    advantage_T: Tensor
    row_T: Tensor  # which row a token belongs to, from 0, in order
    length_R: Tensor  # tokens of each row

    def log_ratio(self) -> Tensor:
        """[T]."""
        return self.logp_T - self.old_T

    def sum_rows(self, value_T: Tensor) -> Tensor:
        """Sum [R] over the tokens of each row."""
        return torch.zeros(len(self.length_R), dtype=value_T.dtype, device=value_T.device).index_add(
            0, self.row_T, value_T
        )

    def spread(self, value_R: Tensor) -> Tensor:
        """The value [T] of each token's row."""
        return value_R[self.row_T]


@dataclass(frozen=True)
class Terms:
    """An objective's loss terms, before the reduction; which ratios it clipped; what its terms belong to.

    A term that belongs to a whole sequence stands on each of its tokens.
    """

    loss_T: Tensor
    ratio_T: Tensor  # that the objective looks at, without gradient
    clipped_low_T: Tensor | None = None  # boolean; None: the objective does not clip
    clipped_high_T: Tensor | None = None
    clipped_dual_T: Tensor | None = None  # negative advantages whose ratio the dual clip bounds
    of_sequences: bool = False


def rows_of(row_T: Sequence[int]) -> tuple[list[int], list[int]]:
    """The rows that occur, in order, and how many tokens each has. The tokens of a row have to lie together."""
    rows = list(dict.fromkeys(row_T))
    counts = dict.fromkeys(rows, 0)
    for row in row_T:
        counts[row] += 1
    return rows, list(counts.values())
