"""The rows in the loss of an optimizer step, by their index, as tensors for the micro-batch that needs them.

Dimension suffixes: T completion tokens of the micro-batch, R its rows.
"""

from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor

from stages.common.packing import PackedRow
from stages.update.tokens import Tokens, rows_of


@dataclass(frozen=True)
class StepRows:
    """Values per token of each row; `old` and `reference` only where the recipe needs them."""

    sampler: list[list[float]]
    advantage: list[list[float]]
    reference: list[list[float]] | None = None
    old: list[list[float]] | None = None

    def column(self, values: list[list[float]], packed: PackedRow, device: torch.device) -> Tensor:
        """The values [T] of the micro-batch's tokens."""
        return torch.tensor([x for row in rows_of(packed.row_T)[0] for x in values[row]], device=device)

    def tokens(self, packed: PackedRow, logp_T: Tensor, *, old_is_now: bool) -> Tokens:
        """What the objective sees. The ratio compares with the stored log-probs `old`, if there are any, or with the
        policy itself (`old_is_now`), or with the sampler.
        """
        device = logp_T.device
        rows, lengths = rows_of(packed.row_T)
        local = {row: place for place, row in enumerate(rows)}
        stored = self.sampler if self.old is None else self.old
        return Tokens(
            logp_T=logp_T,
            old_T=logp_T.detach() if old_is_now and self.old is None else self.column(stored, packed, device),
            advantage_T=self.column(self.advantage, packed, device),
            row_T=torch.tensor([local[row] for row in packed.row_T], device=device),
            length_R=torch.tensor(lengths, device=device),
        )


def step_rows(rows: pl.DataFrame) -> StepRows:
    """`rows` are in the loss and in the order of their index."""
    own = rows["token_advantages"].to_list()
    whole = rows.select("advantage", pl.col("completion_ids").list.len()).rows()
    return StepRows(
        sampler=rows["sampler_logprobs"].to_list(),
        advantage=[
            [advantage] * length if tokens is None else tokens
            for tokens, (advantage, length) in zip(own, whole, strict=True)
        ],
        reference=rows["ref_logprobs"].to_list() if rows["ref_logprobs"].null_count() == 0 else None,
        old=rows["old_logprobs"].to_list() if "old_logprobs" in rows.columns else None,
    )
