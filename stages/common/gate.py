"""The gate between stages: what a table must satisfy before it is published. A violation names the row's key."""

import polars as pl

from stages.common.tables import GROUP, KEY, TableError

TOLERANCE = 1e-9


def refuse(frame: pl.DataFrame, violates: pl.Expr, table: str, rule: str, key: tuple[str, ...] = KEY) -> None:
    """Raise if any row violates a rule, or if a null keeps it undecided; the first such row's key is in the message."""
    bad = frame.filter(violates.fill_null(True))
    if not bad.is_empty():
        where = ", ".join(f"{name}={value}" for name, value in zip(key, bad.select(key).row(0), strict=True))
        raise TableError(f"{table}: {bad.height} row(s) violate: {rule}. First: {where}")


def check_rollouts(frame: pl.DataFrame, samples_per_prompt: int) -> None:
    """Lengths agree, log-probs are finite and not positive, every prompt has all its samples."""
    table = "rollouts"
    length = pl.col("length")
    refuse(frame, pl.col("completion_ids").list.len() != length, table, "length is the number of completion ids")
    refuse(frame, pl.col("sampler_logprobs").list.len() != length, table, "one log-prob for each completion id")
    refuse(frame, length < 1, table, "a completion has at least one token, if only the end of sequence")
    bad_element = pl.element().is_null() | ~pl.element().is_finite() | (pl.element() > 1e-4)
    logp = pl.col("sampler_logprobs").list.eval(bad_element.fill_null(True)).list.any()
    refuse(frame, logp, table, "log-probs are finite and at most 0")
    samples = pl.len().over(GROUP) % samples_per_prompt
    refuse(frame.filter(pl.col("kind") == "sample"), samples != 0, table, f"{samples_per_prompt} samples per prompt")
    refuse(frame, pl.col("accepted").n_unique().over(GROUP) != 1, table, "a group is accepted as a whole")


def check_greedy(frame: pl.DataFrame) -> None:
    """Every accepted prompt has exactly one greedy completion."""
    greedy = (pl.col("kind") == "greedy").sum().over(GROUP)
    refuse(frame, greedy != pl.col("accepted").cast(pl.Int32), "rollouts", "one greedy completion per accepted prompt")


def check_scores(frame: pl.DataFrame) -> None:
    """A score exactly where there is a task reward, and finite."""
    table = "scores"
    counts = (pl.col("kind") == "sample") & pl.col("accepted") & pl.col("task_reward").is_not_null()
    refuse(frame, pl.col("in_baseline") != counts, table, "in_baseline are the accepted samples with a task reward")
    refuse(frame, pl.col("score").is_null() != pl.col("task_reward").is_null(), table, "scorable rows have a score")
    refuse(frame, ~pl.col("score").fill_null(0.0).is_finite(), table, "score is finite")


def check_reference(frame: pl.DataFrame, *, wanted: bool) -> None:
    """Without a reference all that is of it is null; with one each token has a log-prob, and the KL is finite."""
    table = "scores"
    if not wanted:
        there = pl.any_horizontal(pl.col("ref_logprobs", "token_kl", "ref_logp_sum", "kl").is_not_null())
        refuse(frame, there, table, "beta is 0: no row has anything of a reference")
        return
    refuse(frame, pl.col("ref_logprobs").list.len() != pl.col("length"), table, "one reference log-prob per token")
    refuse(frame, pl.col("token_kl").list.len() != pl.col("length"), table, "one KL per token")
    refuse(frame, ~pl.col("kl").is_finite(), table, "kl is finite")


def check_values(frame: pl.DataFrame) -> None:
    """Every row has values of a critic."""
    none = "values of a critic: these scores were made without one; score again with a section `critic`"
    refuse(frame, pl.col("values").is_null(), "scores", none)


def check_token_values(frame: pl.DataFrame) -> None:
    """A row with values has one for each token, and they are finite."""
    found = frame.filter(pl.col("values").is_not_null())
    refuse(found, pl.col("values").list.len() != pl.col("length"), "scores", "one value for each token")
    refuse(found, ~_all_finite("values"), "scores", "values are finite")


def _all_finite(column: str) -> pl.Expr:
    return pl.col(column).list.eval(pl.element().is_finite().fill_null(value=False)).list.all()


