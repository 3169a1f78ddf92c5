"""The tables of an iteration: one declared schema each, explicit keys, sorted, checked when written and when read."""

from pathlib import Path

import polars as pl

from stages.common.checked import reading
from stages.common.errors import StageError
from stages.common.files import publish

Schema = dict[str, pl.DataType]

EQUAL = 1e-12  # task rewards that differ by less are the same

KEY = ("iteration", "prompt_id", "sample", "kind")
GROUP = ("iteration", "prompt_id")
BATCH = ("iteration",)

KEY_SCHEMA: Schema = {
    "iteration": pl.Int32(),  # of a policy of `offline`, which has none: -1
    "prompt_id": pl.String(),
    "sample": pl.Int16(),
    "kind": pl.String(),  # sample | greedy
}

PROMPTS: Schema = {
    "prompt_id": pl.String(),
    "split": pl.String(),  # train | heldout
    "prompt": pl.String(),  # of a conversation: its last turn
    "messages": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),  # null: the prompt is a text
    "prompt_text": pl.String(),  # rendered, with system turn and few-shot turns
    "prompt_tail": pl.String(),  # what the end of prompt_text opens, such as <think>, and the answer goes on from
    "prompt_ids": pl.List(pl.Int32()),
}

DEMONSTRATIONS: Schema = {
    "prompt_id": pl.String(),
    "split": pl.String(),  # train | heldout
    "prompt": pl.String(),
    "prompt_ids": pl.List(pl.Int32()),
    "completion": pl.String(),
    "completion_ids": pl.List(pl.Int32()),  # with the end-of-sequence token
    "task_reward": pl.Float64(),  # of best_of; null: from a file
}

SFT_STEPS: Schema = {
    "step": pl.Int32(),  # 0: before the first
    "epoch": pl.Int32(),
    "loss": pl.Float64(),  # nats per completion token of the step; null at step 0
    "grad_norm": pl.Float64(),  # before clipping
    "learning_rate": pl.Float64(),
    "tokens": pl.Int64(),  # completion tokens
    "heldout_loss": pl.Float64(),  # nats per token of the held-out completions, at step 0 and at an epoch's end
}

PREFERENCES: Schema = {
    "pair_id": pl.String(),  # the row of a file, or the id of the prompt
    "split": pl.String(),  # train | heldout
    "prompt": pl.String(),  # a view: the ids are the truth
    "prompt_ids": pl.List(pl.Int32()),
    "chosen": pl.String(),
    "chosen_ids": pl.List(pl.Int32()),  # with the end-of-sequence token, if there was one
    "rejected": pl.String(),
    "rejected_ids": pl.List(pl.Int32()),
    "chosen_gold": pl.Float64(),  # of the gold function; null: labelled by people
    "rejected_gold": pl.Float64(),
    "flipped": pl.Boolean(),  # gold prefers the rejected one; false where there is no gold
    "margin": pl.Float64(),  # of the file; null: none
}

REWARD_STEPS: Schema = {
    "step": pl.Int32(),
    "epoch": pl.Int32(),
    "pairs": pl.Int32(),
    "tokens": pl.Int64(),
    "loss": pl.Float64(),  # nats per pair, with margin and centring
    "accuracy": pl.Float64(),  # on the step's pairs, before the step
    "difference": pl.Float64(),  # mean of r_chosen - r_rejected
    "grad_norm": pl.Float64(),
    "learning_rate": pl.Float64(),  # null: nothing had a gradient, and no step was taken
}

ROLLOUTS: Schema = {
    **KEY_SCHEMA,
    "position": pl.Int64(),  # place in the endless sequence of shuffled epochs
    "completion": pl.String(),  # a view: the ids are the truth
    "completion_ids": pl.List(pl.Int32()),
    "sampler_logprobs": pl.List(pl.Float32()),
    "entropy": pl.Float32(),  # mean over tokens of the sampling distribution's entropy, nats
    "finish_reason": pl.String(),  # stop | length | empty
    "length": pl.Int32(),
    "seed": pl.UInt64(),
    "accepted": pl.Boolean(),  # false: dynamic sampling found no difference in its group, and sampled on
}

