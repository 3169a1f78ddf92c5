"""Who else needs an object of the cache: other branches, tags, stashes and experiments, by the locks they hold.

The workspace's own locks stand for the current branch. Its older commits hold nothing, as for `dvc gc --workspace`;
neither do branches of git's remotes, whose data is in the remote of DVC.
"""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pipeline.dvc_files import LOCK
from pipeline.storage.windows import outs_of, read_lock
from stages.common import paths
from stages.common.errors import StageError

HOLDING = ("refs/heads", "refs/tags", "refs/stash", "refs/exps")
TRANSIENT = "refs/exps/exec/"  # where DVC is while it runs an experiment; it leaves EXEC_HEAD behind
STASHES = ("refs/stash", "refs/exps/stash", "refs/exps/celery/stash", "refs/exps/celery/failed")
RUNNING = ".dvc/tmp/exps"  # folders of experiments that run now


def _git(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["git", *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        raise StageError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def in_git() -> bool:
    """Whether the project lies in a repository of git that has a commit."""
    try:
        done = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True)
    except FileNotFoundError:
        raise StageError("git is not installed, and what other branches need cannot be known without it") from None
    return done.returncode == 0


def current_branch() -> str | None:
    """`refs/heads/main`; None where HEAD is detached, and every branch is another."""
    done = subprocess.run(["git", "symbolic-ref", "--quiet", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or None


def commits() -> Iterator[tuple[str, str]]:
    """Names of refs and the commits that they stand for; a stash has as many as there are entries."""
    current = current_branch()
    for ref in _git("for-each-ref", "--format=%(refname)", *HOLDING).split():
        if ref == current or ref.startswith(TRANSIENT):
            continue
        if ref in STASHES:
            for commit in _git("reflog", "show", "--format=%H", ref).split():
                yield ref, commit
        else:
            yield ref, ref


def _locks(commit: str) -> Iterator[str]:
    """Ids of the locks in a commit's tree."""
    for line in _git("ls-tree", "-r", commit, "--", str(LOCK), str(paths.WINDOWS), "pipeline/studies").splitlines():
        described, _, path = line.partition("\t")
        if Path(path).name == LOCK.name:
            yield described.split()[2]


def held_elsewhere() -> dict[str, str]:
    """Hashes that something other than this workspace holds, each with the name of one that does."""
    held: dict[str, str] = {}
    seen: set[str] = set()
    for ref, commit in commits() if in_git() else ():
        for blob in _locks(commit):
            if blob not in seen:
                seen.add(blob)
                _hold(held, _named(blob, ref), ref)
    for lock in [*Path(RUNNING).glob("*/dvc.lock"), *Path(RUNNING).glob("*/pipeline/windows/*/dvc.lock")]:
        _hold(held, hashes_in(lock.read_text(encoding="utf-8"), str(lock)), str(lock))
    return held


@cache
def _named(blob: str, ref: str) -> frozenset[str]:
    """Hashes in a lock that git has; what has this id never changes."""
    return hashes_in(_git("cat-file", "blob", blob), ref)


def hashes_in(lock: str, holder: str) -> frozenset[str]:
    return frozenset(out.md5 for stage, entry in read_lock(lock, holder).items() for out in outs_of(stage, entry))


def _hold(held: dict[str, str], hashes: frozenset[str], holder: str) -> None:
    for md5 in hashes:
        held.setdefault(md5, holder)
