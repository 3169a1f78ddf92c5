"""The file system that DVC is given here: its lock files are whole at any moment, and what it reads is short.

DVC parses all of dvc.lock to read the entry of one stage, and parses and writes it all to change one; it parses
dvc.yaml once and params.yaml several times for each stage. Where it runs one stage, it is shown that stage's entry and
what it needs of the other two. What it writes to dvc.lock is put in the place of the entry: the time that a stage takes
does not grow with the stages beside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import IO, Any

from dvc.fs import LocalFileSystem

from pipeline.dvc_files import LOCK, WHOLE_OR_NOT, replaced, text_of
from pipeline.lock_text import only, with_entry
from pipeline.yaml_cut import PARAMS, one_stage, some_params

DAG = Path("dvc.yaml")
SHORTENED = frozenset({LOCK.name, DAG.name, PARAMS})


class WholeFiles(LocalFileSystem):  # type: ignore[misc]
    """The local file system, but DVC's lock files are never there in part: a kill leaves the old or the new.

    `stage` is the one stage that DVC runs, and all that it sees of the three files; None if it needs others.
    """

    stage: str | None = None

    def open(self, path: str, mode: str = "r", **options: Any) -> Any:
        here = Path(path)
        shown = shown_of(here, self.stage) if self.stage is not None else None
        if mode in ("w", "w+") and here.name in WHOLE_OR_NOT:
            if shown is not None and self.stage is not None:
                return merged(here, self.stage)
            return replaced(here, synced=here.name == LOCK.name)  # no process of an rwlock outlives a power cut
        return StringIO(shown) if mode == "r" and shown is not None else super().open(path, mode, **options)


def shown_of(path: Path, stage: str) -> str | None:
    """What the one stage needs of this file; None if that is all of it, or cannot be told."""
    if path.name not in SHORTENED or path.absolute() != Path(path.name).absolute() or not path.exists():
        return None
    if path.name == LOCK.name:
        return only(text_of(path), stage)
    dvc_yaml = one_stage(text_of(DAG), stage)
    return some_params(text_of(path), dvc_yaml) if dvc_yaml and path.name == PARAMS else dvc_yaml


@contextmanager
def merged(path: Path, stage: str) -> Iterator[IO[str]]:
    """A dvc.lock to write of which one stage is taken; all others stay as they are in the file then."""
    written = StringIO()
    yield written
    text = with_entry(text_of(path), stage, written.getvalue())
    with replaced(path) as file:
        file.write(text)
