"""Reading what other stages have made: each file is compared with its stage's manifest before anything uses it.

Inside a stage the manifest must be there, and what was read goes into the stage's own. Commands that look at a run take
a file without a manifest as it is, and refuse one that contradicts it. Files that no stage makes are not checked.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import yaml

from stages.common import paths
from stages.common.fingerprint import file_hash, folder_hash
from stages.common.manifest import REMEDY, ManifestError, files_of, read_manifest
from stages.common.producers import producer_of
from stages.common.record import running

Counts = Callable[[Path], bool]
AGAIN = "run the stage that makes it (`dvc repro` or `rloo train`)"


class DamagedError(ManifestError):
    """A file that is not the one which its stage wrote; the message names both."""


def checked(path: Path) -> Path:
    """The path of a file that is what its stage wrote."""
    files = listing(path)
    if files is not None:
        _check(here(path), files)
    return path


def check_folder(folder: Path, counts: Counts = lambda path: True) -> str:
    """Check all files of a folder that count, and return the hash over their names and contents."""
    files = listing(folder)
    if files is not None:
        there = {path for path in files_of(here(folder)) if counts(path)}
        listed = {path for path in map(Path, files) if here(folder) in path.parents and counts(path)}
        for path in sorted(there | listed):
            _check(path, files)
    return folder_hash(folder, counts)


@contextmanager
def reading(path: Path, counts: Counts = lambda path: True) -> Iterator[Path]:
    """Check a file or the files of a folder, and once they were read, that they were the very ones that were hashed."""
    if listing(path) is None:
        yield path
        return
    before = _hashes(path, counts)
    checked(path) if path.is_file() else check_folder(path, counts)
    yield path
    if _hashes(path, counts) != before:
        raise DamagedError(f"{path} was replaced while it was read; run the same command again")


def _hashes(path: Path, counts: Counts) -> dict[Path, str]:
    return {file: file_hash(file) for file in files_of(path) if counts(file)}


def here(path: Path) -> Path:
    """The path as manifests have it: relative to the project's folder."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


def small(path: Path) -> bool:
    """Config and tokenizer of a model folder, and not its weights."""
    return path.suffix != ".safetensors"


def listing(path: Path) -> dict[str, Any] | None:
    """What a manifest lists beside the file or folder, by path; None: there is nothing to compare it with."""
    record, producer = running(), producer_of(path)
    if producer is None or (record is not None and record.owns(path)):
        return None
    manifest = manifest_of(path)
    found = _of_entry(path) if producer[0] == "window_entry" else read_manifest(manifest)
    if found is None and record is not None:
        made_by = f"{manifest.stem} {manifest.parent.name}"
        raise ManifestError(f"{path}: {made_by} has not finished, there is no {manifest}; {AGAIN}")
    return None if found is None else found["files"]


def manifest_of(path: Path) -> Path:
    """Of the stage that makes the file or folder."""
    stage, name = producer_of(path) or ("none", "none")
    return paths.manifest(stage, name or _last())


def _last() -> str:
    """The plan's last iteration, after which the files of the whole run are named in manifests."""
    return str(yaml.safe_load(paths.PLAN.read_text(encoding="utf-8"))["last"]) if paths.PLAN.exists() else "none"


def _of_entry(path: Path) -> dict[str, Any] | None:
    """The history that a window goes on from is a copy of the one before: that window's end.json has its MD5."""
    for end in sorted(paths.WINDOWS.glob("*/end.json")):
        try:
            found = json.loads(end.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ManifestError(f"{end}: not JSON ({error}); restore it with git, or by `rloo train`") from None
        if str(path) in found:
            return {"files": {str(path): found[str(path)]}}
    return None


def _check(path: Path, files: dict[str, Any]) -> None:
    """Compare with the manifest's entry, and note for the running stage what it reads."""
    stage, name = producer_of(path) or ("", "")
    made_by = f"{stage} {name or _last()}"
    if not path.exists():
        raise ManifestError(f"{path} does not exist, and {made_by} had made it; {AGAIN}")
    if str(path) not in files:
        raise DamagedError(f"{path}: not made by {made_by}, whose manifest does not list it: remove it; {REMEDY}")
    listed, size = files[str(path)], path.stat().st_size
    if size != listed["size"]:
        raise DamagedError(f"{path}: damaged, {made_by} wrote {listed['size']} bytes, and it has {size}; {REMEDY}")
    found = file_hash(path)
    same = found == listed["hash"] if "hash" in listed else md5(path.read_bytes()).hexdigest() == listed["md5"]
    if not same:
        wrote = listed.get("hash", listed.get("md5"))
        raise DamagedError(
            f"{path}: damaged, {made_by} wrote bytes with the hash {wrote}, these have {found}; {REMEDY}"
        )
    record = running()
    if record is not None:
        record.note(path, found)
