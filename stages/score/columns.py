"""What functions find in the columns that they are called with by name."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.score.outcome import Unscorable

Scored = list[float | Unscorable | None]


def column_of(columns: Mapping[str, Any], name: str, function: str) -> Sequence[Any]:
    """The dataset's column `name`, one entry per row; a ValueError that lists what there is if it is missing."""
    if name not in columns:
        raise ValueError(f"{function}: the prompts have no column {name!r}; they have {', '.join(sorted(columns))}")
    values: Sequence[Any] = columns[name]
    return values


def tails_of(columns: Mapping[str, Any], count: int) -> list[str]:
    """The end of each prompt that the completion goes on from, such as an opened tag; empty where there is none."""
    return [tail or "" for tail in columns.get("prompt_tail") or [""] * count]


def golds_of(value: Any) -> list[str]:
    """The golden answers of a row as texts: one, or several of which any will do; empty for none. Blank is none."""
    values = value if isinstance(value, (list, tuple)) else [value]
    texts = [str(v) for v in values if v is not None]
    return [text for text in texts if text.strip()]


def check_missing_reward(missing_reward: float, function: str) -> None:
    number = isinstance(missing_reward, (int, float)) and not isinstance(missing_reward, bool)
    if not number or not math.isfinite(missing_reward) or missing_reward > 1:
        raise ValueError(f"{function}: missing_reward ({missing_reward!r}) has to be a number of at most 1")
