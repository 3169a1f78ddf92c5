"""Manifests: what a stage wrote and read, with sizes and hashes, `data/manifests/<name>/<stage>.json`.

It is removed first and written last: without one, nothing of the stage is finished. The same run gives the same bytes,
so it says nothing of times, logs and caches.
"""

import json
from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.fingerprint import file_hash
from stages.common.producers import producer_of
from stages.common.record import Record
from stages.common.write_json import write_json

NOT_LISTED = frozenset({paths.SECONDS_CSV})  # durations
REMEDY = "`rloo verify --repair` removes what is damaged, here and in DVC's cache, and says what makes it again"


class ManifestError(StageError):
    """A file that is not what its stage wrote, or a stage that has not finished."""


def start(record: Record) -> None:
    """Nothing of the stage is finished from now on."""
    paths.manifest(record.stage, record.name).unlink(missing_ok=True)


def write_manifest(record: Record) -> None:
    """Of everything that the stage has published and read."""
    content = {
        "stage": record.stage,
        "name": record.name,
        "files": {str(file): described(file) for target in record.written for file in listed(target, record)},
        "inputs": record.read,
    }
    with publish(paths.manifest(record.stage, record.name)) as scratch:
        write_json(content, scratch)


def listed(target: Path, record: Record) -> list[Path]:
    """The files of something published that belong into the manifest: the stage's outs, without caches and scratch."""
    hidden = any(part.startswith(".") for part in target.parts)
    if hidden or target in NOT_LISTED or paths.DATA not in target.parents:
        return []
    stage, name = producer_of(target) or (None, None)
    if stage != record.stage or name not in (record.name, None):
        raise ManifestError(f"{target}: not an output of {record.stage} {record.name} by stages/common/producers.py")
    return files_of(target)


def files_of(path: Path) -> list[Path]:
    """A file, or all files in a folder, without what running code leaves there."""
    if not path.is_dir():
        return [path] if path.exists() else []
    return [p for p in sorted(path.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]


def described(file: Path) -> dict[str, Any]:
    """Size in bytes, hash (BLAKE2b of 16 bytes), and of a table the number of rows."""
    found = {"size": file.stat().st_size, "hash": file_hash(file)}
    if file.suffix == ".parquet":
        import polars as pl

        found["rows"] = pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()
    return found


def read_manifest(path: Path) -> dict[str, Any] | None:
    """None if it is not there; a ManifestError if it is not one."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sizes = {name: int(file["size"]) for name, file in found["files"].items() if str(file["hash"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path}: damaged, and no manifest any more ({error!r}); {REMEDY}") from None
    if len(sizes) != len(found["files"]) or not isinstance(found.get("inputs"), dict):
        raise ManifestError(f"{path}: damaged, and no manifest any more; {REMEDY}")
    return found
