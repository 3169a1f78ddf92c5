"""The file system that DVC is given here: its lock files are whole at any moment, and dvc.lock is as short as can be.

DVC parses all of dvc.lock to read the entry of one stage, and parses and writes it all to change one. Where it runs one
stage, it is shown that stage's entry alone, and what it writes is put in its place: the time that a stage takes does
not grow with the stages beside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import IO, Any

from dvc.fs import LocalFileSystem

from pipeline.dvc_files import LOCK, WHOLE_OR_NOT, replaced, text_of
from pipeline.lock_text import only, with_entry


class WholeFiles(LocalFileSystem):  # type: ignore[misc]
    """The local file system, but DVC's lock files are never there in part: a kill leaves the old or the new.

    `stage` is the one stage that DVC runs, whose entry is all that it sees of dvc.lock; None if it needs others.
    """

    stage: str | None = None

    def open(self, path: str, mode: str = "r", **options: Any) -> Any:
        here = Path(path)
        entry = self._entry(here)
        if mode in ("w", "w+") and here.name in WHOLE_OR_NOT:
            if entry is not None and self.stage is not None:
                return merged(here, self.stage)
            return replaced(here, synced=here.name == LOCK.name)  # no process of an rwlock outlives a power cut
        if mode == "r" and entry is not None:
            return StringIO(entry)
        return super().open(path, mode, **options)

    def _entry(self, path: Path) -> str | None:
        """What is shown of this file; None if all of it is."""
        if self.stage is None or path.name != LOCK.name or path.absolute() != LOCK.absolute() or not path.exists():
            return None
        return only(text_of(path), self.stage)


@contextmanager
def merged(path: Path, stage: str) -> Iterator[IO[str]]:
    """A dvc.lock to write of which one stage is taken; all others stay as they are in the file then."""
    written = StringIO()
    yield written
    text = with_entry(text_of(path), stage, written.getvalue())
    with replaced(path) as file:
        file.write(text)
