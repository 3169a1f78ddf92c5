"""The diagnostics section of the history: where the signal is, and whether the update stays near what was sampled."""

from typing import Any

import polars as pl

from stages.common.tables import GROUP

GROUP_KINDS = ("all_correct", "all_wrong", "all_equal", "mixed", "unscorable")
QUARTILES = 4


def group_metrics(advantages: pl.DataFrame) -> dict[str, Any]:
    """The share of groups of each kind, of all groups that were sampled."""
    groups = advantages.unique(GROUP)
    return {f"groups/{kind}": (groups["group_kind"] == kind).mean() for kind in GROUP_KINDS}


def spread_metrics(rows: pl.DataFrame) -> dict[str, Any]:
    """Standard deviation (n - 1) of the task reward within groups: by scorable rows of the group, and by quartile of
    the group's mean completion length. `rows` are samples with `task_reward` and `length`.
    """
    groups = (
        rows.group_by(GROUP, maintain_order=True)
        .agg(
            std=pl.col("task_reward").std(),
            size=pl.col("task_reward").count(),
            length=pl.col("length").mean(),
        )
        .drop_nulls("std")
        .sort("length", *GROUP)
        .with_columns(quartile=pl.int_range(pl.len()) * QUARTILES // pl.len() + 1)
    )
    by_size = groups.group_by("size").agg(pl.col("std").sort().mean()).sort("size")
    by_length = dict(groups.group_by("quartile").agg(pl.col("std").sort().mean()).rows())
    return {
        **{f"reward_std/size_{size}": std for size, std in by_size.rows()},
        **{f"reward_std/length_q{number}": by_length.get(number) for number in range(1, QUARTILES + 1)},
    }


def ratio_metrics(steps: pl.DataFrame) -> dict[str, Any]:
    """Over the steps of an iteration: means, and the extremes of the ratio; null where nothing was measured."""
    return {
        "approx_kl": steps["approx_kl"].mean(),
        "ratio/mean": steps["ratio_mean"].mean(),
        "ratio/min": steps["ratio_min"].min(),
        "ratio/max": steps["ratio_max"].max(),
        "clip_ratio/low": steps["clip_low"].mean(),
        "clip_ratio/high": steps["clip_high"].mean(),
        "clip_ratio/dual": steps["clip_dual"].mean(),
        "importance/mean": steps["importance_mean"].mean(),
        "importance/outside": steps["importance_outside"].mean(),
        "kl_loss": steps["kl_loss"].mean(),
    }


def critic_metrics(steps: pl.DataFrame) -> dict[str, Any]:
    """Means over the critic's steps of an iteration; nothing without a critic."""
    names = ("value_loss", "value_clip", "explained_variance")
    return {name: steps[name].mean() for name in names} if steps.height else {}


def token_metrics(rollouts: pl.DataFrame) -> dict[str, Any]:
    """Completion tokens of the iteration: all that were sampled (greedy ones too), and those that may be trained on."""
    accepted = rollouts.filter((pl.col("kind") == "sample") & pl.col("accepted"))
    groups = rollouts.unique(GROUP)
    return {
        "groups/sampled": groups.height,
        "groups/accepted": int(groups["accepted"].sum()),
        "tokens/sampled": int(rollouts["length"].sum()),
        "tokens/accepted": int(accepted["length"].sum()),
    }


def share_metrics(shares: pl.DataFrame) -> dict[str, Any]:
    """`grad_share/<reduction>/q1` (the shortest) to `q4`."""
    ordered = shares.sort("reduction", "quartile").select("reduction", "quartile", "share")
    return {f"grad_share/{reduction}/q{number}": share for reduction, number, share in ordered.rows()}
