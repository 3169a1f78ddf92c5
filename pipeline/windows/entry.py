"""The command of stage `window_entry`: restore what a window starts from, out of DVC's cache, by hash.

It ends with its parent, as `pipeline/stage.py` does.
"""

import sys
from pathlib import Path

from pipeline.plan import read_plan
from pipeline.run_lock import at_work
from pipeline.stage import as_stage
from pipeline.windows.cached import cache_folder, cached, listed, missing, read_end
from pipeline.windows.files import content_md5, end_file
from pipeline.windows.lock import Out
from pipeline.windows.made_of import differs_in_training
from stages.common.checked import here
from stages.common.errors import StageError
from stages.common.files import link_file, publish, sweep_partial
from stages.common.journal import journalled
from stages.common.manifest import REMEDY
from stages.common.paths import iteration_number

STAGE = "window_entry"


def restore(path: Path, out: Out, cache: Path) -> None:
    """One file or folder, whole, and with the hash that end.json names."""
    md5 = out["md5"]
    with publish(path) as scratch:
        if md5.endswith(".dir"):
            scratch.mkdir()
            for name, one in listed(cache, md5).items():
                place(cached(cache, one), scratch / name)
        else:
            place(cached(cache, md5), scratch)
        if content_md5(scratch) != md5:
            raise StageError(
                f"{path}: damaged in DVC's cache: {here(cached(cache, md5))}, or what it lists, has other content "
                f"than its name says; {REMEDY}"
            )


def place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    link_file(source.resolve(), target)


def run(name: str) -> None:
    """Restore the files of iteration `name`, which the open window starts from."""
    plan = read_plan()
    if name not in plan.entry:
        raise StageError(f"{name} is not where {plan.window} of pipeline/plan.yaml starts from")
    before = plan.entry[name]["window"]
    others = differs_in_training(before)
    if others:
        raise StageError(
            f"{before} was made with other options or code than there are now ({', '.join(others)}), and the run would "
            "mix both; `rloo train` goes back to the first window that they concern"
        )
    end, cache = read_end(before), cache_folder()
    gone = missing(cache, end)
    if gone:
        raise StageError(
            f"{end_file(before)} names what is not in DVC's cache: {', '.join(gone)}. `rloo pull` fetches it with "
            f"{before} open (`rloo windows open {before}`); `rloo train` makes it again"
        )
    for path, out in end.items():
        restore(Path(path), out, cache)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m pipeline.windows.entry ITERATION", file=sys.stderr)
        return 2
    return as_stage(STAGE, arguments[0], work)


def work(stage: str, name: str) -> int:
    """With a journal, as every stage has one."""
    iteration_number(name)
    with at_work(), journalled(stage, name):
        sweep_partial()
        run(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
