"""`rloo push`: the outs of all windows, and the run cache, to a remote of DVC. What is there already is not sent."""

from dvc.repo import Repo
from rich.console import Console

from pipeline.storage.page import listed
from pipeline.storage.prune import is_checkpoint
from pipeline.storage.transfer import cache_place, named, remote_of, reported, split, transfer_runs
from pipeline.storage.windows import Out, Window, read_windows
from stages.common.errors import StageError


def prunable(windows: list[Window]) -> set[Out]:
    """What may be missing without a fault: checkpoints of finished windows, but for the ends."""
    return {
        out
        for window in windows
        if window.is_finished
        for out in window.outs
        if is_checkpoint(out) and out.iteration != window.plan.last
    }


def push(console: Console, remote: str | None, jobs: int | None) -> int:
    """Returns how many files were sent. Raises before it sends anything if a file is in no place."""
    windows = read_windows()
    outs = [out for window in windows for out in window.outs]
    with Repo() as repo, reported("pushing"):
        place = remote_of(repo, remote)
        here, absent = split(cache_place(repo), outs, jobs)
        _, nowhere = split(place, absent, jobs)
        pruned = set(nowhere) & prunable(windows)
        lost = set(nowhere) - pruned
        if lost:
            raise StageError(
                f"{named(lost)}: neither in the cache nor in {place.name}; "
                "`dvc repro` makes what is missing in the open window, `rloo pull -r` fetches it from another remote"
            )
        result = repo.cloud.push(set().union(*here.values()), jobs=jobs, odb=place.odb)
        if result.failed:
            raise StageError(f"{len(result.failed)} files did not get to {place.name}; the same command goes on")
        runs = transfer_runs(repo, remote, push=True)
    sent = len(result.transferred)
    console.print(f"{sent} files of {len(windows)} windows sent to {place.name}")
    if runs is None:
        console.print("  the run cache is not: this kind of remote cannot have it")
    else:
        console.print(f"  {runs} entries of the run cache")
    if pruned:
        names = sorted({str(out.iteration) for out in pruned})
        console.print(f"  pruned, and not there either: checkpoints of {listed(names)}")
    return sent
