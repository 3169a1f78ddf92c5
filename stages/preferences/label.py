"""Which of two answers is preferred, by their gold scores and by chance.

    P(first is preferred) = sigmoid((g1 - g2) / temperature)      Bradley-Terry; at temperature 0 the higher score wins
    with probability `noise` the label is then swapped

Both draws belong to (seed, reward model, pair) and to nothing else: more pairs, or another order, change no label.
"""

import math
from collections import Counter
from typing import Any

import polars as pl

from stages.common.params import SampledPairs
from stages.common.seeds import seed_of, uniforms
from stages.common.tables import PREFERENCES


def probability_of_first(first: float, second: float, temperature: float) -> float:
    if temperature == 0.0:
        return float(first > second)
    return 0.5 * (1.0 + math.tanh(0.5 * (first - second) / temperature))  # the sigmoid, without overflow


def prefers_first(first: float, second: float, options: SampledPairs, *key: object) -> bool:
    """The label of one pair of different gold scores; `key` is what its draws belong to."""
    by_gold, by_noise = uniforms(seed_of(*key, "label"), 2)
    preferred = bool(by_gold < probability_of_first(first, second, options.temperature))
    return preferred != bool(by_noise < options.noise)


def label_pairs(
    answers: pl.DataFrame, options: SampledPairs, seed: int, name: str
) -> tuple[pl.DataFrame, Counter[str]]:
    """The pairs that gold tells apart, and how many prompts gave none, by reason. Rows 2i and 2i + 1 are siblings."""
    rows: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    dicts = answers.to_dicts()
    for first, second in zip(dicts[::2], dicts[1::2], strict=True):
        reason = _reason(first, second)
        if reason:
            left_out[reason] += 1
            continue
        key = (seed, "preferences", name, first["prompt_id"])
        won = prefers_first(first["gold"], second["gold"], options, *key)
        rows.append(_pair(*((first, second) if won else (second, first))))
    return pl.DataFrame(rows, schema=PREFERENCES), left_out


def _reason(first: dict[str, Any], second: dict[str, Any]) -> str | None:
    """Why two answers are no pair, or None if they are one."""
    if first["gold"] is None or second["gold"] is None:
        return "not scorable"
    if first["completion_ids"] == second["completion_ids"]:
        return "the same answer twice"
    return "equal gold scores" if first["gold"] == second["gold"] else None


def _pair(chosen: dict[str, Any], rejected: dict[str, Any]) -> dict[str, Any]:
    return {
        "pair_id": chosen["prompt_id"],
        "prompt": chosen["prompt"],
        "prompt_ids": chosen["prompt_ids"],
        "chosen": chosen["completion"],
        "chosen_ids": chosen["completion_ids"],
        "rejected": rejected["completion"],
        "rejected_ids": rejected["completion_ids"],
        "chosen_gold": chosen["gold"],
        "rejected_gold": rejected["gold"],
        "flipped": chosen["gold"] < rejected["gold"],
    }
