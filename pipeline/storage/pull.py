"""`rloo pull`: windows and iterations from a remote of DVC, into the cache and into `data/`.

Without names, all that a machine needs to go on: every table of every window, and the checkpoints that `storage` in
params.yaml keeps. A window by name comes with all its checkpoints, pruned ones too if they were pushed before; an
iteration with all that it is made of, so that it can be run again.
"""

from collections.abc import Iterable
from pathlib import Path

from dvc.repo import Repo
from dvc_data.hashfile import load
from dvc_data.hashfile.checkout import CheckoutError, LinkError, PromptError, checkout
from dvc_data.hashfile.hash_info import HashInfo
from rich.console import Console

from pipeline.plan import read_plan
from pipeline.run_lock import run_lock
from pipeline.storage.keep import history_of, kept
from pipeline.storage.objects import cache_of
from pipeline.storage.page import listed
from pipeline.storage.prune import is_checkpoint
from pipeline.storage.push import prunable
from pipeline.storage.transfer import Place, cache_place, named, remote_of, reported, split, transfer_runs
from pipeline.storage.windows import Out, Window, read_windows
from pipeline.windows.switch import settle
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params_file import load_params


def of_names(names: list[str], windows: list[Window]) -> list[Out]:
    """Outs of the windows and iterations, each once."""
    found: dict[Out, None] = {}
    for name in names:
        window = next((one for one in windows if name == one.name or name in one.plan.names), None)
        if window is None:
            known = ", ".join(f"{one.name} ({one.plan.names[0]} to {one.plan.last})" for one in windows)
            raise StageError(f"no window has {name!r}; there are {known}")
        found |= dict.fromkeys(window.outs if name == window.name else _of_iteration(name, window))
    return list(found)


def _of_iteration(name: str, window: Window) -> list[Out]:
    """What the stages of an iteration left, and what they depend on: an out, a part of one, or a folder of several."""
    stages = [stage for stage in window.stages if stage.endswith(f"@{name}")]
    if not stages:
        raise StageError(f"{name} has not run: the lock of {window.name} has no stage of it")
    deps = [Path(dep["path"]) for stage in stages for dep in window.stages[stage].get("deps", ())]
    found = [out for out in window.outs if out.stage in stages or any(_overlap(Path(out.path), dep) for dep in deps)]
    makers = {out.stage for out in found}  # without the manifest of its stage nothing is taken for finished
    manifests = [out for out in window.outs if out.stage in makers and Path(out.path).is_relative_to(paths.MANIFESTS)]
    return list(dict.fromkeys([*found, *manifests]))


def _overlap(out: Path, dep: Path) -> bool:
    return out == dep or out in dep.parents or dep in out.parents


def _of_all(windows: list[Window], fetch: "Fetch") -> list[Out]:
    """Everything but the checkpoints that the policy prunes; what the policy needs to know is fetched first."""
    options = load_params().storage
    everything = [out for window in windows for out in window.outs]
    if options.keep_last is None:
        return everything
    others = [out for out in everything if not is_checkpoint(out)]
    fetch(others)
    history = history_of(windows, cache_of(fetch.repo)) if options.best is not None else None
    keep = kept(options, windows, history)
    return [out for out in everything if not is_checkpoint(out) or out.iteration in keep]


class Fetch:
    """Brings outs into the cache; remembers how much came and what is in no place for it was pruned."""

    def __init__(self, repo: Repo, windows: list[Window], remote: str | None, jobs: int | None) -> None:
        self.repo, self.remote, self.jobs = repo, remote, jobs
        self.place: Place = remote_of(repo, remote)
        self.may_miss = prunable(windows)
        self.files = 0
        self.pruned: set[Out] = set()

    def __call__(self, outs: Iterable[Out]) -> None:
        _, absent = split(cache_place(self.repo), outs, self.jobs)
        found, nowhere = split(self.place, absent, self.jobs)
        self.pruned |= set(nowhere) & self.may_miss
        lost = set(nowhere) - self.may_miss
        if lost:
            raise StageError(f"{named(lost)}: neither here nor in {self.place.name}; `rloo push` where it was made")
        result = self.repo.cloud.pull(set().union(*found.values()), jobs=self.jobs, odb=self.place.odb)
        self.files += len(result.transferred)
        _, damaged = split(cache_place(self.repo), found, self.jobs)  # a file with other bytes is not taken
        if result.failed or damaged:
            raise StageError(f"{named(damaged) or 'files'}: did not come through whole from {self.place.name}")


def pull(console: Console, names: list[str], remote: str | None, jobs: int | None) -> int:
    """Returns how many files came. Files of the workspace that are in no cache are never written over."""
    with run_lock("rloo pull"), Repo() as repo, reported("pulling"):
        windows = read_windows()
        fetch = Fetch(repo, windows, remote, jobs)
        outs = of_names(names, windows) if names else _of_all(windows, fetch)
        fetch(outs)
        runs = transfer_runs(repo, remote, push=False)
        wanted = _for_workspace(outs, windows, fetch.pruned)
        fetch(wanted)
        placed = _place(repo, wanted)
        settle(read_plan())  # what came of other windows is not the open one's history
    console.print(f"{fetch.files} files came from {fetch.place.name}; {placed} of data/ are in place")
    console.print(f"  {runs or 0} entries of the run cache")
    if fetch.pruned:
        iterations = sorted({str(out.iteration) for out in fetch.pruned})
        console.print(f"  pruned before they were pushed: checkpoints of {listed(iterations)}")
    return fetch.files


def _for_workspace(outs: list[Out], windows: list[Window], missing: set[Out]) -> list[Out]:
    """By path; the open window's word wins. Of finished windows come iterations alone: the rest is the open one's."""
    opened = {out.path: out for window in windows if window.is_open for out in window.outs}
    found: dict[str, Out] = {}
    for out in outs:
        if out.path in opened:
            found[out.path] = opened[out.path]
        elif out not in missing and (not opened or out.iteration is not None):
            found[out.path] = out
    return list(found.values())


def _place(repo: Repo, outs: list[Out]) -> int:
    cache = repo.cache.local
    for out in outs:
        path = Path(str(repo.root_dir)) / out.path
        obj = load(cache, HashInfo("md5", out.md5))
        (path if out.md5.endswith(".dir") else path.parent).mkdir(parents=True, exist_ok=True)
        try:
            checkout(str(path), repo.fs, obj, cache, quiet=True, state=repo.state)
        except PromptError as error:
            raise StageError(f"{error.path} has bytes that are in no cache; move it away, and pull again") from None
        except (CheckoutError, LinkError) as error:
            raise StageError(f"{out.path} could not be put in place: {error}") from error
    return len(outs)
