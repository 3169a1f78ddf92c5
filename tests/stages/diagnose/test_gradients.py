"""Gradients of several losses in one pass: norms, cosines, and the share of each quartile of lengths."""

import polars as pl
import pytest
import torch

from stages.common.packing import Group, pack, split_groups
from stages.diagnose.gradients import cosines, gram_matrix
from stages.diagnose.quartiles import add_quartile, quartile_weights, share_table
from stages.diagnose.run import norms_of
from stages.update.rows import StepRows
from tests.tiny import gpt2, llama

PROMPTS = [[11, 12, 13], [14]]
COMPLETIONS = [[[5, 6], [7]], [[8, 9, 10, 11], [12, 13]]]
GROUPS = [Group(PROMPTS[0], COMPLETIONS[0], [0, 1]), Group(PROMPTS[1], COMPLETIONS[1], [2, 3])]
WEIGHTS = [
    [[1.0] * 2, [-1.0], [0.5] * 4, [-0.5] * 2],
    [[0.0] * 2, [-1.0], [0.5] * 4, [0.0] * 2],
    [[-2.0] * 2, [2.0], [-1.0] * 4, [1.0] * 2],  # -2 times the first
    [[0.0] * 2, [0.0], [0.0] * 4, [0.0] * 2],
]


def by_hand(make, weights):
    """The gradient of minus the weighted log-probs, one plain forward pass per row."""
    model = make().requires_grad_(True)
    rows = [(prompt, c) for prompt, group in zip(PROMPTS, COMPLETIONS, strict=True) for c in group]
    loss = 0.0
    for (prompt, completion), weight in zip(rows, weights, strict=True):
        logp = model(torch.tensor([[*prompt, *completion]])).logits[0].log_softmax(dim=-1)
        for t, token in enumerate(completion):
            loss = loss - weight[t] * logp[len(prompt) + t - 1, token]
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()


@pytest.mark.parametrize("make", [llama, gpt2], ids=["rotary", "absolute"])
@pytest.mark.parametrize("max_tokens", [1000, 8])
def test_inner_products_are_those_of_the_gradients(make, max_tokens):
    gram = gram_matrix(make().requires_grad_(True), pack(GROUPS, max_tokens), WEIGHTS, 1.0)
    gradients = torch.stack([by_hand(make, weights) for weights in WEIGHTS[:3]])
    torch.testing.assert_close(gram[:3, :3], gradients @ gradients.T, rtol=1e-4, atol=1e-4)
    assert (gram[3] == 0).all()
    found = cosines(gram)
    assert found[0, 2].item() == pytest.approx(-1.0, abs=1e-6)
    assert abs(found[0, 1].item()) < 0.999
    assert found[3].isnan().all()


def test_norms_of_quartiles_are_those_of_their_own_gradients():
    lengths = [len(completion) for group in COMPLETIONS for completion in group]
    kinds = [  # of each quartile one row
        [[[scale * (row == own)] * n for row, n in enumerate(lengths)] for own in range(4)] for scale in (1.0, -0.5)
    ]
    quartiles = [pack([group], 1000) for group in split_groups(GROUPS, 1000, one_by_one=True)]
    found = norms_of(llama().requires_grad_(True), quartiles, kinds, 1.0)
    for kind, norms in zip(kinds, found, strict=True):
        wanted = [by_hand(llama, weights).norm().item() for weights in kind]
        assert norms == pytest.approx(wanted, rel=1e-4)


def rows(lengths):
    return pl.DataFrame(
        {
            "iteration": [1] * len(lengths),
            "prompt_id": [f"p{n}" for n in range(len(lengths))],
            "sample": [0] * len(lengths),
            "kind": ["sample"] * len(lengths),
            "length": lengths,
        }
    )


def test_quartiles_are_equal_parts_in_order_of_length():
    table = add_quartile(rows([40, 10, 20, 30, 50, 60, 10, 70]))
    assert table["quartile"].to_list() == [3, 1, 2, 2, 3, 4, 1, 4]
    assert add_quartile(rows([5, 5])).get_column("quartile").to_list() == [1, 3]


def test_each_quartile_s_loss_has_its_rows_only():
    table = add_quartile(rows([1, 2, 3, 4]))
    values = StepRows(sampler=[], advantage=[[3.0], [-1.0] * 2, [2.0] * 3, [1.0] * 4])
    summed = quartile_weights(table, values, by_length=False)
    assert summed[1] == [[0.0], [-1.0, -1.0], [0.0] * 3, [0.0] * 4]
    averaged = quartile_weights(table, values, by_length=True)
    assert averaged[2] == [[0.0], [0.0] * 2, [pytest.approx(2 / 3)] * 3, [0.0] * 4]


def test_shares_add_up_and_are_null_without_gradient():
    table = add_quartile(rows([10, 20, 30, 40]))
    norms = {"sequence_sum": [1.0, 2.0, 3.0, 4.0], "response_mean": [0.0] * 4, "token_mean": [1.0, 2.0, 3.0, 4.0]}
    shares = share_table(table, norms)
    assert shares.filter(reduction="sequence_sum")["share"].to_list() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert shares.filter(reduction="response_mean")["share"].null_count() == 4
    assert shares.filter(reduction="token_mean")["min_length"].to_list() == [10, 20, 30, 40]
