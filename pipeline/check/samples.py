"""The completions of the dry run: what they were given, and why they count."""

from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.check.dry_run import FIRST, DryRun
from stages.common import paths
from stages.common.tables import KEY

SHOWN = 400  # characters of a text


def samples(work: DryRun) -> RenderableType | None:
    """Prompt by prompt; rewards and advantages as far as the dry run got. None before there are completions."""
    if not paths.rollouts(FIRST).exists():
        return None
    rows = pl.read_parquet(paths.rollouts(FIRST))
    for path in (paths.scores(FIRST), paths.advantages(FIRST)):
        if path.exists():
            more = pl.read_parquet(path)
            rows = rows.join(more.select(*KEY, *(set(more.columns) - set(rows.columns))), on=KEY, maintain_order="left")
    texts = dict(pl.read_parquet(paths.PROMPTS, columns=["prompt_id", "prompt"]).iter_rows())
    return Group(*(part for ids in rows["prompt_id"].unique(maintain_order=True) for part in _group(rows, ids, texts)))


def _group(rows: pl.DataFrame, prompt_id: str, texts: dict[str, str]) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("completion", "ended", "rewards", "advantage", "in the loss"):
        table.add_column(name, overflow="fold", ratio=4 if name == "completion" else None)
    for row in rows.filter(prompt_id=prompt_id).to_dicts():
        table.add_row(*map(Text, _cells(row)))
    return [Text(f"{prompt_id}: {short(texts[prompt_id])}", style="bold"), table, Text("")]


def _cells(row: dict[str, Any]) -> list[str]:
    rewards = [_reward(name.removeprefix("reward/"), row) for name in row if name.startswith("reward/")]
    advantage = row.get("advantage")
    return [
        short(row["completion"]),
        f"{row['finish_reason']}, {row['length']} tokens",
        "\n".join(sorted(rewards)),
        "" if advantage is None else f"{advantage:+z.3f}",
        row.get("reason") or "",
    ]


def _reward(name: str, row: dict[str, Any]) -> str:
    value = row[f"reward/{name}"]
    return f"{name} {row[f'status/{name}'] if value is None else format(value, '.3g')}"


def visible(text: str, *, lines: bool = True) -> str:
    """Control characters as escapes; breaks of lines as they are, if `lines`."""
    kept = "\n" if lines else ""
    return "".join(one if one.isprintable() or one in kept else repr(one)[1:-1] for one in text)


def short(text: str) -> str:
    """One line, and not too long; control characters made visible."""
    shown = visible(text, lines=False)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]} ..."
