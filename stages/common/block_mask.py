"""What a token of a packed row may look at, in the forms that attention takes it.

In models that cannot do otherwise, and in passes that are compiled on a CPU, a dense mask [L, L]. On a CPU the same
mask and the parts of the row (`stages.common.parts`). On CUDA torch's FlexAttention: a function of two positions and
the blocks of 128 x 128 positions that have any pair, so that no [L, L] tensor exists. In both of these, pairs that may
not look at each other are, but for the edges, not computed.

Models take all of them through one attention function, registered with transformers under `BLOCK_ATTENTION`: a pass
with a BlockMask goes to FlexAttention, one with parts through them, and every other one (the sampler's, a row of one
completion) to torch's own kernel. So nothing has to be switched between rollout and update, or between a forward pass
and the backward pass that repeats it.

Dimension suffixes: L tokens of one packed row, N its blocks of 128 tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from stages.common.packing import PackedRow
from stages.common.parts import PartedMask, attention_by_parts, parted

BLOCK_ATTENTION = "sdpa_by_block"
BLOCK = 128  # tokens; the kernels' own block size
NOWHERE = -1  # the group of the positions that fill up the last block


def block_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any) -> Any:
    """FlexAttention for a BlockMask, torch's scaled dot product attention for any other mask, in its parts if it has
    some. A bias of positions is added to a dense mask.
    """
    if isinstance(attention_mask, PartedMask):
        if options.get("position_bias") is None:
            return attention_by_parts(module, query, key, value, attention_mask.parts, **options)
        attention_mask = attention_mask.as_subclass(Tensor)
    forward = flex_attention_forward if isinstance(attention_mask, BlockMask) else sdpa_attention_forward
    return forward(module, query, key, value, attention_mask, **options)


AttentionInterface.register(BLOCK_ATTENTION, block_attention)
AttentionMaskInterface.register(BLOCK_ATTENTION, sdpa_mask)


def has_full_attention(model: Any) -> bool:
    """Whether the model's config speaks of full attention in every layer."""
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return layers == {"full_attention"} and not getattr(config, "sliding_window", None)


def use_block_attention(model: Any, device: torch.device) -> None:
    """Give the model the attention that takes all masks, if its layers leave that to be chosen; on CUDA, if they can do
    with FlexAttention. Models with another attention may go by the name of the kernel, and take no block mask anyway.
    """
    able = has_full_attention(model) and (device.type == "cpu" or model._supports_flex_attn)
    if able and model.config.get_text_config()._attn_implementation == "sdpa":
        model.set_attn_implementation(BLOCK_ATTENTION)


def use_dense_masks(model: Any) -> bool:
    """Take it away again; False if the model does not have it."""
    had = has_block_attention(model)
    if had:
        model.set_attn_implementation("sdpa")
    return had


def has_block_attention(model: Any) -> bool:
    return bool(model.config.get_text_config()._attn_implementation == BLOCK_ATTENTION)


def mask_for(model: Any, row: PackedRow, device: torch.device) -> Tensor | BlockMask:
    """The row's mask in the form that the model's attention takes; a dense one is added to the scores."""
    has_own = has_block_attention(model)
    if has_own and device.type == "cuda":
        return flex_mask(row, device)
    allowed = block_mask(row, device)
    dense = torch.zeros_like(allowed, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
    return parted(dense, row) if has_own else dense


def block_mask(row: PackedRow, device: torch.device) -> Tensor:
    """Boolean [1, 1, L, L], true where the query (third axis) may look at the key (fourth)."""
    group_L = torch.tensor(row.group_L, device=device)
    branch_L = torch.tensor(row.branch_L, device=device)
    same_group_LL = group_L[:, None] == group_L[None, :]
    visible_LL = (branch_L[None, :] == 0) | (branch_L[:, None] == branch_L[None, :])
    causal_LL = torch.ones(len(row.ids_L), len(row.ids_L), dtype=torch.bool, device=device).tril()
    return (same_group_LL & visible_LL & causal_LL)[None, None]


def flex_mask(row: PackedRow, device: torch.device) -> BlockMask:
    """The same as a function of positions, and the blocks in which it is true anywhere."""
    length = len(row.ids_L)
    filled = -length % BLOCK  # kernels ask about whole blocks
    group_L = torch.tensor(row.group_L + [NOWHERE] * filled, device=device)
    branch_L = torch.tensor(row.branch_L + [0] * filled, device=device)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same_group = group_L[query] == group_L[key]
        return (query >= key) & same_group & ((branch_L[key] == 0) | (branch_L[query] == branch_L[key]))

    keys = key_blocks(row)
    count_N = torch.tensor([len(blocks) for blocks in keys], dtype=torch.int32, device=device)
    padded = [blocks + [0] * (len(keys) - len(blocks)) for blocks in keys]
    index_NN = torch.tensor(padded, dtype=torch.int32, device=device)
    return BlockMask.from_kv_blocks(
        count_N[None, None], index_NN[None, None], BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(length, length)
    )


def key_blocks(row: PackedRow) -> list[list[int]]:
    """For each block of queries the blocks of keys with anything that one of them may look at, ascending.

    A query looks at its own completion up to itself and at its prompt; both lie together.
    """
    starts: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}
    segment_L = list(zip(row.group_L, row.branch_L, strict=True))
    for place, segment in enumerate(segment_L):
        starts.setdefault(segment, place)
        ends[segment] = place
    found = []
    for first in range(0, len(segment_L), BLOCK):
        last = min(first + BLOCK, len(segment_L)) - 1
        seen: set[int] = set()
        for group, branch in dict.fromkeys(segment_L[first : last + 1]):
            for segment in {(group, 0), (group, branch)}:
                seen |= set(range(starts[segment] // BLOCK, min(ends[segment], last) // BLOCK + 1))
        found.append(sorted(seen))
    return found
