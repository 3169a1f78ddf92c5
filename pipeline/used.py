"""What the last stage was computed from, against what DVC wrote about it.

DVC reads code and params again after a stage's command has ended. What is edited in that moment, a twentieth of a
second, is caught here afterwards: the stage's entry is taken out of dvc.lock, and out of the run cache.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any

from pipeline.claims import Claims, EditedError, claims_of, load_yaml
from pipeline.dvc_files import replaced
from pipeline.lock_text import entry_text, without_entry
from stages.common import paths
from stages.common.journal import reject
from stages.common.paths import DATA

USED = DATA / ".cache" / "used.json"


@dataclass(frozen=True)
class Place:
    """A stage, and the dvc.yaml it stands in."""

    dvc_name: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "dvc.yaml"

    @property
    def lock(self) -> Path:
        return self.folder / "dvc.lock"


def place_of(addressing: str) -> Place:
    file, _, name = addressing.rpartition(":")
    return Place(name, Path(file).parent if file else Path())


def watched(stage: str, name: str, work: Callable[[str, str], int], addressing: str | None) -> int:
    """Do the work of a DVC stage, which DVC calls `addressing`; it fails if what it depends on was edited meanwhile.
    Without DVC, only the work.
    """
    if addressing is None:
        return work(stage, name)
    place = place_of(addressing)
    before, entry = claims_of(place.dvc_name, place.file), _entry(place)
    status = work(stage, name)
    if status == 0:
        try:
            refuse_edited(place, before, claims_of(place.dvc_name, place.file))
        except EditedError as error:
            reject(stage, name, str(error))
            raise
        _keep(addressing, before, entry, paths.manifest(stage, name))
    return status


def refuse_edited(place: Place, before: Claims, after: Claims) -> None:
    difference = before.difference(after)
    if difference:
        raise EditedError(
            f"edited while {place.dvc_name} ran: {difference}. What it made may be of the old or of the new and is not "
            "taken; run again"
        )


def _entry(place: Place) -> str:
    try:
        return entry_text(place.lock.read_text(encoding="utf-8"), place.dvc_name)
    except OSError:
        return ""


def _keep(addressing: str, used: Claims, entry: str, manifest: Path) -> None:
    made = md5(manifest.read_bytes(), usedforsecurity=False).hexdigest() if manifest.exists() else None
    USED.parent.mkdir(parents=True, exist_ok=True)
    with replaced(USED) as file:
        json.dump({"stage": addressing, "entry": entry, "manifest": made, **used.as_json()}, file)


def check_used() -> None:
    """Raise an EditedError if DVC has claimed other code or params for the last stage than it was computed from, after
    taking the claim out of dvc.lock and the run cache.
    """
    try:
        used = json.loads(USED.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    USED.unlink(missing_ok=True)
    place = place_of(used["stage"])
    entry = _entry(place)
    if entry == used["entry"]:  # DVC has not written since
        return
    claimed = load_yaml(entry)[place.dvc_name] if entry else {}
    wrong = _wrong(claimed, used)
    if wrong:
        _withdraw(place, claimed)
        raise EditedError(
            f"edited at the moment when {place.dvc_name} ended: {', '.join(wrong)}. DVC took the new for what it was "
            "computed from; that entry is taken out of dvc.lock and the run cache. Run again"
        )


def _wrong(claimed: dict[str, Any], used: dict[str, Any]) -> list[str]:
    """What the entry claims and was not so. One of other results is of another run: a lock that was put into place."""
    if not claimed or used["manifest"] not in (None, *(out.get("md5") for out in claimed.get("outs", []))):
        return []
    hashes = {dep["path"]: dep.get("md5") for dep in claimed.get("deps", [])}
    deps = [path for path, found in used["deps"].items() if path in hashes and hashes[path] != found]
    params = claimed.get("params", {})
    return deps + [
        f"{key} of {file}"
        for file, values in used["params"].items()
        for key, value in values.items()
        if key in params.get(file, {}) and params[file][key] != value
    ]


def _withdraw(place: Place, claimed: dict[str, Any]) -> None:
    text = without_entry(place.lock.read_text(encoding="utf-8"), place.dvc_name)
    if text:
        with replaced(place.lock) as file:
            file.write(text)
    else:
        place.lock.unlink()
    for path in run_cache().glob("*/*/*"):
        found = load_yaml(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and all(
            found.get(key) == claimed.get(key) for key in ("cmd", "deps", "params", "outs")
        ):
            path.unlink()
            with suppress(OSError):  # DVC fails at a folder with nothing in it; others of the same key may be left
                path.parent.rmdir()


def run_cache() -> Path:
    """Where DVC keeps what it knows of finished stages, by what they depended on."""
    from dvc.repo import Repo

    with Repo() as repo:
        return Path(repo.stage_cache.cache_dir)
