"""One optimizer step on a tiny model: what must not change it, and what happens without any gradient."""

import math

import polars as pl
import pytest
import torch

from stages.common.optimizer import StoredAdamW
from stages.common.params import ImportanceCorrection, Kl, Ppo, Update
from stages.common.policy import trainable
from stages.common.signal import has_advantage
from stages.rollout.sampler import Request, SamplerSettings, sample
from stages.update.batches import micro_batches, minibatches
from stages.update.recipe import Recipe
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
                "ref_logprobs": [logp - 0.1 * (t % 3) for t, logp in enumerate(one.logprobs)],
                "advantage": ADVANTAGES[prompt_id][number],
                "token_advantages": None,
            }
            for prompt_id, group in zip(PROMPTS, groups, strict=True)
            for number, one in enumerate(group)
        ],
        schema_overrides={"token_advantages": pl.List(pl.Float32)},
    )


class Recorded(StoredAdamW):
    """Keeps the gradient of the step it takes."""

    def step(self, save_to=None):
        gradients = [m.grad if m.grad is not None else torch.zeros_like(m) for m in self.masters.values()]
        self.gradient = torch.cat([gradient.flatten().clone() for gradient in gradients])
        return super().step(save_to)


def step(make, rows, max_tokens=10**6, one_by_one=False, keep_zero=False, recipe=None):
    recipe = recipe or recipe_with()
    model = make().double().requires_grad_(True)  # rounding must not be what is compared
    optimizer = Recorded(trainable(model), recipe.update)
    indexed = rows.with_row_index("index")
    with_gradient = indexed if keep_zero or not recipe.only_advantages else indexed.filter(has_advantage())
    packed = micro_batches(with_gradient, max_tokens, one_by_one=one_by_one)
    row = optimizer_step(model, optimizer, indexed, packed, recipe, lambda: None)
    return row, torch.cat([p.detach().flatten() for p in model.parameters()]), optimizer


def recipe_with(kl=None, **options):
    return Recipe(SETTINGS.model_copy(update=options), kl or Kl(beta=0.04), 1.0, 20)


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


RECIPES = {
    "reinforce": recipe_with(),
    "ppo of tokens": recipe_with(objective="ppo", reduction="token_mean"),
    "ppo of sequences": recipe_with(objective="ppo", ppo=Ppo(ratio="sequence")),
    "gspo": recipe_with(objective="gspo", reduction="response_mean"),
    "cispo": recipe_with(objective="cispo", reduction="constant_length"),
    "sapo": recipe_with(objective="sapo", reduction="response_mean"),
    "k3 in the loss": recipe_with(Kl(beta=0.5, placement="loss", estimator="k3"), reduction="token_mean"),
    "k2 in the loss": recipe_with(Kl(beta=0.5, placement="loss", estimator="k2")),
    "entropy bonus": recipe_with(entropy_bonus=0.1),
    "corrected": recipe_with(importance_correction=ImportanceCorrection(form="truncate", cap=1.05)),
    "masked": recipe_with(importance_correction=ImportanceCorrection(form="mask", level="sequence", cap=1.2)),
}


def off_policy(make):
    """Rows whose sampler was a little different, so that ratios are not 1."""
    rows = rows_for(make())
    return rows.with_columns(pl.col("sampler_logprobs").list.eval(pl.element() - 0.1 * pl.element().sin()))


def assert_same_step(changed, reference):
    """Loss and gradient to 1e-6, the gradient relative to its norm, which must not be zero."""
    assert changed[0]["loss"] == pytest.approx(reference[0]["loss"], abs=1e-6)
    gradient = reference[2].gradient
    assert gradient.norm() > 1e-3
    assert (changed[2].gradient - gradient).abs().max() < 1e-6 * max(1.0, gradient.norm().item())


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("variant", [{"max_tokens": 12}, {"one_by_one": True}, {"keep_zero": True}])
def test_micro_batches_padding_and_skipped_zero_rows_change_nothing(make, variant, name):
    rows = off_policy(make)
    assert_same_step(step(make, rows, recipe=RECIPES[name], **variant), step(make, rows, recipe=RECIPES[name]))


@pytest.mark.parametrize("name", RECIPES)
def test_row_order_changes_nothing(make, name):
    rows = off_policy(make)
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=3)
    assert_same_step(step(make, shuffled, recipe=RECIPES[name]), step(make, rows, recipe=RECIPES[name]))