def check_returns(frame: pl.DataFrame) -> None:
    """Returns exactly where there is a token advantage, one for each token as there are values, and finite."""
    table, returns = "advantages", pl.col("returns")
    refuse(frame, returns.is_null() != pl.col("token_advantages").is_null(), table, "returns of every row in the loss")
    found = frame.filter(returns.is_not_null())
    for other in ("token_advantages", "values"):
        refuse(found, returns.list.len() != pl.col(other).list.len(), table, f"one return for each of {other}")
    refuse(found, ~_all_finite("returns"), table, "returns are finite")


def check_same_keys(frame: pl.DataFrame, other: pl.DataFrame, table: str, other_table: str) -> None:
    """Both tables speak of exactly the same rows."""
    for left, right, name in ((frame, other, other_table), (other, frame, table)):
        absent = left.select(KEY).join(right.select(KEY), on=KEY, how="anti")
        refuse(absent, pl.lit(True), table, f"every row is also in {name}")


def check_finite(frame: pl.DataFrame) -> None:
    """Advantages are null or finite."""
    refuse(frame, ~pl.col("advantage").fill_null(0.0).is_finite(), "advantages", "advantage is finite")


def check_advantages(frame: pl.DataFrame) -> None:
    """Advantages exist exactly in the loss and are finite; tokens that have their own have one each."""
    table, own = "advantages", pl.col("token_advantages")
    refuse(frame, pl.col("advantage").is_null() == pl.col("in_loss"), table, "an advantage exactly where in_loss")
    check_finite(frame)
    refuse(frame, own.list.len().fill_null(pl.col("length")) != pl.col("length"), table, "one for each token")
    finite = own.list.eval(pl.element().is_finite().fill_null(value=False)).list.all().fill_null(value=True)
    refuse(frame, ~finite, table, "token advantages are finite")


def check_training_rows(frame: pl.DataFrame, *, needs_reference: bool) -> None:
    """Rollouts and advantages that were joined speak of the same tokens."""
    table, length = "advantages", pl.col("completion_ids").list.len()
    of_rollouts = "made of these rollouts: run its stage again"
    own = pl.col("token_advantages").list.len().fill_null(length)
    refuse(frame, own != length, table, f"one token advantage per completion id, {of_rollouts}")
    if needs_reference:
        reference = pl.col("ref_logprobs").list.len()
        refuse(frame, reference != length, table, f"one reference log-prob per completion id, {of_rollouts}")


def check_centred(frame: pl.DataFrame) -> None:
    """The advantages of each group sum to zero, to `TOLERANCE` of the largest score or advantage in it."""
    size = pl.max_horizontal(pl.col("score").abs(), pl.col("advantage").abs(), pl.lit(1.0))
    total = pl.col("advantage").sum().over(GROUP).abs()
    scale = size.max().over(GROUP)
    refuse(frame, total > TOLERANCE * scale, "advantages", "the advantages of a group sum to 0")


def check_preferences(frame: pl.DataFrame) -> None:
    """Nothing is empty, the two answers differ, both splits have pairs, and `flipped` agrees with the gold scores."""
    table, key = "preferences", ("pair_id",)
    for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
        refuse(frame, pl.col(name).list.len() < 1, table, f"{name} has at least one token", key)
    refuse(frame, pl.col("chosen_ids") == pl.col("rejected_ids"), table, "chosen and rejected differ", key)
    refuse(frame, ~pl.col("split").is_in(["train", "heldout"]), table, "split is train or heldout", key)
    sides = pl.col("split").n_unique().over("prompt_ids")
    refuse(frame, sides != 1, table, "the pairs of a prompt are on one side of the split", key)
    one_gold = pl.col("chosen_gold").is_null() != pl.col("rejected_gold").is_null()
    refuse(frame, one_gold, table, "both answers have a gold score or neither", key)
    swapped = (pl.col("chosen_gold") < pl.col("rejected_gold")).fill_null(value=False)
    refuse(frame, pl.col("flipped") != swapped, table, "flipped where gold prefers the rejected answer", key)
    for name in ("chosen_gold", "rejected_gold", "margin"):
        refuse(frame, ~pl.col(name).fill_null(0.0).is_finite(), table, f"{name} is finite or null", key)
