"""Advantages equal those of TRL's RLOOTrainer and GRPOTrainer, on the same rewards.

All prompts have one text: groups are by position in TRL, by key here.
"""

from pathlib import Path

import polars as pl
import pytest
import torch

from stages.advantage.run import advantage_table
from stages.common.params import Advantage, Kl, Reward
from stages.common.params_file import load_params
from stages.score.kl import add_kl, add_score
from stages.score.rewards import add_task_reward, classify
from tests.trl.trainers import completions_scored, first, random_rows, second, trainer_of

PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")
WEIGHTS = {"first": 1.0, "second": 0.5}
REWARDS = {name: Reward(function=f"module:{name}", weight=weight) for name, weight in WEIGHTS.items()}
EPSILON = 1e-4  # what TRL adds to a standard deviation; here nothing is added to it
SIZE = 5


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def random_rewards(seed, missing=0.0):
    """Two rewards of each row, float32 as TRL holds them; None with the probability `missing`."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 4 * SIZE, generator=generator, dtype=torch.float32).tolist()
    gone = (torch.rand(2, 4 * SIZE, generator=generator) < missing).tolist()
    return {
        name: [None if skip else value for value, skip in zip(*column, strict=True)]
        for name, column in zip(WEIGHTS, zip(values, gone, strict=True), strict=True)
    }


def rows_of(seed):
    return random_rows(seed, groups=4, group_size=SIZE)


def theirs(folder, kind, rewards, seed=0, beta=0.0, **options):
    """TRL's advantages, in the order of the rows."""
    trainer = trainer_of(
        kind, folder, group_size=SIZE, rewards=(first, second), beta=beta, reward_weights=[1.0, 0.5], **options
    )
    rows = rows_of(seed)
    reference = rows["ref_logprobs"].to_list()
    return completions_scored(trainer, rows, rewards, rows["logp"].to_list(), reference)["advantages"].tolist()


def ours(rewards, seed=0, beta=0.0, **advantage):
    """Our table of advantages, in the order of the rows, from what the reward functions returned."""
    found = {name: [classify(value) for value in values] for name, values in rewards.items()}
    columns = {f"reward/{name}": [reward for reward, _, _ in each] for name, each in found.items()}
    columns |= {f"status/{name}": [status for _, status, _ in each] for name, each in found.items()}
    rows = rows_of(seed).select("prompt_id", "ref_logprobs", sampler_logprobs="logp")
    keyed = rows.with_columns(
        iteration=pl.lit(1, dtype=pl.Int32),
        sample=pl.int_range(pl.len(), dtype=pl.Int16) % SIZE,
        kind=pl.lit("sample"),
        accepted=pl.lit(True),
        values=pl.lit(None, dtype=pl.List(pl.Float32())),
        length=pl.col("ref_logprobs").list.len(),
    )
    scored = add_task_reward(pl.DataFrame(columns, strict=False), REWARDS)
    table = add_score(add_kl(pl.concat([keyed, scored], how="horizontal")), beta)
    score = PARAMS.score.model_copy(update={"kl": Kl(beta=beta)})
    params = PARAMS.model_copy(update={"advantage": Advantage(**advantage), "score": score})
    return advantage_table(table, params, [])


def approx(values):
    return [value if value is None else pytest.approx(value, abs=1e-6) for value in values]


def assert_equal(table, expected):
    """TRL's advantages on rows in the loss; TRL's 0 on those that are outside of it here."""
    assert table["advantage"].to_list() == approx(
        [value if kept else None for value, kept in zip(expected, table["in_loss"], strict=True)]
    )
    outside = [value for value, kept in zip(expected, table["in_loss"], strict=True) if not kept]
    assert outside == [0.0] * len(outside)


MISSING = {"no None": 0.0, "some None": 0.3, "mostly None": 0.6}  # a function returns None: it does not apply


@pytest.fixture(
    params=[(missing, seed) for missing in MISSING for seed in range(3)], ids=lambda each: f"{each[0]}-{each[1]}"
)
def rewards(request):
    missing, seed = request.param
    return random_rewards(seed, MISSING[missing])


def test_rloo(tmp_path, rewards):
    table = ours(rewards, estimator="rloo")
    assert_equal(table, theirs(tmp_path, "rloo", rewards))
    assert table["score"].is_null().to_list() == [
        values == (None, None) for values in zip(*rewards.values(), strict=True)
    ]