def test_rows_of_zero_advantage_have_a_gradient_where_kl_or_entropy_is_in_the_loss(make):
    rows = rows_for(make()).with_columns(advantage=pl.lit(0.0))
    for name in ("k3 in the loss", "k2 in the loss", "entropy bonus"):
        row, _, optimizer = step(make, rows, recipe=RECIPES[name])
        assert row["rows_with_gradient"] == 9
        assert row["grad_norm"] > 0
        assert optimizer.step_count == 1


def test_kl_in_the_loss_by_hand(make):
    rows = rows_for(make())
    recipe = recipe_with(Kl(beta=0.5, placement="loss", estimator="k2"), reduction="response_mean")
    row, _, _ = step(make, rows, recipe=recipe)
    # logp - ref = .1 * (t % 3): k2 is half its square
    means = [sum((0.1 * (t % 3)) ** 2 / 2 for t in range(n)) / n for n in rows["completion_ids"].list.len().to_list()]
    assert row["kl_loss"] == pytest.approx(0.5 * sum(means) / 9, abs=1e-5)


def test_entropy_bonus_is_per_token_whatever_the_reduction(make):
    rows = rows_for(make()).with_columns(advantage=pl.lit(0.0))
    for reduction in ("sequence_sum", "token_mean"):
        row, _, _ = step(make, rows, recipe=recipe_with(entropy_bonus=0.1, reduction=reduction))
        assert row["loss"] == pytest.approx(-0.1 * row["entropy"], abs=1e-6)


def test_a_token_advantage_of_the_row_equals_the_row_s_advantage(make):
    rows = rows_for(make())
    by_token = rows.with_columns(
        token_advantages=pl.struct("advantage", "completion_ids").map_elements(
            lambda row: [row["advantage"]] * len(row["completion_ids"]), return_dtype=pl.List(pl.Float64)
        ),
        advantage=pl.lit(123.0),  # not looked at
    )
    assert step(make, by_token)[0]["loss"] == pytest.approx(step(make, rows)[0]["loss"], abs=1e-6)


def test_statistics_of_a_clipped_step(make):
    rows = rows_for(make()).with_columns(pl.col("sampler_logprobs").list.eval(pl.element() - 1.0))
    row, _, _ = step(make, rows, recipe=RECIPES["ppo of tokens"])
    assert row["ratio_mean"] == pytest.approx(math.e, rel=1e-3)
    assert row["approx_kl"] == pytest.approx(math.e - 2, rel=1e-3)
    with_gradient = rows.filter(pl.col("advantage") != 0).with_columns(pl.col("completion_ids").list.len())
    positive = with_gradient.filter(pl.col("advantage") > 0)["completion_ids"].sum()
    assert row["clip_high"] == pytest.approx(positive / with_gradient["completion_ids"].sum())
    assert row["clip_low"] == 0.0
    assert row["importance_mean"] is None
    assert step(make, rows)[0]["clip_high"] is None
    corrected = step(make, rows, recipe=RECIPES["corrected"])[0]
    assert corrected["importance_mean"] == pytest.approx(1.05)
    assert corrected["importance_outside"] == 1.0
    assert corrected["ratio_mean"] == pytest.approx(1.0)


def test_a_step_whose_every_token_is_clipped_leaves_weights_and_state(make):
    rows = rows_for(make()).with_columns(
        pl.col("sampler_logprobs").list.eval(pl.element() - 1.0), advantage=pl.lit(1.0)
    )
    row, weights, optimizer = step(make, rows, recipe=RECIPES["ppo of tokens"])
    assert torch.equal(weights, torch.cat([p.detach().flatten() for p in make().parameters()]))
    assert optimizer.step_count == 0
    assert not optimizer.adamw.state
    assert row["grad_norm"] == 0
    assert row["learning_rate"] is None
    assert row["clip_high"] == 1.0


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
    parts = list(minibatches(rows, 3, 0, 1, 1))
    assert sorted(n for part in parts for n in part["n"]) == list(range(21))
    assert all(part.group_by("prompt_id").len()["len"].unique().to_list() == [3] for part in parts)
    assert [part["n"].to_list() for part in minibatches(rows.reverse(), 3, 0, 1, 1)] == [
        part["n"].to_list()[::-1] for part in parts
    ]
    for iteration, epoch in ((2, 1), (1, 2)):
        others = minibatches(rows, 3, 0, iteration, epoch)
        assert [p["prompt_id"].to_list() for p in others] != [p["prompt_id"].to_list() for p in parts]
