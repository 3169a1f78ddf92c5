"""Manifests for files that a test has made by hand, so that stages take them for finished."""

import os
from pathlib import Path

from stages.common.manifest import write_manifest
from stages.common.record import recording


def finish(project: Path, stage: str, name: str, *made: Path) -> None:
    """Say in the project's folder that the stage has made these files and folders (paths relative to it)."""
    before = Path.cwd()
    os.chdir(project)
    try:
        with recording(stage, name) as record:
            record.written.extend(made)
            write_manifest(record)
    finally:
        os.chdir(before)
