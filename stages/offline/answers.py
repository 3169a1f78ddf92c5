"""Log-probs of the answers of pairs, with gradient for a micro-batch, or without for any number of pairs.

Dimension suffixes: P pairs, 2 answers: the chosen one, the rejected one; T completion tokens of the forward passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from stages.common.logprobs import row_logprobs
from stages.offline.objective import Answers
from stages.offline.pairs import Pair, micro_batches, packed_rows


@dataclass(frozen=True)
class Reading:
    """How pairs are read: the temperature of all log-probs, tokens of a forward pass, and whether answers go alone."""

    temperature: float
    max_tokens: int
    one_by_one: bool


def answers_of(model: Any, pairs: Sequence[Pair], reading: Reading) -> Answers:
    """With gradient, if gradients are enabled, through all forward passes at once."""
    rows = packed_rows(pairs, reading.max_tokens, one_by_one=reading.one_by_one)
    logp_T = torch.cat([row_logprobs(model, row, reading.temperature) for row in rows])
    answer_T = torch.tensor([answer for row in rows for answer in row.row_T], device=logp_T.device)
    return Answers(
        logp_P2=logp_T.new_zeros(2 * len(pairs)).index_add(0, answer_T, logp_T).view(-1, 2),
        length_P2=logp_T.new_tensor([pair.lengths for pair in pairs]),
        reference_P2=_reference(pairs, logp_T),
    )


def _reference(pairs: Sequence[Pair], like: Tensor) -> Tensor | None:
    known = [pair.reference for pair in pairs if pair.reference is not None]
    return like.new_tensor(known) if len(known) == len(pairs) else None


@torch.no_grad()
def with_reference(
    model: Any, pairs: Sequence[Pair], reading: Reading, progress: Callable[[int, int], None]
) -> list[Pair]:
    """The pairs, in order, with the log-probs of their answers under `model`; `progress` hears how many are done."""
    known: dict[str, tuple[float, float]] = {}
    for batch in micro_batches(pairs, reading.max_tokens, one_by_one=reading.one_by_one):
        progress(len(known), len(pairs))
        for pair, (chosen, rejected) in zip(batch, answers_of(model, batch, reading).logp_P2.tolist(), strict=True):
            known[pair.pair_id] = (chosen, rejected)
    progress(len(known), len(pairs))
    return [replace(pair, reference=known[pair.pair_id]) for pair in pairs]
