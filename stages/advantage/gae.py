"""Generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438), token by token, with a critic's values.

    delta_t = r_t + gamma V_{t+1} - V_t            V after the last token is 0
    A_t     = sum_l (gamma lam)^l delta_{t+l}      returns_t = A_t(lam_critic) + V_t, which the critic learns

V_t is the value before token t: of the prompt and the tokens before it. The rewards r_t are 0 but for the score at the
last token; with `score.kl.placement: reward_to_go` each token has its own -beta k1 besides, and the score is the task
reward. lam = 1 is the return minus the value, unbiased whatever the values are (with gamma = 1); below 1 the critic's
errors become a bias, in exchange for less variance. lam = 0 is the error of one step.

`length_adaptive` alpha (VAPO, Yue et al. 2025, arXiv 2504.05118): lam = 1 - 1 / (alpha * length) of each row, held in
[0, 1], so that a reward at the end reaches the first token of long answers too.

`baseline` is the value before the first token and `advantage` the score minus it: a view for people, while the loss and
the steps after the estimator take the tokens' own.
"""

from collections.abc import Sequence

import polars as pl

from stages.common.gate import check_values
from stages.common.params import Gae

TOKENS = pl.List(pl.Float64)


def gae(samples: pl.DataFrame, options: Gae, token_beta: float) -> pl.DataFrame:
    """Add `baseline`, `advantage`, `token_advantages` and `returns`; null where the row has no score.

    Expects `score` (null: not scorable), `values` and, for a `token_beta` other than 0, `token_kl` in nats.
    """
    check_values(samples)
    rows = samples.select("score", "values", "token_kl").iter_rows()
    found = [row_estimates(score, values, kl, options, token_beta) for score, values, kl in rows]
    first = pl.when(pl.col("score").is_not_null()).then(pl.col("values").list.first().cast(pl.Float64))
    return samples.with_columns(
        baseline=first,
        advantage=pl.col("score") - first,
        token_advantages=pl.Series([advantages for advantages, _ in found], dtype=TOKENS),
        returns=pl.Series([returns for _, returns in found], dtype=TOKENS),
    )


def row_estimates(
    score: float | None, values: Sequence[float], kl: Sequence[float], options: Gae, token_beta: float
) -> tuple[list[float] | None, list[float] | None]:
    """Advantages and returns of a row's tokens."""
    if score is None:
        return None, None
    rewards = [-token_beta * nats for nats in kl] if token_beta else [0.0] * len(values)
    rewards[-1] += score
    lam = lambda_of(options, len(values))
    lam_critic = lam if options.lam_critic is None else options.lam_critic
    ahead = token_advantages(rewards, values, options.gamma, lam_critic)
    returns = [advantage + value for advantage, value in zip(ahead, values, strict=True)]
    return token_advantages(rewards, values, options.gamma, lam), returns


def lambda_of(options: Gae, length: int) -> float:
    """lam, or that of an answer of `length` tokens."""
    if options.length_adaptive is None:
        assert options.lam is not None, "one of the two is set"
        return options.lam
    return min(1.0, max(0.0, 1.0 - 1.0 / (options.length_adaptive * length)))


def token_advantages(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """A_t = delta_t + gamma lam A_{t+1}, from the last token to the first."""
    found: list[float] = []
    advantage = following = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * following - value + gamma * lam * advantage
        following = value
        found.append(advantage)
    return found[::-1]
