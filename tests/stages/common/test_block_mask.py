"""The forms of the block mask against the dense one: FlexAttention's, and parts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

from stages.common import body
from stages.common.block_mask import (
    BLOCK,
    BLOCK_ATTENTION,
    block_attention,
    block_mask,
    flex_mask,
    has_block_attention,
    key_blocks,
    use_block_attention,
)
from stages.common.logprobs import completion_logprobs, row_logprobs, takes_block_mask
from stages.common.packing import Group, PackedRow, pack
from stages.common.parts import SMALL, parted, ranges
from tests.tiny import gpt2, llama, qwen2, sliding

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


def parted_mask(row, device):
    allowed = block_mask(row, device)
    return parted(torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min), row)


def gradient_of(model, groups):
    model.zero_grad()
    (row,) = pack(groups, 1000)
    row_logprobs(model, row, 0.9).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@torch.compiler.set_stance("force_eager")  # the library would compile it, for a minute
@pytest.mark.parametrize("form", [flex_mask, parted_mask])
def test_each_form_gives_the_log_probs_of_the_dense_mask(monkeypatch, form):
    groups = [
        Group([11] * 100, [[21, 22, 23] * 20, [24] * 3, [25, 26] * 30], [0, 1, 2]),
        Group([12, 13], [[31] * 5, [32]], [3, 4]),
        Group([14], [[41], [42] * 70, [43] * 9], [5, 6, 7]),
    ]
    model = llama()
    dense = completion_logprobs(model, groups, 0.9, 1000)
    use_block_attention(model, CPU)
    assert model.config._attn_implementation == BLOCK_ATTENTION
    monkeypatch.setattr(body, "mask_for", lambda model, row, device: form(row, device))
    assert takes_block_mask(model)
    assert has_block_attention(model), "the form itself was tried, and works"
    found = completion_logprobs(model, groups, 0.9, 1000)
    for row in dense:
        torch.testing.assert_close(torch.tensor(found[row]), torch.tensor(dense[row]), rtol=0, atol=1e-4)
    plain = completion_logprobs(model, groups, 0.9, 1000, one_by_one=True)  # no mask: torch's own kernel
    torch.testing.assert_close(torch.tensor(plain[0]), torch.tensor(dense[0]), rtol=0, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(shapes)
def test_parts_are_the_whole_row_in_order_and_hold_every_pair_that_may_look_at_each_other(groups):
    row = packed(groups)
    dense, seen = block_mask(row, CPU)[0, 0], torch.zeros(len(row.ids_L), len(row.ids_L), dtype=torch.bool)
    ends = [0]
    for prompt, own in ranges(row):
        assert own.start == ends[-1]
        ends.append(own.stop)
        assert (
            prompt == own
            or len({row.branch_L[place] for place in range(own.start, own.stop)}) == 1
            or (own.stop - own.start <= SMALL)
        )
        for keys in (prompt, own):
            seen[own, keys] = True
    assert ends[-1] == len(row.ids_L)
    assert not (dense & ~seen).any()


def test_a_mask_that_a_model_cuts_or_changes_is_an_ordinary_one():
    row = packed([(3, [2, 2])])
    mask = parted_mask(row, CPU)
    for changed in (mask[..., :7], mask + 0, mask.masked_fill(mask == 0, 1.0), mask.clone()):
        assert type(changed) is torch.Tensor
    query, key, value = torch.randn(3, 1, 2, 7, 4)
    cut, _ = block_attention(torch.nn.Module(), query, key, value, mask[..., :7])
    whole, _ = block_attention(torch.nn.Module(), query, key, value, mask)
    torch.testing.assert_close(cut, whole)


def test_models_with_other_attention_keep_the_kernel_that_they_know_by_name():
    model = sliding()
    use_block_attention(model, CPU)
    assert model.config._attn_implementation == "sdpa"


def test_a_bias_of_positions_is_added_to_the_dense_mask():
    groups = [Group([11, 12], [[21] * 3, [22] * 2], [0, 1])]
    (row,) = pack(groups, 100)
    length, (query, key, value) = len(row.ids_L), torch.randn(3, 1, 2, len(row.ids_L), 4)
    bias, module = torch.randn(1, 2, length, length), torch.nn.Module()
    found, _ = block_attention(module, query, key, value, parted_mask(row, CPU), position_bias=bias)
    allowed = block_mask(row, CPU)
    scores = (query @ key.transpose(-1, -2) / 2 + bias).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(found, (scores.softmax(-1) @ value).transpose(1, 2))


@pytest.mark.parametrize("make", [llama, gpt2, qwen2])
def test_parts_give_the_gradients_of_the_dense_mask(make):
    groups = [Group([11] * 5, [[21, 22] * 40, [24] * 3, [25] * 9], [0, 1, 2]), Group([14], [[41], [42]], [3, 4])]
    model = make().requires_grad_(True)
    gradient = gradient_of(model, groups)
    use_block_attention(model, CPU)
    assert (gradient_of(model, groups) - gradient).norm() < 1e-5 * gradient.norm()
