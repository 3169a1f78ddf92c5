"""The KL penalty inside the reward: k1 of the whole sequence, detached, before the baseline.

    kl = sum_t (log pi(y_t) - log pi_ref(y_t))        score = task_reward - beta * kl

Unbiased for the gradient of E[r] - beta KL(pi || pi_ref), because E[grad log pi] = 0. With another placement of the
penalty the score is the task reward: `token_kl` goes to the advantage stage, or the reference log-probs to the update.
With beta 0 there is no reference: its log-probs are null, and so is the KL.
"""

import polars as pl

LOGPROBS = pl.List(pl.Float64)


def add_kl(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `token_kl`, and `kl` as the difference of the float64 sums `logp_sum` and `ref_logp_sum`."""
    logp, ref = pl.col("sampler_logprobs").cast(LOGPROBS), pl.col("ref_logprobs").cast(LOGPROBS)
    logp_sum, ref_sum = logp.list.sum(), ref.list.sum()
    return frame.with_columns(token_kl=logp - ref, logp_sum=logp_sum, ref_logp_sum=ref_sum, kl=logp_sum - ref_sum)


def add_score(frame: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Add `score`, null where there is no task reward; without a penalty it is the task reward, and no KL is needed."""
    penalty = beta * pl.col("kl") if beta else pl.lit(0.0)
    return frame.with_columns(score=pl.col("task_reward") - penalty)