SCORES: Schema = {
    **KEY_SCHEMA,
    "length": pl.Int32(),  # tokens of the completion
    "task_reward": pl.Float64(),  # null: nothing could score the row
    "ref_logprobs": pl.List(pl.Float32()),  # null, as what follows from it: no reference, as beta is 0
    "logp_sum": pl.Float64(),
    "ref_logp_sum": pl.Float64(),
    "kl": pl.Float64(),
    "token_kl": pl.List(pl.Float32()),  # k1 of each token
    "score": pl.Float64(),
    "values": pl.List(pl.Float32()),  # of the critic, before each token; null: no critic
    "entropy": pl.Float32(),
    "accepted": pl.Boolean(),
    "in_baseline": pl.Boolean(),
}

ADVANTAGES: Schema = {
    **KEY_SCHEMA,
    "estimator": pl.String(),
    "task_reward": pl.Float64(),
    "score": pl.Float64(),
    "baseline": pl.Float64(),
    "advantage": pl.Float64(),
    "token_advantages": pl.List(pl.Float32()),  # where each token has its own; null: all have `advantage`
    "group_size": pl.Int32(),  # samples; the greedy row is none
    "n_scorable": pl.Int32(),
    "group_kind": pl.String(),  # all_correct | all_wrong | all_equal | mixed | unscorable
    "in_loss": pl.Boolean(),
    "reason": pl.String(),
    "ref_logprobs": pl.List(pl.Float32()),  # where the KL is in the loss; null elsewhere
    "values": pl.List(pl.Float32()),  # of the critic; null: no critic
    "returns": pl.List(pl.Float32()),  # what the critic learns; null: no critic
    "carried": pl.List(pl.Float64()),  # what a moving average hands to the next iteration; null: nothing
    "carried_form": pl.String(),  # all | window | ema
}

STEPS: Schema = {
    "iteration": pl.Int32(),
    "step": pl.Int32(),
    "epoch": pl.Int32(),
    "optimizer_step": pl.Int64(),  # counted over the whole run
    "rows": pl.Int32(),
    "rows_in_loss": pl.Int32(),
    "rows_with_gradient": pl.Int32(),
    "tokens": pl.Int64(),
    "loss": pl.Float64(),  # the whole of it
    "kl_loss": pl.Float64(),  # beta times the KL inside the loss
    "grad_norm": pl.Float64(),
    "learning_rate": pl.Float64(),  # null: nothing had a gradient, and no step was taken
    "approx_kl": pl.Float64(),  # mean over tokens of the trainer's k3 estimate against the sampler
    "ratio_mean": pl.Float64(),  # trainer over old policy, as the objective takes it: of a token or of its sequence
    "ratio_min": pl.Float64(),
    "ratio_max": pl.Float64(),
    "clip_low": pl.Float64(),  # share of the tokens whose ratio was clipped; null: the objective does not clip
    "clip_high": pl.Float64(),
    "clip_dual": pl.Float64(),
    "importance_mean": pl.Float64(),  # weight of trainer over sampler; null: no correction
    "importance_outside": pl.Float64(),  # share of the tokens whose weight was truncated or masked
    "entropy": pl.Float64(),
}

CRITIC_STEPS: Schema = {
    "iteration": pl.Int32(),
    "step": pl.Int32(),
    "epoch": pl.Int32(),
    "optimizer_step": pl.Int64(),  # counted over the whole run, pretraining included
    "rows": pl.Int32(),
    "tokens": pl.Int64(),
    "value_loss": pl.Float64(),  # half the mean square over tokens, clipped as the options say
    "value_clip": pl.Float64(),  # share of the tokens whose clipped loss counted
    "value_mean": pl.Float64(),
    "return_mean": pl.Float64(),
    "explained_variance": pl.Float64(),  # of the returns, by the values before the step; null: returns are equal
    "grad_norm": pl.Float64(),
    "learning_rate": pl.Float64(),  # null: nothing had a gradient, and no step was taken
}

OFFLINE_STEPS: Schema = {
    "step": pl.Int32(),  # 0: before the first
    "epoch": pl.Int32(),
    "pairs": pl.Int32(),
    "tokens": pl.Int64(),  # completion tokens of both answers
    "loss": pl.Float64(),  # nats per pair; null at step 0
    "accuracy": pl.Float64(),  # share of the step's pairs whose chosen answer has the higher implicit reward
    "difference": pl.Float64(),  # mean of the difference of the implicit rewards
    "grad_norm": pl.Float64(),
    "learning_rate": pl.Float64(),
    "heldout_loss": pl.Float64(),  # at step 0 and at an epoch's end
    "heldout_accuracy": pl.Float64(),
}

