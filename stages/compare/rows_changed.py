"""Two scorings of the same rollouts, row by row: what changed, by how much, and why (`stages/compare/reasons.py`).

Exchanging the sides exchanges the reasons that come in pairs, negates `advantage_change`, and changes nothing else.
"""

from dataclasses import dataclass, field

import polars as pl

from stages.common.tables import ADVANTAGES, KEY, KEY_SCHEMA, SCORES, Schema, conform
from stages.compare.details import Weights, detail
from stages.compare.reasons import around, flags, reason

OF_SIDES: Schema = {
    "task_reward": SCORES["task_reward"],
    "penalty": pl.Float64(),  # task reward - score: beta times the KL
    "score": SCORES["score"],
    **{name: ADVANTAGES[name] for name in ("baseline", "advantage", "in_loss", "group_kind", "estimator")},
    "in_baseline": SCORES["in_baseline"],
}

ROWS_CHANGED: Schema = {
    **KEY_SCHEMA,
    "reason": pl.String(),
    "detail": pl.String(),
    "score_changed": pl.Boolean(),
    "advantage_changed": pl.Boolean(),  # that of the row, or of one of its tokens
    "sign_changed": pl.Boolean(),  # of the advantage; 0 has a sign of its own; null: no advantage on one side
    "sign_flips": pl.Boolean(),  # above 0 on one side, below on the other; null likewise
    "advantage_change": pl.Float64(),  # b - a; null likewise
    **{f"{name}_{side}": dtype for name, dtype in OF_SIDES.items() for side in "ab"},
}


@dataclass(frozen=True)
class Side:
    """Both tables, with as much as is known of what made them."""

    scores: pl.DataFrame
    advantages: pl.DataFrame
    weights: Weights = field(default_factory=dict)
    kl: dict[str, object] = field(default_factory=dict)

    @property
    def rewards(self) -> list[str]:
        return [column.removeprefix("reward/") for column in self.scores.columns if column.startswith("reward/")]


def changed_schema(rewards_a: list[str], rewards_b: list[str]) -> Schema:
    """`ROWS_CHANGED`, then value and status of each reward on each side that has it."""
    own: Schema = {}
    for side, names in (("a", rewards_a), ("b", rewards_b)):
        for name in names:
            own |= {f"reward_{side}/{name}": pl.Float64(), f"status_{side}/{name}": pl.String()}
    return ROWS_CHANGED | own


def rows_changed(a: Side, b: Side) -> pl.DataFrame:
    """All rows of both sides, with the columns of `changed_schema`, sorted by key."""
    joined = _lettered(a, "a").join(_lettered(b, "b"), on=KEY, how="full", coalesce=True, validate="1:1").sort(KEY)
    names = list(dict.fromkeys([*a.rewards, *b.rewards]))
    shared = [name for name in names if name in a.rewards and name in b.rewards]
    both = pl.col("there_a").is_not_null() & pl.col("there_b").is_not_null()
    flagged = joined.with_columns(both=both, **_differences()).with_columns(
        **flags(shared, set(names) - set(shared), kl_differs=bool(a.kl and b.kl) and a.kl != b.kl)
    )
    reasoned = flagged.with_columns(**around()).with_columns(reason=reason())
    details = [detail(row, names, (a.weights, b.weights)) for row in reasoned.iter_rows(named=True)]
    schema = changed_schema(a.rewards, b.rewards)
    told = reasoned.with_columns(pl.Series("detail", details, dtype=pl.String))
    return conform(told.select(list(schema)), schema, "diff")


def _differences() -> dict[str, pl.Expr]:
    """Null where the row has no advantage on one side."""
    a, b = pl.col("advantage_a"), pl.col("advantage_b")
    return {
        "sign_changed": a.sign() != b.sign(),
        "sign_flips": a.sign() * b.sign() < 0,
        "advantage_change": b - a,
    }


def _lettered(side: Side, letter: str) -> pl.DataFrame:
    """Scores and advantages of one side by key, every other column with the side's letter."""
    made = ("baseline", "advantage", "token_advantages", "in_loss", "group_kind", "estimator", "reason")
    own = [c for c in side.scores.columns if c.split("/")[0] in ("reward", "status", "message")]
    scores = side.scores.select(*KEY, "task_reward", "score", "in_baseline", "accepted", *own)
    joined = scores.join(side.advantages.select(*KEY, *made), on=KEY, validate="1:1")
    there = joined.with_columns(penalty=pl.col("task_reward") - pl.col("score"), there=pl.lit(value=True))
    return there.rename({c: _named(c, letter) for c in there.columns if c not in KEY})


def _named(column: str, letter: str) -> str:
    """`score_a`; `reward_a/brief` of `reward/brief`."""
    head, slash, tail = column.partition("/")
    return f"{head}_{letter}{slash}{tail}"
