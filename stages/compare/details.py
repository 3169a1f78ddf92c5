"""The detail beside a reason: from what to what, in one line."""

import math
from collections.abc import Sequence
from typing import Any

from stages.common.tables import EQUAL

Row = dict[str, Any]
Weights = dict[str, float]

OWN = ("left_baseline", "entered_baseline", "status", "reward", "weight", "kl")
TOKENS = "advantages of tokens"


def detail(row: Row, rewards: Sequence[str], weights: tuple[Weights, Weights]) -> str:
    """Of a row with its flags, `reason`, and the columns of both sides; `rewards` of either side."""
    word = row["reason"]
    own = _own(row, rewards, weights) if word in OWN else []
    return "; ".join(own + _around(row, word))


def _own(row: Row, rewards: Sequence[str], weights: tuple[Weights, Weights]) -> list[str]:
    """What happened to the row itself: its rewards, their weights, its penalty."""
    found = [text for name in rewards if (text := of_reward(row, name))] if row["reason"] != "kl" else []
    found += of_weights(rewards, weights) if row["own_weight"] else []
    penalties = row["penalty_a"], row["penalty_b"]
    return found + ([f"penalty {arrow(row, 'penalty')}"] if None not in penalties and _differ(*penalties) else [])


def of_reward(row: Row, name: str) -> str | None:
    """`brief 0.5 -> 1`, or `brief 0.5 -> timeout: why`; None if it is the same on both sides."""
    a, b = (_value(row, name, side) for side in "ab")
    return None if a == b else f"{name} {a} -> {b}"


def _value(row: Row, name: str, side: str) -> str:
    status = row.get(f"status_{side}/{name}")
    if status is None:
        return "absent"
    if status == "ok":
        return short(row[f"reward_{side}/{name}"])
    message = row.get(f"message_{side}/{name}")
    return f"{status} ({message})" if message else str(status)


def of_weights(rewards: Sequence[str], weights: tuple[Weights, Weights]) -> list[str]:
    """Where the weights of both sides are known, those that differ."""
    pairs = {name: (weights[0][name], weights[1][name]) for name in rewards if all(name in side for side in weights)}
    return [f"weight of {name} {short(a)} -> {short(b)}" for name, (a, b) in pairs.items() if a != b]


def _around(row: Row, word: str) -> list[str]:
    """What happened around the row, as far as the reason speaks of it."""
    if word == "estimator":
        return [f"{row['estimator_a']} -> {row['estimator_b']}"]
    if word in ("left_loss", "entered_loss"):
        return [str(row["reason_b" if word == "left_loss" else "reason_a"])]
    if word in ("past", "siblings", "batch", "options"):
        moved = [name for name in ("baseline", "advantage") if _differ(row[f"{name}_a"], row[f"{name}_b"])]
        return [f"{moved[0]} {arrow(row, moved[0])}" if moved else TOKENS]
    if word == "group_kind":
        return [f"{row['group_kind_a']} -> {row['group_kind_b']}"]
    by_token = word == "kl" and not _differ(row["penalty_a"], row["penalty_b"])
    return [TOKENS] if by_token else []


def arrow(row: Row, name: str) -> str:
    """`0.5 -> 0.75`."""
    return f"{short(row[f'{name}_a'])} -> {short(row[f'{name}_b'])}"


def short(value: float | None) -> str:
    """Four significant digits, without a sign of zero; `none` of null."""
    return "none" if value is None else f"{value + 0.0:.4g}"


def _differ(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is not b
    return not math.isclose(a, b, rel_tol=EQUAL, abs_tol=EQUAL)
