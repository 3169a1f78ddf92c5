"""The files in `data` against the manifests of the stages that made them."""

from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

from pipeline.verify.findings import Finding
from pipeline.verify.locks import FOLDER, Locks
from stages.common import paths
from stages.common.checked import manifest_of
from stages.common.errors import StageError
from stages.common.fingerprint import file_hash
from stages.common.manifest import ManifestError, files_of, read_manifest
from stages.common.producers import producer_of

Say = Callable[[str], None]


def manifests(names: list[str]) -> list[Path]:
    """Of the stages with these names, or all; a StageError for a name that has none."""
    known = sorted(folder.name for folder in paths.MANIFESTS.glob("*"))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise StageError(
            f"nothing named {', '.join(unknown)} has a manifest in {paths.MANIFESTS}; {', '.join(known)} have"
        )
    return [path for name in names or known for path in sorted((paths.MANIFESTS / name).glob("*.json"))]


def examine(names: list[str], locks: Locks, say: Say, intact: set[Path]) -> Iterator[Finding]:
    """What is wrong in the workspace. Files that were read and are whole are added to `intact`."""
    for path in manifests(names):
        say(str(path))
        made_by = maker(path, locks)
        try:
            content = read_manifest(path)
        except ManifestError:
            yield Finding("damaged", path, made_by, "no manifest any more")
            content = None
        if content is not None:
            intact.add(path)
            yield from _files(path, current(path, content["files"]), made_by, locks, intact)
    if not names:
        yield from _without_manifest(locks)


def maker(path: Path, locks: Locks) -> str:
    """The DVC stage that makes a path; else the stage by the path itself."""
    if path in locks.of_path:
        return locks.of_path[path].stage
    stage, name = producer_of(path) or ("", None)
    return f"{stage} {name}" if name else stage


def current(manifest: Path, listed: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says of the files that there are now.

    The history has one place: of several windows, or of a plan that was shorter before, each has a manifest of it, and
    that of the plan's last iteration holds.
    """
    return {name: entry for name, entry in listed.items() if not _of_another(Path(name), manifest)}


def _of_another(path: Path, manifest: Path) -> bool:
    """Whether a file that belongs to no iteration by its path is that of another manifest now."""
    stage, name = producer_of(path) or ("", "")
    return name is None and stage == manifest.stem and manifest_of(path) != manifest


def _files(manifest: Path, listed: dict[str, Any], made_by: str, locks: Locks, intact: set[Path]) -> Iterator[Finding]:
    for path, entry in sorted((Path(name), entry) for name, entry in listed.items()):
        if not path.exists():
            yield Finding("missing", path, made_by)
            continue
        why = _difference(path, entry)
        if why is None:
            intact.add(path)
        elif as_locked(path, locks):  # then it is the manifest that was changed
            intact.discard(manifest)
            yield Finding("damaged", manifest, made_by, f"{path} is as DVC knows it, and not as listed")
        else:
            yield Finding("damaged", path, made_by, why)
    yield from _not_listed(listed, made_by)
    if manifest in intact and _is_another(manifest, locks) and all(as_locked(Path(name), locks) for name in listed):
        intact.discard(manifest)  # nothing that it lists is another one than DVC knows
        yield Finding("damaged", manifest, made_by, "other bytes")


def _difference(path: Path, entry: dict[str, Any]) -> str | None:
    size = path.stat().st_size
    if size != entry["size"]:
        return f"{size} bytes, not {entry['size']}"
    found = file_hash(path)
    return None if found == entry["hash"] else "other bytes"


def as_locked(path: Path, locks: Locks) -> bool:
    """Whether a file has the bytes that DVC's lock names."""
    out = locks.of_path.get(path)
    return out is not None and not out.oid.endswith(FOLDER) and md5_of(path) == out.oid


def _is_another(path: Path, locks: Locks) -> bool:
    """Whether a lock has the file, with other bytes."""
    return path in locks.of_path and not as_locked(path, locks)


def md5_of(path: Path) -> str:
    digest = md5()
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def _not_listed(listed: dict[str, Any], made_by: str) -> Iterator[Finding]:
    """Files that lie among those of a stage, in a folder that is all its own."""
    files = {Path(name) for name in listed}
    for folder in sorted({own for file in files if (own := own_folder(file)) is not None}):
        for path in files_of(folder):
            if path not in files:
                yield Finding("not listed", path, made_by)


def own_folder(file: Path) -> Path | None:
    """The uppermost folder that the file's stage makes with all that is in it; None: the file is an out by itself."""
    found = [folder for folder in file.parents if producer_of(folder) is not None]
    return found[-1] if found else None


def _without_manifest(locks: Locks) -> Iterator[Finding]:
    """Files of stages that have not finished, or that were made before there were manifests."""
    for top in sorted(paths.DATA.iterdir()) if paths.DATA.exists() else ():
        if top.name.startswith(".") or top in (paths.MANIFESTS, paths.LOGS):
            continue
        for path in files_of(top):
            stage, name = producer_of(path) or (None, None)
            if stage is None or stage == "window_entry":
                continue
            found = [paths.manifest(stage, name)] if name else list(paths.MANIFESTS.glob(f"*/{stage}.json"))
            if not any(one.exists() for one in found):
                yield Finding("no manifest", path, maker(path, locks))
