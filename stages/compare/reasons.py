"""Why a row differs: the first reason that applies. What happened to the row itself comes before what happened around
it.

    only_in_a, only_in_b     the key is in one table alone
    left_baseline, entered_baseline    its own score went or came
    status, reward           of a reward of its own: another status; another value
    weight                   the same values of the same rewards, but another task reward
    kl                       the same task reward, but another penalty, inside the score or token by token
    estimator                its score is the same; another estimator made the advantage
    left_loss, entered_loss  its score is the same; it has an advantage on one side only
    past                     its score is the same; what a moving average carries into the iteration is not
    siblings                 its score is the same; a row of its group has changed (of remax: the greedy completion)
    batch                    none of its group has, but another row of the iteration
    options                  no score of the iteration has: options of the estimator, or the steps after it, differ
    group_kind               only the class of its group differs
    unchanged
"""

from collections.abc import Iterable

import polars as pl

from stages.common.tables import BATCH, GROUP
from stages.compare.differs import numbers_differ, texts_differ, tokens_differ

REASONS = (
    *("only_in_a", "only_in_b", "left_baseline", "entered_baseline", "status", "reward", "weight", "kl"),
    *("estimator", "left_loss", "entered_loss", "past", "siblings", "batch", "options", "group_kind"),
    "unchanged",
)
PAIRS = {"only_in_a": "only_in_b", "left_baseline": "entered_baseline", "left_loss": "entered_loss"}
WITHOUT_SIBLINGS = ("reinforce", "moving_average", "gae")  # a row's advantage takes nothing from its group


def flags(shared: Iterable[str], alone: Iterable[str], *, kl_differs: bool) -> dict[str, pl.Expr]:
    """What the reasons are made of, for rows of both sides.

    `shared`: rewards that both sides have; `alone`: that one has. `kl_differs`: whether the sides are known to have
    another beta or placement, which shows in the tokens alone if it is not inside the score.
    """
    shared, alone = list(shared), list(alone)
    task = numbers_differ("task_reward")
    tokens = tokens_differ("token_advantages")
    outcome = [numbers_differ("baseline"), numbers_differ("advantage"), tokens, texts_differ("in_loss")]
    return {
        "score_changed": numbers_differ("score"),
        "advantage_changed": numbers_differ("advantage") | tokens,
        "own_status": _any(texts_differ(f"status/{name}") for name in shared),
        "own_reward": _any(numbers_differ(f"reward/{name}") for name in shared) | (task & bool(alone)),
        "own_weight": task,
        "own_kl": numbers_differ("penalty") | (pl.lit(kl_differs) & tokens & ~numbers_differ("advantage")),
        "moved": pl.any_horizontal(outcome),
    }


def around() -> dict[str, pl.Expr]:
    """Whether a row of the group, and whether any of the iteration, has changed that the estimator takes into account:
    accepted samples; of the group of remax only the greedy completion.
    """
    changed = (pl.col("score_changed") | ~pl.col("both")) & pl.coalesce("accepted_a", "accepted_b")
    sample, remax = pl.col("kind") == "sample", pl.coalesce("estimator_a", "estimator_b") == "remax"
    of_group = changed & (sample != remax)
    return {
        "siblings_changed": of_group.any().over(GROUP),
        "batch_changed": (changed & (sample | remax)).any().over(BATCH),
    }


def reason() -> pl.Expr:
    """The word, from the flags."""
    estimator, moved = pl.col("estimator_a"), pl.col("moved")
    in_a, in_b = pl.col("in_baseline_a"), pl.col("in_baseline_b")
    rules = {
        "only_in_a": pl.col("there_b").is_null(),
        "only_in_b": pl.col("there_a").is_null(),
        "left_baseline": in_a & ~in_b,
        "entered_baseline": ~in_a & in_b,
        "status": pl.col("own_status"),
        "reward": pl.col("own_reward"),
        "weight": pl.col("own_weight"),
        "kl": pl.col("own_kl"),
        "estimator": moved & texts_differ("estimator"),
        "left_loss": pl.col("in_loss_a") & ~pl.col("in_loss_b"),
        "entered_loss": ~pl.col("in_loss_a") & pl.col("in_loss_b"),
        "past": moved & (estimator == "moving_average") & numbers_differ("baseline"),
        "siblings": moved & ~estimator.is_in(WITHOUT_SIBLINGS) & pl.col("siblings_changed"),
        "batch": moved & pl.col("batch_changed"),
        "options": moved,
        "group_kind": texts_differ("group_kind"),
    }
    assert tuple(rules) == REASONS[:-1], "the order of the words is the order of the rules"
    return pl.coalesce(*(pl.when(rule).then(pl.lit(word)) for word, rule in rules.items()), pl.lit("unchanged"))


def _any(found: Iterable[pl.Expr]) -> pl.Expr:
    return pl.any_horizontal(pl.lit(value=False), *found)
