"""Verify, show what was found, and repair: what is damaged is removed, so that DVC restores it or computes it again."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo
from rich.console import Console
from rich.table import Table

from pipeline.run_lock import run_lock
from pipeline.verify import cache, workspace
from pipeline.verify.cache import EARLIER
from pipeline.verify.findings import Finding
from pipeline.verify.locks import LOCK, read_locks
from pipeline.verify.pruned import show_pruned, told_apart
from stages.common import paths
from stages.common.durable import remove, sync
from stages.common.errors import StageError

POLICIES = paths.DATA / "policies"
SHOWN = 3  # files of one stage that are missing, or without a manifest


def verify(console: Console, names: list[str], *, repair: bool) -> bool:
    """Whether nothing is damaged, or everything damaged was removed."""
    try:
        with _exclusive(repair), Repo() as repo:
            findings = examine(console, names, Path(repo.cache.local.path))
            if not repair and any(one.is_bad for one in findings):
                again = {one.path for one in examine(console, names, Path(repo.cache.local.path)) if one.is_bad}
                findings = [one for one in findings if not one.is_bad or one.path in again]  # a run may replace files
            bad = [one for one in findings if one.is_bad]
            show(console, findings)
            if repair and bad:
                mend(console, bad)
    except DvcException as error:
        raise StageError(f"DVC cannot be asked where its cache is: {error}") from error
    return repair or not bad


def _exclusive(repair: bool) -> AbstractContextManager[object]:
    """Nothing is removed under a run; looking alone disturbs none."""
    return run_lock("rloo verify --repair") if repair else nullcontext()


def examine(console: Console, names: list[str], objects: Path) -> list[Finding]:
    """All findings, each path once, damaged ones first."""
    intact: set[Path] = set()
    locks = read_locks(objects)
    with console.status("") as status:

        def say(path: str) -> None:
            status.update(f"reading {path}")

        found = [*workspace.examine(names, locks, say, intact), *cache.examine(objects, locks, names, say, intact)]
    console.print(f"{len(intact)} files in data are what their stages wrote", highlight=False)
    return sorted(told_apart([*{one.path: one for one in reversed(found)}.values()]), key=_place)


def _place(one: Finding) -> tuple[bool, bool, Path]:
    """Damaged files first; of a checkpoint, which is several, the policy."""
    return not one.is_bad, POLICIES not in one.path.parents, one.path


def show(console: Console, findings: Sequence[Finding]) -> None:
    """A row for each damaged file; of those that are missing or have no manifest the first of a stage, and a count."""
    show_pruned(console, findings)
    if all(one.state == "pruned" for one in findings):
        console.print("nothing is damaged or missing")
        return
    table = Table(title="Not as its stage wrote it")
    for title in ("", "file", "made by", "what"):
        table.add_column(title, overflow="fold")
    for one in (one for one in findings if one.is_bad):
        table.add_row(f"[bold red]{one.state}[/bold red]", str(one.path), one.made_by, one.detail)
    others = sorted((one for one in findings if not one.is_bad and one.state != "pruned"), key=_kind)
    for (state, room), group in groupby(others, key=_kind):
        paths = [str(one.path) for one in group]
        more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
        table.add_row(state, "\n".join(paths[:SHOWN]) + more, room, "")
    console.print(table)
    bad = sum(one.is_bad for one in findings)
    if bad:
        console.print(f"{bad} damaged; `rloo verify --repair` removes them, and says what makes them again")


def _kind(one: Finding) -> tuple[str, str]:
    """What is missing may be many files: they are counted by the kind of stage that makes them."""
    return one.state, re.split("[@ ]", one.made_by)[0]


def mend(console: Console, bad: Sequence[Finding]) -> None:
    """Remove the files and their objects, and say which stages make them again."""
    for one in bad:
        remove(one.path)
        sync(one.path.parent)
    stages = ", ".join(dict.fromkeys(name for one in bad for name in one.made_by.split(", ") if name != EARLIER))
    how = "restores from DVC's cache or runs again" if LOCK.exists() else "runs again"
    console.print(
        f"removed {len(bad)}; the next `rloo train` or `dvc repro` {how} (or `rloo pull` fetches, where a remote has "
        f"them): {stages}",
        highlight=False,
    )
