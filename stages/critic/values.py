"""The critic's values of completions: what it expects before each token, from the prompt and the tokens before it.

Packed rows are read as they are for log-probs, with the same block mask: the value of a token stands where its
log-prob is predicted. The head's product is in float32, as bfloat16 would round values near 1 to multiples of 1/128.

Dimension suffixes: T completion tokens of a packed row, H hidden size.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stages.common.block_mask import has_full_attention, use_dense_masks
from stages.common.body import row_hidden
from stages.common.journal import Journal
from stages.common.kept.parts import Part, Work, in_parts
from stages.common.logprobs import PROBE, PROBE_TOLERANCE, by_row, say_one_by_one
from stages.common.once import once_per_model
from stages.common.packing import Group, PackedRow, pack


def row_values(model: Any, row: PackedRow) -> Tensor:
    """Values [T] in float32 or better; with gradient, if gradients are enabled."""
    hidden_TH, head = row_hidden(model, row), model.score
    dtype = torch.promote_types(hidden_TH.dtype, torch.float32)
    bias = None if head.bias is None else head.bias.to(dtype)
    return linear(hidden_TH.to(dtype), head.weight.to(dtype), bias)[:, 0]


@torch.no_grad()
def completion_values(
    model: Any,
    groups: Sequence[Group],
    max_tokens: int,
    *,
    one_by_one: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, list[float]]:
    """Values of every completion, keyed by the caller's row index. `progress` hears how many passes are done.

    Passes that a killed run of the stage had finished are not made again.
    """
    packed_rows = pack(groups, max_tokens, one_by_one=one_by_one)

    def one_pass(number: int) -> Part:
        return {"value": row_values(model, packed_rows[number]).cpu()}

    content = {"passes": [vars(packed) for packed in packed_rows]}
    work = Work("values", "passes of the critic", ("critic",), model, content)
    return by_row(packed_rows, "value", in_parts(work, len(packed_rows), one_pass), progress)


@once_per_model
@torch.no_grad()
def takes_block_mask(model: Any) -> bool:
    """Whether the model honours a block mask, tried on its hidden states: a head of zeros would hide a difference."""
    if not has_full_attention(model):
        return False
    return _honours(model) or (use_dense_masks(model) and _honours(model))


def reads_one_by_one(model: Any, journal: Journal) -> bool:
    """Whether each completion has to have a pass of its own, which the journal then says."""
    return say_one_by_one("the critic", journal, packed=takes_block_mask(model))


def _honours(model: Any) -> bool:
    plain = _probe(model, one_by_one=True)
    try:
        packed = _probe(model, one_by_one=False)
    except (ValueError, TypeError, RuntimeError):  # a model that builds its own mask from the shape of a padding mask
        return False
    size = max(1.0, float(plain.abs().max()))
    return float((packed - plain).abs().max()) < PROBE_TOLERANCE.get(model.dtype, 1e-2) * size


def _probe(model: Any, *, one_by_one: bool) -> Tensor:
    """Hidden states of the probe, in the order of its rows, whatever the order of the passes."""
    rows = pack(PROBE, 64, one_by_one=one_by_one)
    order = torch.tensor([row for packed in rows for row in packed.row_T]).argsort(stable=True)
    return torch.cat([row_hidden(model, row) for row in rows]).float()[order]
