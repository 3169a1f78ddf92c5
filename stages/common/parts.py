"""Attention over a packed row in parts, so that pairs of tokens that may not look at each other are not computed.

A part is a prompt, or some completions that follow each other: its queries look at their prompt and at the part itself.
So the work grows with the completions' own lengths, where a dense mask costs the square of the row.

Dimension suffixes: L tokens of a packed row, Q queries of a part, K its keys: the prompt, then the part itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from stages.common.packing import PackedRow

SMALL = 64  # tokens: shorter completions share a part, as a call costs more than the pairs it saves


@dataclass(frozen=True)
class Part:
    """The queries `own` of the row, which look at the prompt before them and at themselves under `mask` [1, 1, Q, K];
    without a mask they are a prompt, causally.
    """

    own: slice
    mask: Tensor | None


class PartedMask(Tensor):
    """The dense mask [1, 1, L, L] of a row, for whoever reads it as such, and its parts. What is computed from it is an
    ordinary mask.
    """

    parts: Sequence[Part]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def parted(mask_LL: Tensor, row: PackedRow) -> PartedMask:
    """The dense mask with the parts of the row."""
    found = mask_LL.as_subclass(PartedMask)
    found.parts = [_part(mask_LL, prompt, own) for prompt, own in ranges(row)]
    return found


def _part(mask_LL: Tensor, prompt: slice, own: slice) -> Part:
    if prompt == own:
        return Part(own, None)
    rows = mask_LL[:, :, own]
    return Part(own, torch.cat([rows[..., prompt], rows[..., own]], dim=-1))


def ranges(row: PackedRow) -> list[tuple[slice, slice]]:
    """Prompt and own tokens of each part, in the order of the row."""
    found: list[tuple[slice, slice]] = []
    for start, end in segments(row):
        if row.branch_L[start] == 0:
            prompt = slice(start, end)
            found.append((prompt, prompt))
        elif row.branch_L[start] > 1 and end - found[-1][1].start <= SMALL:
            found[-1] = prompt, slice(found[-1][1].start, end)
        else:
            found.append((prompt, slice(start, end)))
    return found


def segments(row: PackedRow) -> list[tuple[int, int]]:
    """Where each prompt and each completion begins and ends."""
    places = list(zip(row.group_L, row.branch_L, strict=True))
    starts = [place for place in range(len(places)) if place == 0 or places[place] != places[place - 1]]
    return list(zip(starts, [*starts[1:], len(places)], strict=True))


def attention_by_parts(
    module: Any, query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], **options: Any
) -> tuple[Tensor, None]:
    """What torch's scaled dot product attention gives under the dense mask, [1, L, heads, size].

    Parts follow each other without gaps. Splitting all at once makes one gradient; a slice makes one of the whole row.
    """
    lengths = [part.own.stop - part.own.start for part in parts]
    queries, keys, values = (torch.split(given, lengths, dim=2) for given in (query, key, value))
    found, prompt = [], 0
    for number, part in enumerate(parts):
        if part.mask is None:
            prompt = number
        seen = [prompt, number] if part.mask is not None else [number]
        given = (_joined([held[i] for i in seen]) for held in (keys, values))
        found.append(sdpa_attention_forward(module, queries[number], *given, part.mask, **options)[0])
    return torch.cat(found, dim=1), None


def _joined(held: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(held), dim=2) if len(held) > 1 else held[0]
