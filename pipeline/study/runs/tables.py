"""The tables of a study."""

import polars as pl

from stages.common.tables import Schema

RUN = ("method", "beta", "flips", "seed")
RUN_SCHEMA: Schema = {"method": pl.String(), "beta": pl.Float64(), "flips": pl.String(), "seed": pl.Int32()}

CURVES: Schema = {
    **RUN_SCHEMA,
    "iteration": pl.Int32(),  # 0: the fine-tuned model; -1: trained on pairs alone
    "final": pl.Boolean(),  # the policy that the run is judged by
    "tokens": pl.Int64(),  # completion tokens sampled for training so far
    "proxy": pl.Float64(),  # mean score by the reward model on held-out prompts
    "gold": pl.Float64(),
    "kl": pl.Float64(),  # to the reference, nats per sequence
    "entropy": pl.Float64(),
    "length": pl.Float64(),
    "win_rate": pl.Float64(),  # by gold, against the fine-tuned model; null at iteration 0
    "length_controlled_win_rate": pl.Float64(),
    "clipped": pl.Float64(),  # mean share of clipped tokens so far, of steps that can clip; null: there are none
}

OUTCOMES: Schema = {
    **RUN_SCHEMA,
    "prompt_id": pl.String(),
    "outcome": pl.Float64(),  # of the final policy, mean over its samples: 1 won, .5 tie, 0 lost
}

COSTS: Schema = {
    **RUN_SCHEMA,
    "seconds": pl.Float64(),  # of training, on this machine
    "peak_memory_mb": pl.Float64(),  # of the run's process while it trains, and of its GPU where there is one
    "models": pl.Int32(),  # held while training
    "state_mb": pl.Float64(),  # of these models, by count: weights, and AdamW's state of those that are trained
}
