"""One optimizer step on a tiny model: what must not change it, and what happens without any gradient."""

import polars as pl
import pytest
import torch

from stages.common.params import Update
from stages.common.policy import trainable
from stages.rollout.sampler import Request, SamplerSettings, sample
from stages.update.batches import micro_batches, minibatches
from stages.update.optimizer import StoredAdamW
from stages.update.step import optimizer_step
from tests.tiny import gpt2, llama

SETTINGS = Update(learning_rate=0.01, max_grad_norm=100.0)
PROMPTS = {"a": [11, 12, 13], "b": [14], "c": [15, 16, 17, 18, 19]}
ADVANTAGES = {"a": [1.0, -0.25, -0.75], "b": [0.0, 0.0, 0.0], "c": [0.5, -1.0, 0.5]}


def rows_for(model):
    requests = [Request(ids, [n * 10 + s for s in range(3)]) for n, ids in enumerate(PROMPTS.values())]
    groups = sample(model, requests, SamplerSettings(7, 1.0, frozenset({0, 5, 9, 33}), 64))
    return pl.DataFrame(
        [
            {
                "prompt_id": prompt_id,
                "prompt_ids": PROMPTS[prompt_id],
                "completion_ids": one.completion_ids,
                "sampler_logprobs": one.logprobs,
                "advantage": ADVANTAGES[prompt_id][number],
            }
            for prompt_id, group in zip(PROMPTS, groups, strict=True)
            for number, one in enumerate(group)
        ]
    )


def step(make, rows, max_tokens=10**6, one_by_one=False, keep_zero=False):
    model = make().requires_grad_(True)
    optimizer = StoredAdamW(trainable(model), SETTINGS)
    indexed = rows.with_row_index("index")
    with_gradient = indexed if keep_zero else indexed.filter(pl.col("advantage") != 0)
    packed = micro_batches(with_gradient, max_tokens, one_by_one=one_by_one)
    row = optimizer_step(model, optimizer, indexed, packed, 1.0, lambda: None)
    return row, torch.cat([p.detach().flatten() for p in model.parameters()]), optimizer


@pytest.fixture(params=[llama, gpt2], ids=["rotary", "absolute"])
def make(request):
    return request.param


def loss_by_hand(make, rows):
    """-(1/N) sum_i A_i sum_t log pi, one plain forward pass per row."""
    model, total = make(), 0.0
    for row in rows.iter_rows(named=True):
        prompt, completion = row["prompt_ids"], row["completion_ids"]
        logp = model(torch.tensor([[*prompt, *completion]])).logits[0].log_softmax(dim=-1)
        total -= row["advantage"] * sum(logp[len(prompt) + t - 1, token].item() for t, token in enumerate(completion))
    return total / rows.height


def test_loss_and_statistics(make):
    rows = rows_for(make())
    row, _, optimizer = step(make, rows)
    assert row["loss"] == pytest.approx(loss_by_hand(make, rows), abs=1e-5)
    assert row["rows_in_loss"] == 9
    assert row["rows_with_gradient"] == 6
    assert row["approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert row["ratio_min"] == pytest.approx(1.0, abs=1e-4)
    assert row["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert optimizer.step_count == row["optimizer_step"] == 1


@pytest.mark.parametrize("variant", [{"max_tokens": 12}, {"one_by_one": True}, {"keep_zero": True}])
def test_micro_batches_and_skipped_zero_rows_change_nothing(make, variant):
    rows = rows_for(make())
    reference, changed = step(make, rows), step(make, rows, **variant)
    assert changed[0]["loss"] == pytest.approx(reference[0]["loss"], abs=1e-6)
    assert changed[0]["grad_norm"] == pytest.approx(reference[0]["grad_norm"], rel=1e-5)


def test_row_order_changes_nothing(make):
    rows = rows_for(make())
    reference, shuffled = step(make, rows), step(make, rows.sample(fraction=1.0, shuffle=True, seed=3))
    assert shuffled[0]["loss"] == pytest.approx(reference[0]["loss"], abs=1e-6)
    assert shuffled[0]["grad_norm"] == pytest.approx(reference[0]["grad_norm"], rel=1e-5)


def test_without_gradient_weights_and_state_stay(make):
    rows = rows_for(make()).with_columns(advantage=pl.lit(0.0))
    row, weights, optimizer = step(make, rows)
    assert torch.equal(weights, torch.cat([p.detach().flatten() for p in make().parameters()]))
    assert optimizer.step_count == 0
    assert not optimizer.adamw.state
    assert row["rows_with_gradient"] == row["grad_norm"] == row["loss"] == 0
    assert row["approx_kl"] is None


def test_minibatches_split_by_whole_groups_and_lose_nothing():
    rows = pl.DataFrame({"prompt_id": [p for p in "abcdefg" for _ in range(3)], "n": range(21)})
    parts = list(minibatches(rows, 3, 0, 1))
    assert sorted(n for part in parts for n in part["n"]) == list(range(21))
    assert all(part.group_by("prompt_id").len()["len"].unique().to_list() == [3] for part in parts)
    assert [part["n"].to_list() for part in minibatches(rows.reverse(), 3, 0, 1)] == [
        part["n"].to_list()[::-1] for part in parts
    ]
    assert [p["prompt_id"].to_list() for p in minibatches(rows, 3, 0, 2)] != [p["prompt_id"].to_list() for p in parts]
