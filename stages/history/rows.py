"""One row of the history: an iteration's tables summed up under the names that the field greps for."""

import json
from collections.abc import Collection
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.checked import checked
from stages.common.params import Alarms
from stages.common.tables import (
    ADVANTAGES,
    CRITIC_STEPS,
    GRADIENT_SHARES,
    GROUP,
    KEY,
    PROMPTS,
    ROLLOUTS,
    SCORES,
    STEPS,
    read_table,
)
from stages.history.alarms import alarms_of
from stages.history.columns import ordered_columns
from stages.history.diagnostics import (
    critic_metrics,
    group_metrics,
    ratio_metrics,
    share_metrics,
    spread_metrics,
    token_metrics,
)
from stages.history.past import past_rows

JUDGED = ("win_rate", "win_rate_low", "win_rate_high", "length_controlled_win_rate", "sign_test_p")
EVALUATED = (
    "reward",
    "reward_low",
    "reward_high",
    "completions/mean_length",
    "completions/clipped_ratio",
    "distinct_2",
    "kl",
    "entropy",
)


def reward_metrics(scores: pl.DataFrame) -> dict[str, Any]:
    """Means over scorable rows; `reward_std` is the mean over groups of the standard deviation within one (n - 1).

    `frac_reward_zero_std` is a share of the groups with at least two scorable rows.
    """
    reward = pl.col("task_reward")
    groups = scores.group_by(GROUP, maintain_order=True).agg(
        std=reward.std(), spread=pl.when(reward.count() >= 2).then(reward.max() - reward.min())
    )
    names = [column.removeprefix("reward/") for column in scores.columns if column.startswith("reward/")]
    return {
        "reward": scores["task_reward"].mean(),
        "reward_std": groups["std"].mean(),
        **{f"rewards/{name}/mean": scores[f"reward/{name}"].mean() for name in names},
        "frac_reward_zero_std": (groups["spread"] == 0).mean(),
        "frac_unscorable": scores["task_reward"].is_null().mean(),
        "score": scores["score"].mean(),
        "kl": scores["kl"].mean(),
    }


def completion_metrics(rollouts: pl.DataFrame) -> dict[str, Any]:
    return {
        "entropy": rollouts["entropy"].cast(pl.Float64).mean(),
        "completions/mean_length": rollouts["length"].mean(),
        "completions/min_length": rollouts["length"].min(),
        "completions/max_length": rollouts["length"].max(),
        "completions/clipped_ratio": (rollouts["finish_reason"] == "length").mean(),
    }


def step_metrics(steps: pl.DataFrame) -> dict[str, Any]:
    """Of the optimizer steps of an iteration: the last learning rate (of a step that was taken), means else."""
    return {
        "loss": steps["loss"].mean(),
        "grad_norm": steps["grad_norm"].mean(),
        "learning_rate": steps["learning_rate"].drop_nulls().last() if steps["learning_rate"].count() else None,
        "optimizer_steps": steps["optimizer_step"][-1],
    }


def token_count(rollouts: pl.DataFrame, prompts: pl.DataFrame) -> int:
    """Prompt and completion tokens of the iteration's rows."""
    lengths = prompts.select("prompt_id", prompt_length=pl.col("prompt_ids").list.len())
    joined = rollouts.join(lengths, on="prompt_id", how="left")
    return int(joined.select(pl.col("length").sum() + pl.col("prompt_length").sum()).item())


def training_row(name: str, prompts: pl.DataFrame) -> dict[str, Any]:
    """Everything known of an iteration; of its samples only, as greedy rows are no part of the policy's performance."""
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    advantages = read_table(paths.advantages(name), ADVANTAGES, KEY)
    steps = read_table(paths.steps(name), STEPS, ("iteration", "step"))
    critic_steps = read_table(paths.critic_steps(name), CRITIC_STEPS, ("iteration", "step"))
    samples = rollouts.filter(kind="sample")
    scores = read_table(paths.scores(name), SCORES, KEY).filter(kind="sample")
    scored = samples.join(scores.select(*KEY, "task_reward"), on=KEY, validate="1:1", maintain_order="left")
    return {
        **reward_metrics(scores),
        **group_metrics(advantages),
        "mean_advantage": advantages.filter("in_loss")["advantage"].mean(),
        **completion_metrics(samples),
        **step_metrics(steps),
        "num_tokens": token_count(rollouts, prompts),
        **token_metrics(rollouts),
        **spread_metrics(scored),
        **ratio_metrics(steps),
        **critic_metrics(critic_steps),
    }


def evaluation_row(name: str) -> dict[str, Any]:
    """`eval/...` of an iteration that was evaluated."""
    found = json.loads(checked(paths.evaluation(name)).read_text(encoding="utf-8"))
    rewards = [key for key in found if key.startswith("rewards/")]
    return {f"eval/{key}": found[key] for key in (*EVALUATED, *rewards)}


def diagnosis_row(name: str) -> dict[str, Any]:
    """`grad_share/...` of an iteration that was diagnosed."""
    key = ("iteration", "reduction", "quartile")
    return share_metrics(read_table(paths.gradient_shares(name), GRADIENT_SHARES, key))


def judge_row(name: str) -> dict[str, Any]:
    """`judge/...` of an iteration that was judged against the initial policy; nothing without a judge."""
    path = paths.verdict(name)
    found = json.loads(checked(path).read_text(encoding="utf-8")) if path.exists() else {}
    return {f"judge/{key}": found[key] for key in JUDGED if key in found}


def history_row(name: str, prompts: pl.DataFrame, *, evaluated: bool) -> dict[str, Any]:
    """One iteration; the initial policy has only an evaluation."""
    number = paths.iteration_number(name)
    row = {"iteration": number, **(training_row(name, prompts) if number else {})}
    if evaluated:
        diagnosed = diagnosis_row(name) | judge_row(name) if number else {}
        row |= diagnosed | evaluation_row(name)
    return row


def history_frame(last: str, evaluated: Collection[str], alarms: Alarms, entry: str | None = None) -> pl.DataFrame:
    """One row per iteration from `i0000` to `last`. `num_tokens` is cumulative; `alarms` says what is wrong, or null.

    Rows up to `entry`, which the window starts from, are those of the history of the windows before. Only iterations in
    `evaluated` get `eval/...`, `judge/...` and `grad_share/...`: files of an older plan may lie beside them.
    """
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
    rows = past_rows(entry)
    for number in range(len(rows), paths.iteration_number(last) + 1):
        name = paths.iteration_name(number)
        rows.append(history_row(name, prompts, evaluated=name in evaluated))
        found = alarms_of(rows, alarms)
        rows[-1]["alarms"] = "; ".join(f"{alarm.name}: {alarm.text}" for alarm in found) or None
    return as_frame(rows)


def as_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The rows as a table; `num_tokens` added up."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.with_columns(pl.col("alarms").cast(pl.String), pl.col(pl.Null).exclude("alarms").cast(pl.Float64))
    frame = frame.select(ordered_columns(rows)).with_columns(pl.col("iteration").cast(pl.Int32))
    if "num_tokens" in frame.columns:
        frame = frame.with_columns(pl.col("num_tokens").fill_null(0).cum_sum())
    return frame
