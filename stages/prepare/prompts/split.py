"""Which prompts are held out and which are taken, by seeded hashes: whatever the order of the rows.

Rows with the same rendered prompt are on one side, and no prompt is on both.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import polars as pl

from stages.common.errors import StageError
from stages.common.params import ParamsError
from stages.common.seeds import seed_of
from stages.prepare.prompts.assemble import PLACE, ROW, SPLIT

WIDTH = 5  # digits of a row's number in its id
SHOWN = 5


def keys(rows: pl.DataFrame) -> list[bytes]:
    """The rendered prompt of each row as something that can be looked up: its token ids, four bytes each."""
    return [np.asarray(ids, dtype="<i4").tobytes() for ids in rows["prompt_ids"]]


def hold_out(rows: pl.DataFrame, usable: Sequence[bool], count: int, seed: int, option: str) -> pl.DataFrame:
    """`split` with `count` of the usable rows held out: whole groups of the same prompt in the order of a hash, those
    that are too large for what is still wanted passed over.
    """
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, ids in enumerate(keys(rows)):
        if usable[place]:
            groups[ids].append(place)
    there = sum(usable)
    if count >= there:
        raise ParamsError(
            f"params.yaml: {option}.heldout_prompts = {count}: there are {there} prompts, and training needs some"
        )
    heldout: list[int] = []
    for ids in sorted(groups, key=lambda ids: (seed_of(seed, "heldout prompts", ids.hex()), ids)):
        if len(heldout) + len(groups[ids]) <= count:
            heldout += groups[ids]
    if len(heldout) < count:
        raise ParamsError(
            f"params.yaml: {option}.heldout_prompts = {count}: rows that repeat a prompt stay together, which leaves "
            f"{len(heldout)}; choose that, or remove repetitions"
        )
    chosen = set(heldout)
    splits = ["heldout" if place in chosen else "train" for place in range(rows.height)]
    return rows.with_columns(pl.Series(SPLIT, splits, dtype=pl.String))


def with_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """`prompt_id`: the user's own, or the split and the row's number, with zeros in front so that they sort."""
    if "prompt_id" in rows.columns:
        _check_ids(rows)
        return rows
    width = max(WIDTH, len(str(rows[ROW].max())))
    return rows.with_columns(prompt_id=pl.col(SPLIT) + "-" + pl.col(ROW).cast(pl.String).str.zfill(width))


def _check_ids(rows: pl.DataFrame) -> None:
    seen: dict[str, str] = {}
    for place, number, prompt_id in rows.select(PLACE, ROW, "prompt_id").iter_rows():
        where = f"{place}: row {number}"
        if prompt_id is None or not prompt_id.strip():
            raise StageError(f"{where}: prompt_id is empty; give each row one of its own, or remove the column")
        if prompt_id in seen:
            raise StageError(f"{where}: prompt_id {prompt_id!r} is that of {seen[prompt_id]}, too; make them different")
        seen[prompt_id] = where


def check_apart(rows: pl.DataFrame) -> None:
    """No rendered prompt is both trained on and held out."""
    named = rows.select("prompt_id", PLACE, ROW).iter_rows()
    told = [f"{prompt_id} ({place}: row {number})" for prompt_id, place, number in named]
    all_rows = list(zip(keys(rows), rows[SPLIT], told, strict=True))
    training: dict[bytes, str] = {}
    for ids, split, row in all_rows:
        if split == "train":
            training.setdefault(ids, row)
    shared = [f"{row} is {training[ids]}" for ids, split, row in all_rows if split == "heldout" and ids in training]
    if shared:
        more = f"; and {len(shared) - SHOWN} more" if len(shared) > SHOWN else ""
        raise StageError(
            f"{len(shared)} held-out prompts are training prompts, too: {'; '.join(shared[:SHOWN])}{more}; remove them "
            "from one of the two"
        )


def take(rows: pl.DataFrame, split: str, count: int | None, seed: int, option: str) -> pl.DataFrame:
    """The rows with only `count` of one split, the first by a hash of seed and id; all if it is null."""
    ids = rows.filter(pl.col(SPLIT) == split)["prompt_id"].to_list()
    if count is None or len(ids) == count:
        return rows
    if count > len(ids):
        raise ParamsError(f"params.yaml: {option}.{split}_prompts = {count}: there are only {len(ids)} ({split})")
    kept = sorted(ids, key=lambda prompt_id: (seed_of(seed, f"{split} prompts", prompt_id), prompt_id))[:count]
    return rows.filter((pl.col(SPLIT) != split) | pl.col("prompt_id").is_in(kept))
