"""Gradients of a model's weights: our packed rows against TRL's padded batch, each with its own forward pass.

Both in float32. Of gradients scaled to norm 1, each element is equal to 1e-6.
"""

import polars as pl
import pytest
import torch

from stages.common.logprobs import completion_logprobs
from stages.common.optimizer import StoredAdamW
from stages.common.packing import groups_of
from stages.common.params import Gspo, Kl, Ppo, Update
from stages.common.policy import trainable
from stages.update.batches import micro_batches
from stages.update.loss import micro_batch_loss
from stages.update.meter import Meter
from stages.update.recipe import Recipe
from stages.update.reduction import Totals
from stages.update.rows import step_rows
from stages.update.step import optimizer_step
from tests.tiny import llama
from tests.trl.trainers import CONSTANT_LENGTH, loss_inputs, random_rows, trainer_of

PACKED = 60  # tokens of a micro-batch: several per step


@pytest.fixture(scope="module")
def rows():
    """Rows whose log-ratios are those of `random_rows`, off the log-probs that the model really has."""
    made = random_rows(0).with_row_index("index")
    found = completion_logprobs(llama(), groups_of(made), 1.0, PACKED)
    moved = [
        made.with_columns(real=pl.Series([found[n] for n in range(made.height)])).select(
            (pl.col("real") + pl.col(name) - pl.col("logp")).alias(name)
        )
        for name in ("sampler_logprobs", "ref_logprobs")
    ]
    return made.with_columns(*(frame.to_series() for frame in moved))


def recipe_of(beta=0.0, **update):
    settings = Update(learning_rate=0.01, max_grad_norm=1e9, **update)
    return Recipe(settings, Kl(beta=beta, placement="loss", estimator="k3"), 1.0, CONSTANT_LENGTH)


def ours(rows, recipe):
    """Loss and gradients of a step of several packed micro-batches."""
    model = llama().requires_grad_(True)
    totals = Totals(rows.height, len(rows["completion_ids"].explode()), CONSTANT_LENGTH)
    packed = micro_batches(rows, PACKED, one_by_one=False)
    assert len(packed) > 2
    parts = [micro_batch_loss(model, one, step_rows(rows), recipe, totals, Meter()).total for one in packed]
    torch.autograd.backward(sum(parts))
    return sum(parts).item(), flat(model)


def theirs(trainer, rows):
    loss = trainer._compute_loss(trainer.model, loss_inputs(rows))
    torch.autograd.backward(loss)
    return loss.item(), flat(trainer.model)


def flat(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def taken(rows, recipe):
    """What the optimizer step itself reports."""
    model = llama().requires_grad_(True)
    optimizer = StoredAdamW(trainable(model), recipe.update)
    return optimizer_step(model, optimizer, rows, micro_batches(rows, PACKED, one_by_one=False), recipe, lambda: None)


PPO = {"objective": "ppo", "reduction": "token_mean"}
CASES = {
    "RLOOTrainer": ("rloo", {}, recipe_of(objective="ppo", ppo=Ppo(ratio="sequence"))),
    "dapo": ("grpo", {"loss_type": "dapo"}, recipe_of(**PPO)),
    "k3 in the loss": ("grpo", {"beta": 0.3, "use_bias_correction_kl": False}, recipe_of(0.3, **PPO)),
    "entropy bonus": ("grpo", {"entropy_coef": 0.1}, recipe_of(entropy_bonus=0.1, **PPO)),
    "entropy bonus per token whatever the reduction": (
        "grpo",
        {"entropy_coef": 0.1, "loss_type": "grpo"},
        recipe_of(entropy_bonus=0.1, objective="ppo", reduction="response_mean"),
    ),
    "gspo": (
        "grpo",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.04, "epsilon_high": 0.05},
        recipe_of(objective="gspo", gspo=Gspo(clip_low=0.04, clip_high=0.05), reduction="response_mean"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_the_weights(tmp_path, rows, name):
    kind, options, recipe = CASES[name]
    trainer = trainer_of(kind, tmp_path, **options)
    (loss, gradient), (expected_loss, expected) = ours(rows, recipe), theirs(trainer, rows)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    torch.testing.assert_close(gradient / gradient.norm(), expected / expected.norm(), rtol=0, atol=1e-6)
    step = taken(rows, recipe)
    assert step["loss"] == pytest.approx(expected_loss, abs=1e-6)
    assert step["grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-5)  # a norm of float32 sums
