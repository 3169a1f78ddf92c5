"""How far two sets of rewards agree on the same rows.

Correlations are taken twice, as they can differ in sign. *Within* groups: of rewards less their group's mean, pooled;
this is what an estimator with a group baseline sees. *Across* groups: of the groups' means. Spearman's is Pearson's of
the ranks (ties share the mean rank), of the rows in their group and of the groups.
"""

from typing import Any

import polars as pl

from stages.common.signal import has_advantage
from stages.common.tables import GROUP, KEY

Row = dict[str, Any]


def joined(scores: tuple[pl.DataFrame, pl.DataFrame], advantages: tuple[pl.DataFrame, pl.DataFrame]) -> pl.DataFrame:
    """The accepted samples with `reward`, `advantage` and `signal` of both sides; `_new` is appended to the second's.

    Both sides have the same keys.
    """
    old, new = (
        one.filter((pl.col("kind") == "sample") & pl.col("accepted"))
        .select(*KEY, reward="task_reward")
        .join(table.select(*KEY, "advantage", signal=has_advantage().fill_null(value=False)), on=KEY, validate="1:1")
        for one, table in zip(scores, advantages, strict=True)
    )
    return old.join(new, on=KEY, suffix="_new", validate="1:1").sort(KEY)


def agreement(rows: pl.DataFrame) -> Row:
    """One line of figures over `joined` rows; a correlation of what does not vary is null."""
    both = rows.drop_nulls(["reward", "reward_new"])
    flips = rows.filter(pl.col("advantage").sign() * pl.col("advantage_new").sign() < 0).height
    groups = rows.group_by(GROUP, maintain_order=True).agg(pl.col("signal", "signal_new").any())
    gained = groups.filter(~pl.col("signal") & pl.col("signal_new")).height
    lost = groups.filter(pl.col("signal") & ~pl.col("signal_new")).height
    return {
        "rows": rows.height,
        "old": rows["reward"].mean(),
        "new": rows["reward_new"].mean(),
        **correlations(both),
        "sign_flips": flips / rows.height if rows.height else None,
        "groups": groups.height,
        "gained": gained / groups.height if groups.height else None,
        "lost": lost / groups.height if groups.height else None,
    }


def correlations(rows: pl.DataFrame) -> Row:
    """`pearson_within`, `spearman_within`, `pearson_across`, `spearman_across` of rows with both rewards."""
    columns = ("reward", "reward_new")
    centred = rows.select((pl.col(c) - pl.col(c).mean().over(GROUP)).alias(c) for c in columns)
    ranked = rows.with_columns(pl.col(c).rank("average").over(GROUP) for c in columns)
    ranks = ranked.select((pl.col(c) - pl.col(c).mean().over(GROUP)).alias(c) for c in columns)
    means = rows.group_by(GROUP, maintain_order=True).agg(pl.col(columns).mean())
    return {
        "pearson_within": pearson(centred),
        "spearman_within": pearson(ranks),
        "pearson_across": pearson(means),
        "spearman_across": pearson(means.select(pl.col(c).rank("average") for c in columns)),
    }


def pearson(frame: pl.DataFrame) -> float | None:
    """Of the columns `reward` and `reward_new`; None where one of them does not vary but for rounding."""
    x, y = (frame[name].to_numpy() for name in ("reward", "reward_new"))
    if len(x) < 2:
        return None
    x, y = x - x.mean(), y - y.mean()
    size = float((x @ x) * (y @ y)) ** 0.5
    tiny = 1e-12 * len(x)
    return None if min(abs(x).max(), abs(y).max()) <= tiny else float(x @ y) / size


def _head(column: str) -> str:
    return column.partition("/")[0]


def statuses(scores: pl.DataFrame) -> pl.DataFrame:
    """Rows that a reward could not score: `reward`, `status`, `rows`, and the `message` that most of them have."""
    names = [c.removeprefix("status/") for c in scores.columns if c.startswith("status/")]
    parts = [
        scores.select(pl.lit(name).alias("reward"), status=f"status/{name}", message=f"message/{name}")
        for name in names
    ]
    found = pl.concat(parts).filter(pl.col("status") != "ok")
    by = ["reward", "status"]
    counted = found.group_by(*by, "message").agg(rows=pl.len()).sort("rows", "message", descending=[True, False])
    per = counted.group_by(by, maintain_order=True).agg(pl.col("rows").sum(), pl.col("message").first())
    return per.sort(by)