GRADIENT_SHARES: Schema = {
    "iteration": pl.Int32(),
    "reduction": pl.String(),  # sequence_sum | response_mean | token_mean
    "quartile": pl.Int32(),  # of completion length, 1 the shortest
    "rows": pl.Int32(),
    "min_length": pl.Int32(),
    "max_length": pl.Int32(),
    "gradient_norm": pl.Float64(),  # of the quartile's rows alone, before the division by a total
    "share": pl.Float64(),  # of the sum of the four norms; null: nothing has a gradient
}

GENERATIONS: Schema = {
    **KEY_SCHEMA,
    "completion": pl.String(),
    "completion_ids": pl.List(pl.Int32()),
    "finish_reason": pl.String(),
    "length": pl.Int32(),
    "entropy": pl.Float32(),
    "kl": pl.Float64(),  # to the reference, k1 of the sequence; null: not measured
    "task_reward": pl.Float64(),
    "parts": pl.List(pl.Struct({"name": pl.String(), "value": pl.Float64()})),
}


JUDGED: Schema = {
    "iteration": pl.Int32(),  # of a policy of `offline`, which has none: -1
    "prompt_id": pl.String(),
    "sample": pl.Int16(),
    "outcome": pl.Float64(),  # 1: won against the initial policy, 0: lost, .5: tie; null: no verdict
    "score": pl.Float64(),  # by a function or a reward model; null: by an endpoint
    "other_score": pl.Float64(),
    "verdict": pl.String(),  # of an endpoint that saw this answer as A; null: none
    "verdict_swapped": pl.String(),  # that saw it as B
    "message": pl.String(),  # why there is no outcome
    "length": pl.Int32(),
    "other_length": pl.Int32(),
}


class TableError(StageError):
    """A table that breaks its contract; the message names the table and the row's key."""


def reward_schema(names: list[str]) -> Schema:
    """The columns that each reward function adds to the scores table."""
    columns: Schema = {}
    for name in names:
        columns[f"reward/{name}"] = pl.Float64()
        columns[f"status/{name}"] = pl.String()  # ok | missing | invalid | timeout | error
        columns[f"message/{name}"] = pl.String()
    return columns


def conform(frame: pl.DataFrame, schema: Schema, table: str) -> pl.DataFrame:
    """The frame with the schema's columns first, in order and of the declared types; extra columns keep theirs."""
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise TableError(f"{table}: columns {missing} are missing; it has {frame.columns}")
    extra = [name for name in frame.columns if name not in schema]
    declared = [_converted(frame[name], dtype, table) for name, dtype in schema.items()]
    return pl.DataFrame(declared).hstack(frame.select(extra).get_columns())


def _converted(column: pl.Series, dtype: pl.DataType, table: str) -> pl.Series:
    """The column in the declared type, refused if that would change a value."""
    try:
        converted = column.cast(dtype, strict=True)
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{table}: column {column.name} should be {dtype}, found {column.dtype}: {error}") from None
    if column.dtype.is_float() and dtype.is_integer() and not (converted.cast(column.dtype) == column).all():
        raise TableError(f"{table}: column {column.name} should be {dtype}, but holds fractions")
    return converted


def check_key(frame: pl.DataFrame, key: tuple[str, ...], table: str) -> None:
    """Every key is complete and occurs once."""
    bad = frame.filter(pl.any_horizontal(pl.col(key).is_null()) | pl.struct(key).is_duplicated())
    if not bad.is_empty():
        raise TableError(
            f"{table}: key {dict(zip(key, bad.select(key).row(0), strict=True))} is incomplete or not unique"
        )


def write_table(frame: pl.DataFrame, schema: Schema, key: tuple[str, ...], path: Path) -> pl.DataFrame:
    """Check, sort by key, and publish. The same rows give the same bytes."""
    conformed = conform(frame, schema, str(path))
    check_key(conformed, key, str(path))
    ordered = conformed.sort(key)
    with publish(path) as scratch:
        ordered.write_parquet(scratch, compression="zstd", statistics=True)
    return ordered


def read_table(path: Path, schema: Schema, key: tuple[str, ...]) -> pl.DataFrame:
    """Read and check a table that an earlier stage wrote: its bytes by the manifest, then its columns and its key."""
    if not path.exists():
        raise TableError(f"{path} does not exist; run the stage that makes it (`dvc repro` or `rloo train`)")
    try:
        with reading(path):
            frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path}: cannot be read as Parquet: {error}; delete it, and run its stage again") from None
    for name, dtype in schema.items():
        if frame.schema.get(name) != dtype:
            raise TableError(f"{path}: column {name} should be {dtype}, found {frame.schema.get(name)}")
    check_key(frame, key, str(path))
    return frame
