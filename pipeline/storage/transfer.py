"""Objects between DVC's cache and a remote of DVC, whatever kind of place that is.

DVC's own push and pull see the open window's lock alone; these take the outs of any window. Listings of folders go
after what they list, so that a transfer that is ended leaves no folder that looks complete and is not.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dvc.config import RemoteConfigError
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage.cache import RunCacheNotSupported
from dvc_data.hashfile.hash_info import HashInfo
from dvc_data.hashfile.tree import Tree

from pipeline.storage.windows import Out
from stages.common.errors import StageError

SHOWN = 5  # paths in a message


@dataclass(frozen=True)
class Place:
    """One end of a transfer: the cache or the remote, as DVC's database of objects."""

    odb: Any
    name: str


def cache_place(repo: Repo) -> Place:
    return Place(repo.cache.local, "the cache")


def remote_of(repo: Repo, name: str | None) -> Place:
    """The remote of that name, or the default one; what comes from it is hashed again."""
    try:
        remote = repo.cloud.get_remote(name, "push")
        odb = repo.cloud.get_remote_odb(name, "push")
    except (RemoteConfigError, DvcException) as error:
        hint = "`dvc remote add -d NAME URL` adds a remote: a folder, s3://..., ssh://..."
        raise StageError(f"{error}\n{hint}") from None
    odb.verify = True
    return Place(odb, f"{remote.name} ({odb.fs.unstrip_protocol(remote.path)})")


def objects_at(place: Place, outs: Iterable[Out]) -> Iterator[tuple[Out, set[HashInfo]]]:
    """Outs with all their objects; a folder whose listing is not at this place, or cannot be read, has none."""
    known: dict[str, set[HashInfo]] = {}
    for out in outs:
        if out.md5 not in known:
            known[out.md5] = _objects(place, HashInfo("md5", out.md5))
        yield out, known[out.md5]


def _objects(place: Place, hash_info: HashInfo) -> set[HashInfo]:
    if not hash_info.isdir:
        return {hash_info}
    try:
        listing = Tree.load(place.odb, hash_info)
    except (FileNotFoundError, DvcException, ValueError, OSError):
        return set()
    return {hash_info, *(entry for _, _, entry in listing if entry is not None)}


def there(place: Place, objects: Iterable[HashInfo], jobs: int | None) -> set[HashInfo]:
    """Which of the objects are at this place; many at once are looked for in a listing of all."""
    wanted = {str(one.value): one for one in objects}
    return {wanted[found] for found in place.odb.oids_exist(list(wanted), jobs=jobs)} if wanted else set()


def split(place: Place, outs: Iterable[Out], jobs: int | None) -> tuple[dict[Out, set[HashInfo]], list[Out]]:
    """Outs that are at this place with all their objects, and outs that are not."""
    listed = dict(objects_at(place, outs))
    found = there(place, set().union(*listed.values()), jobs)
    complete = {out: objects for out, objects in listed.items() if objects and objects <= found}
    return complete, [out for out in listed if out not in complete]


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Errors of DVC and of the place as an error that a user can mend."""
    try:
        yield
    except (DvcException, OSError) as error:
        raise StageError(
            f"{what} failed: {error}; what has come through stays, and the same command goes on"
        ) from error


def named(outs: Iterable[Out]) -> str:
    """Some of the paths, for a message."""
    found = sorted({out.path for out in outs})
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def transfer_runs(repo: Repo, remote: str | None, *, push: bool) -> int | None:
    """Copy entries of the run cache that the other side lacks; how many, or None where a remote cannot have them."""
    there_odb = repo.cloud.get_remote_odb(remote, "push", hash_name="md5-dos2unix")
    ends = (repo.cache.legacy, there_odb) if push else (there_odb, repo.cache.legacy)
    try:
        return len(repo.stage_cache.transfer(*ends, force=False))
    except RunCacheNotSupported:
        return None
