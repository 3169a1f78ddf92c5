"""The batch that is alive: its rows, their cache, and the forward passes that read prompts and go on with tokens.

Dimension suffixes: P prompts, B live sequences, L columns of the cache, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from stages.common.errors import StageError
from stages.common.seeds import uniforms
from stages.rollout.cache import join, new_cache, select
from stages.rollout.samples import Request, Sample, SamplerSettings


@dataclass(frozen=True)
class Row:
    """One sequence: what it has said, its own random numbers, the length of its prompt."""

    sample: Sample
    uniform_T: np.ndarray
    prompt: int

    @property
    def uniform(self) -> float:
        """Of the next token."""
        return float(self.uniform_T[len(self.sample.completion_ids)])


@dataclass
class Live:
    """`padding_B`: columns before each row's own in the cache; `width`: columns in all."""

    rows: list[Row]
    cache: DynamicCache
    padding_B: Tensor
    width: int

    @property
    def longest(self) -> int:
        return max(row.prompt for row in self.rows)


def read_prompts(
    model: Any, requests: Sequence[Request], samples: Sequence[Sequence[Sample]], settings: SamplerSettings
) -> tuple[Live, Tensor]:
    """Read each prompt once (left-padded), then repeat its cache and its last logits [B, V] for every sample."""
    device = next(model.parameters()).device
    lengths = [len(request.prompt_ids) for request in requests]
    width = max(lengths)
    ids_PL = torch.tensor([[0] * (width - len(request.prompt_ids)) + list(request.prompt_ids) for request in requests])
    padding_P = torch.tensor([width - length for length in lengths], device=device)
    cache = new_cache(model)
    logits_PV = forward(model, ids_PL.to(device), padding_P, cache)
    if cache.get_seq_length() != width:
        raise StageError(
            "this model does not fill the key-value cache that it is given; it cannot be sampled from here"
        )
    owner_B = torch.tensor([p for p, request in enumerate(requests) for _ in request.seeds], device=device)
    select(cache, owner_B, 0)
    rows = [
        Row(one, uniforms(seed, settings.max_new_tokens), len(request.prompt_ids))
        for request, group in zip(requests, samples, strict=True)
        for seed, one in zip(request.seeds, group, strict=True)
    ]
    return Live(rows, cache, padding_P[owner_B], width), logits_PV[owner_B]


def merge(live: Live, new: Live) -> Live:
    """Both as one batch, those that were there first."""
    width = max(live.width, new.width)
    join(live.cache, new.cache)
    padding_B = torch.cat([one.padding_B + (width - one.width) for one in (live, new)])
    return Live([*live.rows, *new.rows], live.cache, padding_B, width)


def keep_rows(live: Live, keep: Sequence[int], *, trim: bool) -> Live:
    """The batch without rows that have ended. `trim`: and without columns that are padding in all that stay."""
    if len(keep) == len(live.rows):
        return live
    index_B = torch.tensor(keep, device=live.padding_B.device)
    padding_B = live.padding_B[index_B]
    skip = int(padding_B.min()) if trim else 0
    select(live.cache, index_B, skip)
    return Live([live.rows[i] for i in keep], live.cache, padding_B - skip, live.width - skip)


def go_on(model: Any, live: Live, token_B: Tensor) -> Tensor:
    """Read one more token of each row: the logits [B, V] of the next."""
    live.width += 1
    return forward(model, token_B.to(live.padding_B.device)[:, None], live.padding_B, live.cache)


def forward(model: Any, ids_BL: Tensor, padding_B: Tensor, cache: DynamicCache) -> Tensor:
    """Logits [B, V] in float32 of the last position, after ids that follow what the cache holds."""
    before = cache.get_seq_length()
    column_L = torch.arange(before + ids_BL.shape[1], device=ids_BL.device)
    place_BL = column_L - padding_B[:, None]
    output = model(
        input_ids=ids_BL,
        attention_mask=(place_BL >= 0).long(),
        position_ids=place_BL[:, before:].clamp(min=0),
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits_BV: Tensor = output.logits[:, -1].float()
    return logits_BV
