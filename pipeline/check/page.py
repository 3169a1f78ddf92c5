"""The page that `rloo check` prints: what was found, in sections, for a terminal of 100 columns or more."""

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.check import functions
from pipeline.check.dry_run import FIRST, DryRun
from pipeline.check.estimate import Line, not_estimated
from pipeline.check.findings import Finding
from pipeline.check.samples import samples, visible
from stages.common import paths
from stages.common.files import publish
from stages.common.read_json import read_json
from stages.common.tables import PROMPTS

WIDTH = 110
MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("ERROR", "bold red")}
HASH = re.compile(r"[0-9a-f]{32,}")
SPLITS = ("train", "heldout")
Section = tuple[str, RenderableType]


def facts(rows: dict[str, Any]) -> Table:
    """Names and values; lists and dicts of a stage's JSON as text."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", min_width=10)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(_said(value)))
    return table


def _said(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_said(one)}" for key, one in value.items())
    if isinstance(value, str) and HASH.fullmatch(value):
        return value[:12]
    if isinstance(value, list):
        return "; ".join(map(_said, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def sections(work: DryRun, lines: list[Line]) -> list[Section]:
    """All that is to be told, made while the dry run's files are there."""
    parts: list[tuple[str, Callable[[], RenderableType | None]]] = [
        ("Model", lambda: model(work)),
        ("Prompts", prompts),
        ("Rewards", lambda: rewards(work)),
        ("Samples of the dry run", lambda: samples(work)),
        ("Findings", lambda: findings(work.findings)),
        ("Estimate of the whole run", lambda: estimate(work, lines)),
    ]
    return [(title, found) for title, make in parts if (found := make()) is not None]


def model(work: DryRun) -> RenderableType | None:
    """What `prepare model` wrote of the model, and what the run makes of it."""
    content = read_json(paths.MODEL_JSON)
    if not content:
        return None
    rows: dict[str, Any] = {name.replace("_", " "): value for name, value in content.items()}
    if "runtime" in work.facts:
        runtime = work.facts["runtime"]
        rows["computed on"] = f"{runtime.device.type}, {str(runtime.dtype).removeprefix('torch.')}"
        rows["trained"] = f"{work.facts['trainable']:,} of {work.facts['parameters']:,} parameters"
    rows["taken as it is"] = [str(path) for path in work.reused]
    return facts(rows)


def prompts() -> RenderableType | None:
    """What `prepare prompts` found, and one prompt of each split as the model reads it."""
    if not paths.PROMPTS.exists():
        return None
    table = pl.read_parquet(paths.PROMPTS)
    rows: dict[str, Any] = {}
    for split in SPLITS:
        lengths = table.filter(split=split)["prompt_ids"].list.len()
        if not lengths.is_empty():
            ordered = sorted(lengths)
            middle, longest = ordered[len(ordered) // 2], ordered[-1]
            rows[split] = f"{len(ordered):,} prompts; tokens: median {middle}, longest {longest}"
    rows["columns"] = ", ".join(f"{name} {kind}" for name, kind in table.schema.items() if name not in PROMPTS)
    told = {"source", "limit", "longest", "conversations", "duplicates", "notes"}
    found = read_json(paths.PROMPTS_JSON)
    rows |= {name: value for name, value in found.items() if name in told}
    rows["dropped"] = len(found.get("dropped") or ())
    return Group(facts(rows), *(part for split in SPLITS for part in example(table, split)))


def example(table: pl.DataFrame, split: str) -> list[RenderableType]:
    """The first prompt of a split, as text with its special tokens."""
    rows = table.filter(split=split).head(1).to_dicts()
    return [
        part
        for row in rows
        for part in (
            Text(f"\n{row['prompt_id']} as the model reads it, {len(row['prompt_ids'])} tokens:", style="bold"),
            Text("\n".join(f"  {line}" for line in visible(row["prompt_text"]).split("\n"))),
        )
    ]


def rewards(work: DryRun) -> RenderableType:
    """Each reward: what it takes, and what it made of the dry run's rows."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("reward", "function or model", "weight", "rows a call", "on the dry run's rows"):
        table.add_column(name, overflow="fold")
    scores = pl.read_parquet(paths.scores(FIRST)) if paths.scores(FIRST).exists() else None
    for name, reward in work.params.score.rewards.items():
        what = functions.signature(reward) or reward.function or f"model {reward.model}"
        given = "".join(f"\n{key} = {value!r}" for key, value in reward.arguments.items())
        calls = "" if reward.function is None else str(reward.rows_per_call or "all, or as the function says")
        table.add_row(name, Text(what + given), f"{reward.weight:g}", calls, Text(_results(name, scores, work)))
    return table


def _results(name: str, scores: pl.DataFrame | None, work: DryRun) -> str:
    if name in work.left_out:
        return f"left out: {work.left_out[name]}"
    if scores is None:
        return "not tried"
    values = scores.filter(kind="sample")[f"reward/{name}"]
    shown = [f"{value:.3g}" for value in values.drop_nulls().to_list()[:8]]
    return f"{len(values) - values.null_count()} of {len(values)} scored: {' '.join(shown) or 'none'}"


def findings(found: list[Finding]) -> RenderableType:
    """Errors first."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for column in ("level", "place", "text"):
        table.add_column(column, overflow="fold", no_wrap=column == "level")
    for level in ("error", "warning", "ok"):
        for one in found:
            if one.level == level:
                mark, style = MARKS[level]
                table.add_row(Text(mark, style=style), Text(one.place), Text(one.text))
    return table


def estimate(work: DryRun, lines: list[Line]) -> RenderableType:
    """Seconds by stage, and what they rest on."""
    if not lines:
        return Text("None: the dry run did not get to the end of an update.")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("stage", "seconds", "times", "whole run", "how"):
        table.add_column(name, justify="left" if name in ("stage", "how") else "right", overflow="fold")
    for line in lines:
        table.add_row(line.stage, f"{line.seconds:.2f}", str(line.times), duration(line.total), line.how)
    table.add_row("all", "", "", duration(sum(line.total for line in lines)), "", style="bold")
    return Group(table, Text(f"\n{assumptions(work, lines)}"))


def assumptions(work: DryRun, lines: list[Line]) -> str:
    """What the numbers rest on, in words."""
    each = sum(line.seconds for line in lines if line.stage in ("rollout", "score", "advantage", "update"))
    limit = work.params.rollout.max_new_tokens
    text = (
        f"{each:.1f} s an iteration, DVC aside. Every answer is taken to be as long as rollout.max_new_tokens "
        f"({limit}) where it is sampled, and as the dry run's where it is read again; that sampling gets slower as "
        "answers get longer is not in it. Calls that were in the cache cost nothing."
    )
    left = not_estimated(work.params)
    return text + (f" Not in it: {', '.join(left)}." if left else "")


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show(console: Console, content: list[Section], last: str) -> None:
    """Print the page."""
    for title, body in content:
        console.rule(f"[bold]{title}", align="left")
        console.print(body, highlight=False)
        console.print()
    console.print(Text(last))


def write(path: Path, content: list[Section], last: str) -> None:
    """The same as a file: Markdown if it is called so, else plain text."""
    text = StringIO()
    console = Console(file=text, width=WIDTH, force_terminal=False, color_system=None)
    if path.suffix != ".md":
        show(console, content, last)
    else:
        text.write("# rloo check\n")
        for title, body in content:
            text.write(f"\n## {title}\n\n````\n")
            console.print(body, highlight=False)
            text.write("````\n")
        text.write(f"\n{last}\n")
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    with publish(path) as scratch:
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
