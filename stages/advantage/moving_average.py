"""A moving average of the scores of past iterations as baseline, one number for all prompts: A_i = R_i - b.

    all:     b = mean of all past scores
    window:  b = mean of the scores of the last `window` iterations
    ema:     b = decay * b' + (1 - decay) * mean score of the previous iteration,  b' the average before that

Only earlier iterations enter, so that b is independent of the scores it is compared with: the gradient stays unbiased.
The first iteration has no past: b = 0, plain REINFORCE. What the average needs to go on stands in the advantage table
of each iteration (column `carried`), not in the memory of a process.
"""

import polars as pl

from stages.common.params import MovingAverage

Carried = list[float]  # all: [sum, count]; window: sum and count of each iteration, oldest first; ema: [average]


def baseline_of(carried: Carried, options: MovingAverage) -> float:
    """The baseline that the past gives; 0 without any past."""
    if not carried:
        return 0.0
    if options.form == "ema":
        return carried[0]
    return sum(carried[::2]) / sum(carried[1::2])


def carry_on(carried: Carried, scores: pl.Series, options: MovingAverage) -> Carried:
    """The past with this iteration's scores in it; unchanged if none of them could be scored."""
    known = scores.drop_nulls().sort()  # the sum must not depend on the order of the rows
    if known.is_empty():
        return carried
    total, count = float(known.sum()), float(known.len())
    match options.form:
        case "all":
            return [total + sum(carried[::2]), count + sum(carried[1::2])]
        case "window":
            return [*carried, total, count][-2 * options.window :]
        case "ema":
            before = carried[0] if carried else total / count
            return [options.decay * before + (1 - options.decay) * total / count]


def moving_average(scores: pl.DataFrame, baseline: float) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score."""
    known = pl.when(pl.col("score").is_not_null()).then(pl.lit(baseline))
    return scores.with_columns(baseline=known, advantage=pl.col("score") - baseline)
