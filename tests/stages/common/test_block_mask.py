"""FlexAttention's form of the block mask against the dense one."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

from stages.common.block_mask import (
    BLOCK,
    BLOCK_ATTENTION,
    block_mask,
    flex_mask,
    has_block_attention,
    key_blocks,
    use_block_attention,
)
from stages.common.logprobs import completion_logprobs, takes_block_mask
from stages.common.packing import Group, PackedRow
from tests.tiny import llama

CPU = torch.device("cpu")
shapes = st.lists(
    st.tuples(st.integers(1, 150), st.lists(st.integers(1, 150), min_size=1, max_size=3)), min_size=1, max_size=3
)


def packed(groups):
    row = PackedRow()
    for prompt, lengths in groups:
        row.append(Group([9] * prompt, [[5] * n for n in lengths], range(len(lengths))))
    return row


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_both_forms_allow_the_same_pairs_and_no_block_is_left_out_or_too_much(groups):
    row = packed(groups)
    dense, length = block_mask(row, CPU), len(row.ids_L)
    mask = flex_mask(row, CPU)
    assert torch.equal(create_mask(mask.mask_mod, 1, 1, length, length, device="cpu"), dense)
    filled = torch.nn.functional.pad(dense[0, 0], (0, -length % BLOCK, 0, -length % BLOCK))
    count = len(filled) // BLOCK
    by_block = filled.reshape(count, BLOCK, count, BLOCK).any(dim=3).any(dim=1)
    assert key_blocks(row) == [line.nonzero()[:, 0].tolist() for line in by_block]
    assert torch.equal(mask.to_dense()[0, 0].bool(), by_block)


@torch.compiler.set_stance("force_eager")  # the library would compile it, for a minute
def test_flex_attention_gives_the_log_probs_of_the_dense_mask():
    groups = [
        Group([11] * 100, [[21, 22, 23] * 20, [24] * 3, [25, 26] * 30], [0, 1, 2]),
        Group([12, 13], [[31] * 5, [32]], [3, 4]),
    ]
    model = llama()
    dense = completion_logprobs(model, groups, 0.9, 1000)
    use_block_attention(model)
    assert model.config._attn_implementation == BLOCK_ATTENTION
    assert takes_block_mask(model)
    assert has_block_attention(model), "FlexAttention itself was tried, and works"
    flex = completion_logprobs(model, groups, 0.9, 1000)
    for row in dense:
        torch.testing.assert_close(torch.tensor(flex[row]), torch.tensor(dense[row]), rtol=0, atol=1e-4)
    plain = completion_logprobs(model, groups, 0.9, 1000, one_by_one=True)  # no mask: torch's own kernel
    torch.testing.assert_close(torch.tensor(plain[0]), torch.tensor(dense[0]), rtol=0, atol=1e-4)