def test_grpo_but_for_the_epsilon(tmp_path, rewards):
    table = ours(rewards, estimator="grpo")
    std = table.select(pl.col("score").std().over("prompt_id"))["score"]
    expected = theirs(tmp_path, "grpo", rewards, scale_rewards="group")
    assert_equal(table.with_columns(pl.col("advantage") * std / (std + EPSILON)), expected)


def test_dr_grpo(tmp_path, rewards):
    assert_equal(ours(rewards, estimator="dr_grpo"), theirs(tmp_path, "grpo", rewards, scale_rewards="none"))


def test_scaling_by_the_batch_is_dr_grpo_over_the_std_of_all_scores(tmp_path, rewards):
    table = ours(rewards, estimator="dr_grpo")  # no estimator here divides by that number
    scaled = table.with_columns(pl.col("advantage") / (pl.col("score").std() + EPSILON))
    assert_equal(scaled, theirs(tmp_path, "grpo", rewards, scale_rewards="batch"))


def test_normalising_over_the_batch(tmp_path, rewards):
    raw = ours(rewards, estimator="rloo")["advantage"]
    factor = raw.std(ddof=0) / (raw.std(ddof=1) + EPSILON)  # here the population's, in TRL the sample's
    table = ours(rewards, estimator="rloo", normalise="batch").with_columns(pl.col("advantage") * factor)
    assert_equal(table, theirs(tmp_path, "rloo", rewards, normalize_advantages=True))


def test_kl_in_the_reward(tmp_path, rewards):
    with_kl, without = (ours(rewards, seed=4, beta=beta, estimator="rloo") for beta in (0.2, 0.0))
    assert_equal(with_kl, theirs(tmp_path, "rloo", rewards, seed=4, beta=0.2))
    assert (with_kl["advantage"] - without["advantage"]).abs().max() > 0.01


def test_the_random_rewards_have_rows_that_nothing_can_score():
    for seed in range(3):
        assert 0 < ours(random_rewards(seed, 0.6))["advantage"].null_count() < 4 * SIZE


NONE = None


@pytest.mark.parametrize(
    ("scores", "expected", "trl"),
    [
        ([1.0, NONE, 0.0, NONE, NONE], [1.0, NONE, -1.0, NONE, NONE], [1.0, 0.0, -1.0, 0.0, 0.0]),
        ([1.0, NONE, NONE, NONE, NONE], [NONE] * 5, [0.0] * 5),
        ([NONE] * 5, [NONE] * 5, [0.0] * 5),
    ],
    ids=["two scorable", "one scorable", "none scorable"],
)
def test_what_differs_on_purpose_is_that_unscorable_rows_are_outside_the_loss(tmp_path, scores, expected, trl):
    # TRL's 0 keeps the row in the denominator of the loss; null takes it out, and so do lonely rows.
    others = [0.0, 1.0, 0.0, 1.0, 1.0]
    rewards = {"first": scores + others * 3, "second": [NONE] * (4 * SIZE)}
    table = ours(rewards, estimator="rloo")
    assert table["advantage"].to_list()[:SIZE] == approx(expected)
    assert table["in_loss"].to_list()[:SIZE] == [value is not None for value in expected]
    assert theirs(tmp_path, "rloo", rewards)[:SIZE] == approx(trl)


def test_what_differs_on_purpose_is_that_a_reward_of_nan_makes_the_row_unscorable(tmp_path):
    # TRL takes NaN for None, and adds what the other functions returned.
    rewards = {"first": [float("nan"), 1.0, 0.0, 0.0, 0.0] * 4, "second": [2.0, 0.0, 0.0, 0.0, 0.0] * 4}
    assert ours(rewards)["advantage"].to_list()[:SIZE] == approx([NONE, 1.0, -1 / 3, -1 / 3, -1 / 3])
    assert theirs(tmp_path, "rloo", rewards)[:SIZE] == approx([0.75, 0.75, -0.5, -0.5, -0.5])


def test_what_differs_on_purpose_is_that_a_constant_group_is_exactly_zero(tmp_path):
    torch.set_default_dtype(torch.float32)  # as TRL computes: there the mean of five times .96 is not .96
    rewards = {"first": [0.96] * SIZE + [0.0, 1.0, 0.0, 1.0, 1.0] * 3, "second": [NONE] * (4 * SIZE)}
    assert ours(rewards, estimator="grpo")["advantage"].to_list()[:SIZE] == [0.0] * SIZE
    rounded = theirs(tmp_path, "grpo", rewards, scale_rewards="group")[0]
    assert 0 < abs(rounded) < 1e-3  # the rounding of a float32 over the epsilon
