"""Lengths of rendered prompts in tokens: those that leave no room for an answer are refused or dropped, never cut."""

from collections.abc import Sequence

import polars as pl

from stages.common.errors import StageError
from stages.common.params import Params, ParamsError
from stages.prepare.prompts.assemble import PLACE, ROW

SHOWN = 10


def limit_of(params: Params, positions: int | None) -> int | None:
    """The most tokens that a rendered prompt may have; None: there is no limit."""
    most, answer = params.prepare.prompts.max_tokens, params.rollout.max_new_tokens
    if positions is not None and answer >= positions:
        raise ParamsError(
            f"params.yaml: rollout.max_new_tokens = {answer}: the model has {positions} positions for prompt and "
            "answer together; lower it"
        )
    limits = [most, None if positions is None else positions - answer]
    return min((limit for limit in limits if limit is not None), default=None)


def fitting(rows: pl.DataFrame, limit: int | None) -> list[bool]:
    """For each row, whether its prompt is within the limit."""
    return [limit is None or length <= limit for length in rows["prompt_ids"].list.len()]


def refuse_too_long(rows: pl.DataFrame, limit: int | None, params: Params, positions: int | None) -> None:
    """An error that names the prompts over the limit, if there are any."""
    over = rows.filter([not fits for fits in fitting(rows, limit)])
    if over.is_empty():
        return
    shown = [
        f"{prompt_id} ({place}: row {number}) has {length}"
        for prompt_id, place, number, length in over.select(
            "prompt_id", PLACE, ROW, pl.col("prompt_ids").list.len()
        ).iter_rows()
    ]
    more = f", and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    raise StageError(
        f"{len(shown)} of {rows.height} rendered prompts have more than {limit} tokens ({_why(params, positions)}): "
        f"{', '.join(shown[:SHOWN])}{more}; shorten them, raise the limit, or set prepare.prompts.too_long to drop in "
        "params.yaml"
    )


def _why(params: Params, positions: int | None) -> str:
    most, answer = params.prepare.prompts.max_tokens, params.rollout.max_new_tokens
    if most is not None and (positions is None or most <= positions - answer):
        return "prepare.prompts.max_tokens"
    return f"the model's {positions} positions less rollout.max_new_tokens = {answer}"


def check_left(rows: pl.DataFrame, splits: Sequence[str], why: str) -> None:
    """Each split has prompts after something was dropped."""
    for split in splits:
        if rows.filter(pl.col("split") == split).is_empty():
            raise StageError(f"no {split} prompt is left: {why}")
