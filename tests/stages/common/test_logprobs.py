"""Packed rows give the log-probs and gradients of separate, of padded and of unpadded rows."""

import pytest
import torch

from stages.common.logprobs import completion_logprobs, row_logprobs, takes_block_mask
from stages.common.packing import Group, pack
from tests.tiny import gpt2, llama, qwen2, sliding

GROUPS = [
    Group([11, 12, 13, 14], [[21, 22, 0], [23], [24, 25, 26, 27, 28]], [0, 1, 2]),
    Group([15], [[31, 32], [0]], [3, 4]),
    Group([16, 17, 18, 19, 20, 21, 22], [[41, 42, 43]], [5]),
]
ROWS = [(group.prompt_ids, completion) for group in GROUPS for completion in group.completions]


KINDS = {"rotary": llama, "absolute": gpt2, "grouped-query": qwen2, "sliding-window": sliding}
WEIGHT = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0, 0.25])  # of each row, in a loss


@pytest.fixture(params=[llama, gpt2, qwen2], ids=["rotary", "absolute", "grouped-query"])
def model(request):
    return request.param()


def unpadded(model, temperature):
    """One plain forward pass for each row, whole log-softmax."""
    found = []
    for prompt, completion in ROWS:
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0] / temperature
        logp = logits.log_softmax(dim=-1)
        found.append([logp[len(prompt) + t - 1, token].item() for t, token in enumerate(completion)])
    return found


def padded(model, side, temperature=1.0):
    """One batch, padded on one side with the end-of-sequence id, as a trainer would; with gradient."""
    width = max(len(p) + len(c) for p, c in ROWS)
    ids, mask = torch.zeros(len(ROWS), width, dtype=torch.long), torch.zeros(len(ROWS), width, dtype=torch.long)
    starts = []
    for row, (prompt, completion) in enumerate(ROWS):
        length = len(prompt) + len(completion)
        start = width - length if side == "left" else 0
        ids[row, start : start + length] = torch.tensor([*prompt, *completion])
        mask[row, start : start + length] = 1
        starts.append(start + len(prompt))
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    logits = model(ids, attention_mask=mask, position_ids=positions).logits / temperature
    logp = logits.log_softmax(dim=-1)
    return [
        torch.stack([logp[row, starts[row] + t - 1, token] for t, token in enumerate(completion)])
        for row, (_, completion) in enumerate(ROWS)
    ]


def flat(rows):
    return torch.tensor([float(value) for row in rows for value in row])


@pytest.mark.parametrize("budget", [1, 12, 20, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_equals_unpadded(model, budget, temperature):
    found = completion_logprobs(model, GROUPS, temperature, budget)
    torch.testing.assert_close(
        flat(found[row] for row in range(6)), flat(unpadded(model, temperature)), rtol=0, atol=1e-4
    )


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_packed_equals_padded(model, side):
    found = completion_logprobs(model, GROUPS, 1.0, 1000)
    torch.testing.assert_close(flat(found[row] for row in range(6)), flat(padded(model, side)), rtol=0, atol=1e-4)


def gradient(model, budget, one_by_one):
    model.zero_grad()
    for row in pack(GROUPS, budget, one_by_one=one_by_one):
        logp_T = row_logprobs(model, row, 0.9)
        (WEIGHT[row.row_T] * logp_T).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_gradients_do_not_depend_on_the_packing(model):
    model.requires_grad_(True)
    whole, plain = gradient(model, 1000, False), gradient(model, 1000, True)
    torch.testing.assert_close(whole, plain, rtol=0, atol=1e-4)
    torch.testing.assert_close(gradient(model, 13, False), plain, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_log_probs_are_those_of_a_padded_batch(kind):
    """As a stage reads the model: packed where it takes a block mask, one by one where it does not."""
    model = KINDS[kind]().requires_grad_(True)
    one_by_one = not takes_block_mask(model)
    assert one_by_one == (kind == "sliding-window")
    found = gradient(model, 20, one_by_one)
    model.zero_grad()
    rows = padded(model, "right", 0.9)
    sum(weight * row.sum() for weight, row in zip(WEIGHT, rows, strict=True)).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert expected.norm() > 1
    assert (found - expected).norm() < 1e-5 * expected.norm()
    logp = completion_logprobs(model, GROUPS, 0.9, 20, one_by_one=one_by_one)
    torch.testing.assert_close(flat(logp[row] for row in range(6)), torch.cat(rows).detach(), rtol=0, atol=1e-4)


def test_a_block_mask_is_taken_by_full_attention_only():
    assert takes_block_mask(llama())
    assert takes_block_mask(gpt2())
    assert not takes_block_mask(sliding())


def test_one_by_one_is_right_for_a_sliding_window():
    model = sliding()
    found = completion_logprobs(model, GROUPS, 1.0, 1000, one_by_one=True)
    torch.testing.assert_close(flat(found[row] for row in range(6)), flat(unpadded(model, 1.0)), rtol=0, atol=1e-4)
