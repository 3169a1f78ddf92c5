"""A folder of its own for a run of the ordinary stages: same code, same tables, away from the project's data.

What several runs share is there by hard links. The stages find everything relative to the working folder.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from stages.common.files import link_file
from stages.common.journal import Journal
from stages.common.params import Params
from stages.entry import WITHOUT_MODELS, models_of


@contextmanager
def inside(folder: Path, shared: Mapping[Path, Path]) -> Iterator[None]:
    """Work in `folder` for the duration of the block; `shared` are files and folders to have there, by place."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, source in shared.items():
        link(source, folder / place)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def link(source: Path, target: Path) -> None:
    """The same file, or all files of a folder, once more; what is there already stays."""
    files = [source] if source.is_file() else [path for path in sorted(source.rglob("*")) if path.is_file()]
    for file in files:
        place = target if source.is_file() else target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            link_file(file.resolve(), place)


def run(stage: str, name: str, params: Params) -> float:
    """One stage in the working folder; returns its seconds."""
    journal = Journal(stage, name)
    room = import_module(f"stages.{stage}.run")
    if stage in WITHOUT_MODELS:
        room.run(name, params, journal)
    else:
        room.run(name, params, models_of(params.compute), journal)
    return journal.seconds
