"""data/prompts.json: what was found in the prompts, for people and programs. The same prompts give the same bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from stages.common.params import Prompts
from stages.common.tables import PROMPTS
from stages.prepare.prompts.split import keys

SPLITS = ("train", "heldout")


def report(
    table: pl.DataFrame,
    settings: Prompts,
    *,
    source: str,
    limit: int | None,
    dropped: Sequence[dict[str, Any]],
    golden: dict[str, Any] | None,
    notes: Sequence[str],
    resolved: Mapping[str, dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Counts, columns, lengths in tokens, an example of each split, and everything that was noticed on the way."""
    lengths = table["prompt_ids"].list.len()
    longest = table.row(int(lengths.arg_max() or 0), named=True)
    splits = {split: table.filter(split=split) for split in SPLITS}
    return {
        "source": {"kind": source, **getattr(settings, source).model_dump(mode="json"), **_resolved(resolved)},
        "prompts": {split: rows.height for split, rows in splits.items()},
        "conversations": table["messages"].null_count() == 0,
        "columns": {name: str(dtype) for name, dtype in table.schema.items() if name not in PROMPTS},
        "lengths": {split: _lengths(rows) for split, rows in splits.items()},
        "limit": limit,
        "longest": {"prompt_id": longest["prompt_id"], "tokens": len(longest["prompt_ids"])},
        "dropped": list(dropped),
        "duplicates": {split: duplicates(rows) for split, rows in splits.items()},
        "golden": golden,
        "notes": list(notes),
        "examples": {split: _example(rows) for split, rows in splits.items()},
    }


def _resolved(resolved: Mapping[str, dict[str, str]] | None) -> dict[str, Any]:
    """By split: what the name of a hub dataset stood for when it was read."""
    return {"resolved": dict(resolved)} if resolved else {}


def duplicates(rows: pl.DataFrame) -> int:
    """Rows that repeat an earlier row's rendered prompt; each is a prompt of its own."""
    return rows.height - len(set(keys(rows)))


def _lengths(rows: pl.DataFrame) -> dict[str, float]:
    lengths = rows["prompt_ids"].list.len().sort()
    return {"min": lengths[0], "median": lengths[len(lengths) // 2], "max": lengths[-1]}


def _example(rows: pl.DataFrame) -> dict[str, str]:
    first: dict[str, str] = rows.select("prompt_id", "prompt_text", "prompt_tail").row(0, named=True)
    return first
