"""Training and held-out parts as one table: all columns of both, of one type each."""

from typing import Any

import polars as pl

from stages.common.rows import FileError
from stages.prepare.prompts.columns import Part
from stages.prepare.prompts.turns import prompts_of

PLACE, ROW, SPLIT = "_place", "_row", "split"
MESSAGES = pl.List(pl.Struct({"role": pl.String(), "content": pl.String()}))


def together(training: Part, heldout: Part | None, option: str) -> pl.DataFrame:
    """All rows, with `_place` and `_row`, `prompt` as a text (of a conversation: its last turn), `messages` (null for
    texts), and `split`; where nothing is held out yet, all are `train`.
    """
    parts = [training] if heldout is None else [training, heldout]
    frames = [_framed(part, split) for part, split in zip(parts, ("train", "heldout"), strict=False)]
    if len(frames) == 1:
        return frames[0]
    _check_one_shape(parts, frames)
    for name in frames[0].columns:
        if name in frames[1].columns:
            dtype = _merged(name, parts, [frame[name].dtype for frame in frames], option)
            frames = [frame.with_columns(_cast(frame[name], dtype)) for frame in frames]
    for one, other, part in ((frames[0], frames[1], parts[1]), (frames[1], frames[0], parts[0])):
        absent = sorted(set(one.columns) - set(other.columns))
        if absent:
            part.notes.append(f"{part.place} has no column {', '.join(absent)}: null there")
    return pl.concat(frames, how="diagonal")


def _framed(part: Part, split: str) -> pl.DataFrame:
    prompts = prompts_of(part)
    texts = [prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in prompts]
    turns = [None if isinstance(prompt, str) else prompt for prompt in prompts]
    return part.frame.with_columns(
        pl.Series("prompt", texts, dtype=pl.String),
        pl.Series("messages", turns, dtype=MESSAGES),
        pl.lit(split).alias(SPLIT),
        pl.lit(part.place).alias(PLACE),
        pl.Series(ROW, part.numbers, dtype=pl.Int64),
    )


def _check_one_shape(parts: list[Part], frames: list[pl.DataFrame]) -> None:
    texts = [frame["messages"].null_count() > 0 for frame in frames]
    if texts[0] != texts[1]:
        told = [
            f"{part.place} are {'texts' if text else 'conversations'}" for part, text in zip(parts, texts, strict=True)
        ]
        raise FileError(f"prompts of {' and of '.join(told)}; bring both to one shape")


def _merged(name: str, parts: list[Part], dtypes: list[Any], option: str) -> Any:
    """The one type that holds both columns without converting a value."""
    dtype = _common(*dtypes)
    if dtype is None:
        told = " and ".join(f"{dtype} in {part.place}" for dtype, part in zip(dtypes, parts, strict=True))
        raise FileError(
            f"column {name} is {told}; bring both to one type, or declare it: params.yaml: {option}.columns.{name}"
        )
    return dtype


def _common(one: Any, other: Any) -> Any:
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        inner = _common(one.inner, other.inner)
        return None if inner is None else pl.List(inner)
    if isinstance(one, pl.Struct) and isinstance(other, pl.Struct):
        mine, others = ({field.name: field.dtype for field in struct.fields} for struct in (one, other))
        merged = {key: _common(mine.get(key, pl.Null()), others.get(key, pl.Null())) for key in mine | others}
        return None if None in merged.values() else pl.Struct(merged)
    return None


def _cast(column: pl.Series, dtype: Any) -> pl.Series:
    """The values under a type that only adds keys; through Python, as a cast of structs goes by place."""
    return column if column.dtype == dtype else pl.Series(column.name, column.to_list(), dtype=dtype, strict=True)
