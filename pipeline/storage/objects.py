"""Objects of DVC's cache: one file for each content, and a listing (`.dir`) for each folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dvc.repo import Repo


@dataclass(frozen=True)
class Cache:
    """Where the objects are; `is_shared`: other projects, or the one that this is an experiment of, use them too."""

    folder: Path  # .dvc/cache/files/md5
    runs: Path  # the run cache
    is_shared: bool

    def file(self, md5: str) -> Path:
        return self.folder / md5[:2] / md5[2:]

    def has(self, md5: str) -> bool:
        return self.file(md5).exists()

    def listed(self, md5: str) -> list[str] | None:
        """Hashes of the files of a folder; None if the listing is not here."""
        try:
            return [str(entry["md5"]) for entry in json.loads(self.file(md5).read_bytes())]
        except FileNotFoundError:
            return None

    def objects(self, md5s: Iterable[str]) -> set[str]:
        """These and, of folders, what they list."""
        found: set[str] = set()
        for md5 in set(md5s):
            found.add(md5)
            if md5.endswith(".dir"):
                found.update(self.listed(md5) or ())
        return found

    def is_complete(self, md5: str) -> bool:
        """Whether a file, or a folder with all its files, is here."""
        if not self.has(md5):
            return False
        return not md5.endswith(".dir") or all(self.has(one) for one in self.listed(md5) or ())

    def all_objects(self) -> list[str]:
        return sorted(file.parent.name + file.name for file in self.folder.glob("??/*"))


def cache_of(repo: Repo) -> Cache:
    """The cache that the project is configured to use."""
    folder, legacy = Path(repo.cache.local.path), Path(repo.cache.legacy.path)
    own = Path(str(repo.dvc_dir)).resolve()
    return Cache(folder, legacy / "runs", not folder.resolve().is_relative_to(own))
