"""The KL penalty inside the reward: k1 of the whole sequence, detached, before the baseline.

    kl = sum_t (log pi(y_t) - log pi_ref(y_t))        score = task_reward - beta * kl

Unbiased for the gradient of E[r] - beta KL(pi || pi_ref), because E[grad log pi] = 0.
"""

import polars as pl


def add_kl(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `logp_sum`, `ref_logp_sum` and `kl` from the per-token log-probs (summed in float64)."""
    logp = pl.col("sampler_logprobs").cast(pl.List(pl.Float64)).list.sum()
    ref = pl.col("ref_logprobs").cast(pl.List(pl.Float64)).list.sum()
    return frame.with_columns(logp_sum=logp, ref_logp_sum=ref, kl=logp - ref)


def add_score(frame: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Add `score`, null where there is no task reward."""
    return frame.with_columns(score=pl.col("task_reward") - beta * pl.col("kl"))
