"""Losses and gradients equal those of TRL's RLOOTrainer and of the loss types of its GRPOTrainer.

The log-probs are prepared, in float64, and off-policy enough that clips bind for some tokens and not for others.
"""

from types import SimpleNamespace

import polars as pl
import pytest
import torch

from stages.common.packing import PackedRow
from stages.common.params import Cispo, Gspo, ImportanceCorrection, Kl, Ppo, Sapo, Update
from stages.update import loss
from stages.update.meter import Meter
from stages.update.recipe import Recipe
from stages.update.reduction import Totals
from stages.update.rows import step_rows
from tests.trl.trainers import CONSTANT_LENGTH, completions_scored, loss_inputs, loss_of, random_rows, trainer_of

EXACT = {"rtol": 0, "atol": 1e-10}
SEEDS = [0, 1]


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def ours(monkeypatch):
    """Our loss of rows, given the log-probs of the policy, and the numbers that describe it."""

    def compute(rows, logp_T, update, beta=0.0, totals=None, estimator="k3", weighted=False):
        monkeypatch.setattr(loss, "row_logprobs_and_entropy", lambda *_: (logp_T, torch.zeros(len(logp_T))))
        settings = Update(learning_rate=1.0, max_grad_norm=1.0, **update)
        kl = Kl(beta=beta, placement="loss", estimator=estimator, importance_weighted=weighted)
        recipe = Recipe(settings, kl, 1.0, CONSTANT_LENGTH)
        packed = PackedRow(row_T=[n for n, ids in enumerate(rows["completion_ids"]) for _ in ids])
        meter = Meter()
        parts = loss.micro_batch_loss(None, packed, step_rows(rows), recipe, totals or totals_of(rows), meter)
        return SimpleNamespace(loss=parts.total, **meter.columns())

    return compute


def totals_of(rows):
    return Totals(rows.height, len(rows["completion_ids"].explode()), CONSTANT_LENGTH)


def logp_of(rows):
    return torch.tensor(rows["logp"].explode().to_list(), requires_grad=True)


def gradient(value, logp_T):
    return torch.autograd.grad(value, logp_T)[0]


def assert_equal(mine, theirs, logp_T):
    torch.testing.assert_close(mine, theirs, **EXACT)
    torch.testing.assert_close(gradient(mine, logp_T), gradient(theirs, logp_T), **EXACT)


ASYMMETRIC = {"epsilon": 0.2, "epsilon_high": 0.28}
PPO = {"objective": "ppo", "ppo": Ppo(clip_low=0.2, clip_high=0.28)}
BY_SEQUENCE = {"epsilon": 0.04, "epsilon_high": 0.05, "importance_sampling_level": "sequence"}
CASES = {  # name: TRL's trainer and options, our options
    "RLOOTrainer": ("rloo", ASYMMETRIC, {**PPO, "ppo": Ppo(ratio="sequence", clip_high=0.28)}),
    "grpo": ("grpo", {"loss_type": "grpo", **ASYMMETRIC}, {**PPO, "reduction": "response_mean"}),
    "dr_grpo": ("grpo", {"loss_type": "dr_grpo", **ASYMMETRIC}, {**PPO, "reduction": "constant_length"}),
    "bnpo": ("grpo", {"loss_type": "bnpo", **ASYMMETRIC}, {**PPO, "reduction": "token_mean"}),
    "dapo": ("grpo", {"loss_type": "dapo", **ASYMMETRIC}, {**PPO, "reduction": "token_mean"}),
    "luspo of tokens": ("grpo", {"loss_type": "luspo", **ASYMMETRIC}, {**PPO, "reduction": "sequence_sum"}),
    "delta": (
        "grpo",
        {"loss_type": "dapo", "delta": 1.4, **ASYMMETRIC},
        {"objective": "ppo", "ppo": Ppo(clip_high=0.28, dual_clip=1.4), "reduction": "token_mean"},
    ),
    "cispo": (  # TRL's epsilon_high is the bound itself
        "grpo",
        {"loss_type": "cispo", "epsilon_high": 1.25},
        {"objective": "cispo", "cispo": Cispo(clip_high=0.25), "reduction": "token_mean"},
    ),
    "sapo": (
        "grpo",
        {"loss_type": "sapo", "sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.3},
        {
            "objective": "sapo",
            "sapo": Sapo(temperature_positive=0.9, temperature_negative=1.3),
            "reduction": "response_mean",
        },
    ),
    "gspo": (
        "grpo",
        {"loss_type": "grpo", **BY_SEQUENCE},
        {"objective": "gspo", "gspo": Gspo(clip_low=0.04, clip_high=0.05), "reduction": "response_mean"},
    ),
}
BETAS = {"RLOOTrainer": [0.0]}  # its KL is in the reward
PLAIN_KL = {"rloo": {}, "grpo": {"use_bias_correction_kl": False}}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "beta"), [(name, beta) for name in CASES for beta in BETAS.get(name, [0.0, 0.3])])
def test_loss_and_gradient(tmp_path, ours, name, beta, seed):
    kind, options, update = CASES[name]
    rows = random_rows(seed)
    trainer, logp_T = trainer_of(kind, tmp_path, beta=beta, **PLAIN_KL[kind], **options), logp_of(rows)
    mine = ours(rows, logp_T, update, beta)
    assert_equal(mine.loss, loss_of(trainer, loss_inputs(rows), logp_T), logp_T)
    if name not in ("cispo", "sapo"):
        assert 0.05 < mine.clip_low < 0.95
    if name != "sapo":
        assert 0.05 < mine.clip_high < 0.95


