"""The KL penalty: k1 of the whole sequence, inside the reward, before the baseline."""

import polars as pl
import pytest

from stages.advantage.rloo import rloo
from stages.score.kl import add_kl, add_score


def frame(sampler, reference, rewards):
    return pl.DataFrame(
        {"sampler_logprobs": sampler, "ref_logprobs": reference, "task_reward": rewards},
        schema={
            "sampler_logprobs": pl.List(pl.Float32()),
            "ref_logprobs": pl.List(pl.Float32()),
            "task_reward": pl.Float64(),
        },
    ).with_columns(iteration=pl.lit(1), prompt_id=pl.lit("p"))


@pytest.mark.parametrize(
    ("rewards", "sampler", "reference", "kl", "beta", "advantages"),
    [
        # r [1,0], kl [2,1], beta .05: scores .9 and -.05
        ([1, 0], [[-1, -1], [-0.5]], [[-2, -2], [-1.5]], [2, 1], 0.05, [0.95, -0.95]),
        # r [1,0], kl [2,-1], beta .1: scores .8 and .1
        ([1, 0], [[-0.5, -0.5, -0.5], [-3]], [[-1, -1.5, -1], [-2]], [2, -1], 0.1, [0.7, -0.7]),
        # beta 0: the KL is reported and changes nothing
        ([1, 0], [[-1, -1], [-0.5]], [[-2, -2], [-1.5]], [2, 1], 0.0, [1.0, -1.0]),
        # the same KL everywhere changes nothing either
        ([1, 0], [[-1], [-0.5]], [[-3], [-2.5]], [2, 2], 0.5, [1.0, -1.0]),
    ],
)
def test_golden_advantages_with_kl(rewards, sampler, reference, kl, beta, advantages):
    scored = add_score(add_kl(frame(sampler, reference, rewards)), beta)
    assert scored["kl"].to_list() == kl
    assert scored["score"].to_list() == pytest.approx(
        [r - beta * k for r, k in zip(rewards, kl, strict=True)], abs=1e-15
    )
    assert rloo(scored)["advantage"].to_list() == pytest.approx(advantages, abs=1e-12)


def test_kl_is_the_difference_of_the_sums():
    added = add_kl(frame([[-1, -2.5], [-0.5]], [[-2, -4], [-0.25]], [0, 0]))
    assert added["logp_sum"].to_list() == [-3.5, -0.5]
    assert added["ref_logp_sum"].to_list() == [-6.0, -0.25]
    assert added["kl"].to_list() == [2.5, -0.25]
    assert added.select("logp_sum", "ref_logp_sum", "kl").dtypes == [pl.Float64] * 3


def test_sums_are_taken_in_float64():
    added = add_kl(frame([[-16_777_216.0, -1.0]], [[0.0, 0.0]], [0]))
    assert added["kl"].to_list() == [-16_777_217.0]  # float32 has no such number


def test_row_without_a_task_reward_has_kl_but_no_score():
    scored = add_score(add_kl(frame([[-1], [-1]], [[-2], [-2]], [None, 1.0])), 0.1)
    assert scored["kl"].to_list() == [1.0, 1.0]
    assert scored["score"].to_list() == [None, 0.9]
