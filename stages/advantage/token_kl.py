"""KL as a penalty on each token: its own k1 and that of all tokens after it are taken off the token's advantage.

    A_it = A_i - beta * sum_{s >= t} (log pi(y_is) - log pi_ref(y_is))

What the tokens before t cost does not depend on the token at t, so that leaving them out changes no expectation:
unbiased for E[r] - beta * KL, as the penalty on the whole sequence is, and often less noisy. Not always: what is left
out may be correlated with the rest, and the baseline no longer takes off the mean KL. It is taken off after the
estimator, so that a baseline of task rewards stays one, and no division by a standard deviation rescales beta.
"""

import polars as pl


def reward_to_go(table: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Fill `token_advantages` from `advantage` and `token_kl`; null where the row has no advantage."""
    to_go = pl.col("token_kl").cast(pl.List(pl.Float64)).list.eval(pl.element().reverse().cum_sum().reverse())
    return table.with_columns(
        token_advantages=pl.when(pl.col("advantage").is_not_null()).then(pl.col("advantage") - beta * to_go)
    )
