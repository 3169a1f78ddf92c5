"""`data/.dvcignore`: which iterations DVC does not see, so that `history` depends on those of the open window alone.

Folders of other windows stay in `data` for whoever reads them. Of the iteration that the window starts from DVC sees
the tables that `window_entry` restores. The file is written with the plan, and is not in git; a fresh clone needs none,
as there are no other files there.
"""

from pathlib import Path

from pipeline.plan import Plan
from pipeline.windows.files import replace_text
from stages.common.paths import DATA, INITIAL

IGNORE = DATA / ".dvcignore"
HEADER = "# Written with pipeline/plan.yaml: iterations of other windows than the open one.\n"


def ignore_text(plan: Plan) -> str:
    lines = ["/iterations/i*", *(f"!/iterations/{name}" for name in [INITIAL, *plan.entry, *plan.names])]
    lines.append("/iterations/*/history.parquet")  # what the next window starts from
    for name in plan.entry:
        kept = [f"!/iterations/{name}/{file}" for file in ("advantages.parquet", "history.parquet")]
        lines += [f"/iterations/{name}/*", *kept]
    return HEADER + "".join(f"{line}\n" for line in lines)


def hide_others(plan: Plan, path: Path = IGNORE) -> None:
    """Let DVC see the iterations of this window only."""
    text = ignore_text(plan)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, text)


def hide_nothing(path: Path = IGNORE) -> None:
    """While windows change: neither of the two may miss what it has."""
    path.unlink(missing_ok=True)
