"""Files of windows: written beside their place and renamed, so that each is whole at any time."""

import json
import os
import shutil
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path

from pipeline.dvc_files import replaced
from stages.common import paths
from stages.common.disk import telling
from stages.common.durable import sync

SCRATCH, REPLACED = ".partial", ".replaced"  # in pipeline/windows: on the file system of the windows' folders


def folder_of(window: str) -> Path:
    return paths.WINDOWS / window


def saved_plan(window: str) -> Path:
    return folder_of(window) / "plan.yaml"


def saved_lock(window: str) -> Path:
    return folder_of(window) / "dvc.lock"


def end_file(window: str) -> Path:
    """What the next window starts from: path -> {md5, size, nfiles}, as in dvc.lock."""
    return folder_of(window) / "end.json"


def made_of_file(window: str) -> Path:
    """What the window was made of: as long as that is what there is now, the window is up to date."""
    return folder_of(window) / "made_of.json"


def replace_text(path: Path, text: str) -> None:
    """Write a file of the project's folder by rename."""
    with replaced(path) as file:
        file.write(text)


def replace_folder(folder: Path, content: Mapping[str, str]) -> None:
    """A folder of text files, whole. While it takes the place of an older one there is none for a moment: it is the
    open window's, whose plan and lock are those of the project then, so that nothing is lost.
    """
    with telling(folder):
        _replace_folder(folder, content)


def _replace_folder(folder: Path, content: Mapping[str, str]) -> None:
    scratch, old = folder.parent / SCRATCH, folder.parent / REPLACED
    for left in (scratch, old):
        shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir(parents=True)
    for name, text in content.items():
        (scratch / name).write_text(text, encoding="utf-8")
        sync(scratch / name)
    sync(scratch)
    if folder.exists():
        os.replace(folder, old)
    os.replace(scratch, folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def content_md5(path: Path) -> str:
    """Of a file or a folder, as DVC has it: a folder's is that of the list of its files, and ends with `.dir`."""
    if not path.is_dir():
        return _file_md5(path)
    files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    listed = [{"md5": _file_md5(file), "relpath": name} for name, file in files]
    return md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _file_md5(path: Path) -> str:
    digest = md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()
