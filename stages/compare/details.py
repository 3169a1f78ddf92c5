"""The detail beside a reason: from what to what, in one line."""

import math
from collections.abc import Sequence
from typing import Any

from stages.common.tables import EQUAL

Row = dict[str, Any]
Weights = dict[str, float]


def detail(row: Row, rewards: Sequence[str], weights: tuple[Weights, Weights]) -> str:
    """Of a row with its flags, `reason`, and the columns of both sides; `rewards` of either side."""
    word = row["reason"]
    if word in ("only_in_a", "only_in_b", "unchanged"):
        return ""
    own = [text for name in rewards if (text := of_reward(row, name))]
    own += of_weights(rewards, weights) if row["own_weight"] else []
    own += [f"penalty {arrow(row, 'penalty')}"] if _differ(row["penalty_a"], row["penalty_b"]) else []
    return "; ".join(own + _around(row, word))


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
    found = []
    if row["estimator_a"] != row["estimator_b"]:
        found.append(f"{row['estimator_a']} -> {row['estimator_b']}")
    if word in ("left_loss", "entered_loss"):
        out = "b" if word == "left_loss" else "a"
        found.append(str(row[f"reason_{out}"]))
    if word in ("past", "siblings", "batch") and _differ(row["baseline_a"], row["baseline_b"]):
        found.append(f"baseline {arrow(row, 'baseline')}")
    if word in ("batch", "options", "kl") and not found:
        moved = _differ(row["advantage_a"], row["advantage_b"])
        found += [f"advantage {arrow(row, 'advantage')}" if moved else "advantages of tokens"] if row["moved"] else []
    if word == "group_kind":
        found.append(f"{row['group_kind_a']} -> {row['group_kind_b']}")
    return found


def arrow(row: Row, name: str) -> str:
    """`0.5 -> 0.75`."""
    return f"{short(row[f'{name}_a'])} -> {short(row[f'{name}_b'])}"


def short(value: float | None) -> str:
    """Four significant digits; `none` of null."""
    return "none" if value is None else f"{value:.4g}"


def _differ(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is not b
    return not math.isclose(a, b, rel_tol=EQUAL, abs_tol=EQUAL)
