"""`rloo diff`: which rows changed score, advantage and sign between two sets of tables, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.plan import read_plan
from pipeline.windows.present import check_tables, with_tables
from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.params import Params
from stages.common.paths import iteration_number
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, conform, read_table, write_table
from stages.compare.details import short
from stages.compare.reasons import REASONS
from stages.compare.rows_changed import Side, changed_schema, rows_changed
from stages.compare.sides import check_set, iterations_of, read_side

EXCERPT = 90  # characters of a prompt or a completion
FORMATS = (".csv", ".parquet")
NUMBERS = ("score", "baseline", "advantage")


@dataclass(frozen=True)
class Named:
    """`brief` or `brief@i0003` on the command line."""

    name: str
    iteration: str | None


def parse(text: str) -> Named:
    """Refuse a set that is not there, and what is no iteration."""
    name, at, iteration = text.partition("@")
    check_set(name)
    if at:
        iteration_number(iteration)
    return Named(name, iteration if at else None)


def compared(a: Named, b: Named, option: str | None) -> list[str]:
    """The iterations that are compared: the one that is named, or all that both sides have."""
    if option is not None:
        iteration_number(option)
    named = {one for one in (a.iteration, b.iteration, option) if one is not None}
    if len(named) > 1:
        raise StageError(f"{' and '.join(sorted(named))} are different iterations: their rows have no key in common")
    if a.name == b.name:
        raise StageError(f"A and B are both {a.name}: a comparison takes two different sets of tables")
    if named:
        (one,) = named
        check_tables(one)
        return [one]
    there = with_tables(read_plan().whole.names)
    both = [one for one in there if one in iterations_of(a.name) and one in iterations_of(b.name)]
    if not both:
        raise StageError(f"{a.name} and {b.name} have no iteration in common")
    return both


def diff(console: Console, a: str, b: str, iteration: str | None, count: int, out: Path | None, params: Params) -> None:
    """Check, compare, show, and write."""
    if out is not None and out.suffix not in FORMATS:
        raise StageError(f"--out {out}: the name must end in {' or '.join(FORMATS)}")
    left, right = parse(a), parse(b)
    chosen = compared(left, right, iteration)
    pairs = [(read_side(left.name, one, params), read_side(right.name, one, params)) for one in chosen]
    frame = pl.concat([rows_changed(*pair) for pair in pairs], how="diagonal").sort(KEY)
    names = (left.name, right.name)
    _print_summary(console, names, chosen, frame)
    changed = frame.filter(pl.col("reason") != "unchanged")
    if count and changed.height:
        _print_rows(console, names, with_texts(largest(changed, count), chosen))
    if out is not None:
        write(frame, pairs, out)
        console.print(f"{out}: all {frame.height} rows, both sides", markup=False, highlight=False, soft_wrap=True)


def write(frame: pl.DataFrame, pairs: Sequence[tuple[Side, Side]], out: Path) -> None:
    """All rows, sorted by key, in the format that the suffix names."""
    rewards = [list(dict.fromkeys(name for pair in pairs for name in pair[side].rewards)) for side in (0, 1)]
    schema = changed_schema(*rewards)
    try:
        if out.suffix == ".parquet":
            write_table(frame, schema, KEY, out)
            return
        with publish(out) as scratch:
            conform(frame, schema, str(out)).sort(KEY).write_csv(scratch)
    except OSError as error:
        raise StageError(f"--out {out} cannot be written: {error}") from None


def largest(changed: pl.DataFrame, count: int) -> pl.DataFrame:
    """The rows with the largest change of advantage; where there is none on one side, it counts as 0."""
    a, b = (pl.col(f"advantage_{side}").fill_null(0.0) for side in "ab")
    ordered = changed.with_columns(_size=(b - a).abs()).sort("_size", *KEY, descending=[True, *[False] * len(KEY)])
    return ordered.head(count).drop("_size")


def with_texts(rows: pl.DataFrame, chosen: Sequence[str]) -> pl.DataFrame:
    """With `prompt` and `completion`."""
    texts = pl.concat([read_table(paths.rollouts(one), ROLLOUTS, KEY).select(*KEY, "completion") for one in chosen])
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt")
    with_completion = rows.join(texts, on=KEY, how="left", maintain_order="left")
    return with_completion.join(prompts, on="prompt_id", how="left", maintain_order="left")


def _print_summary(console: Console, names: tuple[str, str], chosen: Sequence[str], frame: pl.DataFrame) -> None:
    table = Table(title=f"A = {names[0]}, B = {names[1]}: {frame.height} rows of {', '.join(chosen)}")
    for title in ("reason", "rows", "score", "advantage", "sign", "flips + and -", "mean |change of A|"):
        table.add_column(title, justify="left" if title == "reason" else "right", no_wrap=True)
    for word in REASONS:
        rows = frame.filter(reason=word)
        if rows.height:
            table.add_row(word, *_counts(rows))
    table.add_section()
    table.add_row("all", *_counts(frame))
    console.print(table)


def _counts(rows: pl.DataFrame) -> list[str]:
    flags = ("score_changed", "advantage_changed", "sign_changed", "sign_flips")
    mean = rows.select(pl.col("advantage_change").abs().mean()).item()
    return [str(rows.height), *(str(rows[flag].sum()) for flag in flags), "-" if mean is None else f"{mean:z.3f}"]


def _print_rows(console: Console, names: tuple[str, str], rows: pl.DataFrame) -> None:
    """Two lines of numbers per row, A above B."""
    table = Table(title="Largest changes of the advantage", show_lines=True)
    table.add_column("row", overflow="fold", max_width=16)
    table.add_column("", overflow="fold", max_width=14)
    for title in NUMBERS:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("prompt and completion", overflow="fold", ratio=3)
    table.add_column("why", overflow="fold", ratio=2)
    for row in rows.iter_rows(named=True):
        numbers = [
            "\n".join(short(row[f"{name}_{side}"]) for side in "ab") for name in ("score", "baseline", "advantage")
        ]
        key = f"i{row['iteration']:04d}\n{row['prompt_id']}\n{row['kind']} {row['sample']}"
        said = f"{excerpt(row['prompt'])}\n> {excerpt(row['completion'])}"
        why = f"{row['reason']}\n{row['detail']}".strip()
        table.add_row(*map(Text, (key, "\n".join(names), *numbers, said, why)))
    console.print(table)


def excerpt(text: str | None) -> str:
    """The beginning, in one line; what would steer the terminal is replaced."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join((text or "").split()))
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