@pytest.mark.parametrize("name", ["grpo", "dapo", "cispo"])
def test_the_weighted_k3_that_trl_has_by_default(tmp_path, ours, name):
    rows = random_rows(0)
    _, options, update = CASES[name]
    logp_T = logp_of(rows)
    theirs = loss_of(trainer_of("grpo", tmp_path, beta=0.3, **options), loss_inputs(rows), logp_T)
    assert_equal(ours(rows, logp_T, update, 0.3, weighted=True).loss, theirs, logp_T)


def test_on_policy_the_weighted_k3_that_trl_has_by_default_has_the_gradient_of_k2(tmp_path, ours):
    # k3 times the ratio, whose gradient counts: at ratio 1 that of k2
    rows = random_rows(0).with_columns(sampler_logprobs="logp")
    _, options, update = CASES["dapo"]
    logp_T = logp_of(rows)
    theirs = loss_of(trainer_of("grpo", tmp_path, beta=0.3, **options), loss_inputs(rows), logp_T)
    k2, k3 = (gradient(ours(rows, logp_T, update, 0.3, estimator=name).loss, logp_T) for name in ("k2", "k3"))
    torch.testing.assert_close(k2, gradient(theirs, logp_T), **EXACT)
    assert (k3 - k2).abs().max() > 1e-3


def test_fractions_of_clipped_tokens(tmp_path, ours):
    rows = random_rows(0)
    _, options, update = CASES["dapo"]
    trainer = trainer_of("grpo", tmp_path, **options)
    loss_of(trainer, loss_inputs(rows), logp_of(rows))
    mine, theirs = ours(rows, logp_of(rows), update), trainer._metrics["train"]
    assert theirs["clip_ratio/low_mean"] == [pytest.approx(mine.clip_low)]
    assert theirs["clip_ratio/high_mean"] == [pytest.approx(mine.clip_high)]


def test_dual_clip_binds(ours):
    rows = random_rows(0)
    with_bound, without = (ours(rows, logp_of(rows), CASES[name][2]).loss for name in ("delta", "dapo"))
    assert with_bound < without - 1e-3


def test_on_policy_our_default_has_the_gradient_of_the_rloo_trainer(tmp_path, ours):
    rows = random_rows(0, spread=0.0)
    logp_T = logp_of(rows)
    theirs = loss_of(trainer_of("rloo", tmp_path), loss_inputs(rows), logp_T)
    mine = ours(rows, logp_T, {}).loss  # REINFORCE; its value is another: -A log pi, theirs -A
    torch.testing.assert_close(gradient(mine, logp_T), gradient(theirs, logp_T), **EXACT)


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
@pytest.mark.parametrize(("floor", "cap"), [(None, 1.2), (0.8, 1.5)])
def test_correction_for_another_sampler(tmp_path, ours, mode, floor, cap):
    level, form = mode.split("_")
    options = {"vllm_importance_sampling_clip_min": floor, "vllm_importance_sampling_clip_max": cap}
    trainer = trainer_of("grpo", tmp_path, loss_type="dapo", vllm_importance_sampling_mode=mode, **options)
    trainer.use_vllm = True  # set here, as the config would start vLLM
    rows = random_rows(0)
    own = rows["trainer_logprobs"].to_list()
    scored = completions_scored(trainer, rows, {"first": [0.0] * rows.height}, logprobs=own)
    logp_T = logp_of(rows)
    theirs = loss_of(trainer, scored | {"advantages": rows["advantage"].to_torch()}, logp_T)
    correction = ImportanceCorrection(form=form, level=level, cap=cap, floor=floor or 0.0)
    update = {"objective": "ppo", "reduction": "token_mean", "importance_correction": correction}
    mine = ours(rows.with_columns(old_logprobs="trainer_logprobs"), logp_T, update)
    assert_equal(mine.loss, theirs, logp_T)
    assert 0 < mine.importance_outside < 1


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo", "bnpo"])
def test_two_micro_batches_of_a_step(tmp_path, ours, name):
    _, options, update = CASES[name]
    trainer = trainer_of("grpo", tmp_path, gradient_accumulation_steps=2, **options)
    trainer.current_gradient_accumulation_steps = 2
    rows = random_rows(0)
    halves, totals = (rows[:12], rows[12:]), totals_of(rows)
    mine = sum(ours(half, logp_of(half), update, totals=totals).loss for half in halves)
    inputs = [loss_inputs(half) | {"num_items_in_batch": torch.tensor(totals.tokens)} for half in halves]
    theirs = sum(loss_of(trainer, each, logp_of(half)) for each, half in zip(inputs, halves, strict=True))
    if name == "bnpo":  # TRL's mean over the tokens of a micro-batch, then over micro-batches; ours is over the step
        assert abs(mine - theirs) > 1e-3
    else:
        torch.testing.assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize(("name", "counted"), [("RLOOTrainer", "rows"), ("grpo", "rows"), ("dapo", "tokens")])
def test_an_unscorable_row_is_in_the_denominator_of_trl_alone(tmp_path, ours, name, counted):
    # On purpose: TRL gives it the advantage 0 and counts it; here it is outside the loss, and the others weigh more.
    kind, options, update = CASES[name]
    rows = random_rows(0).with_columns(pl.when(pl.int_range(pl.len()) != 5).then("advantage"))
    scorable = rows.filter(pl.col("advantage").is_not_null())
    inputs = loss_inputs(rows.with_columns(pl.col("advantage").fill_null(0.0)))
    theirs = loss_of(trainer_of(kind, tmp_path, **options), inputs, logp_of(rows))
    share = getattr(totals_of(scorable), counted) / getattr(totals_of(rows), counted)
    assert share < 1
    torch.testing.assert_close(ours(scorable, logp_of(scorable), update).loss * share, theirs, **EXACT)
