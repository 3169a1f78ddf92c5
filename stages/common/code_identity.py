"""Which code a reward function is, by content: cached results belong to it, and scores are made again when it changes.

`file.py:name` is the file, the Python files beside it, and what it imports. `module:name` is the module's top-level
package and what the module imports; of `stages` the room and what the module imports; of an installed package it is the
version. Imports are followed through the text of modules (`imports.py`): those of the project and of other places
outside the installed packages count by content, installed packages by version. Nothing is imported to find out.
"""

import hashlib
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from stages.common.distributions import version_behind, versions_behind
from stages.common.errors import StageError
from stages.common.imports import Closure, Module, python_below, search_path, top_module


class CodeError(StageError):
    """A function whose code is not there; the message names it, without the option that asked for it."""


def code_identity(spec: str) -> dict[str, str]:
    """{"code": where it lies, "sha256": ...}, with "packages" if it imports any, or {"code": ..., "version": ...}; a
    CodeError if it is missing.
    """
    place, _, _ = spec.rpartition(":")
    return _file(place) if place.endswith(".py") else _module(place)


def _file(place: str) -> dict[str, str]:
    path = Path(place)
    if not path.is_file():
        raise CodeError(f"{place}: no such file; paths are relative to the project's folder")
    path = path.resolve()
    closure = Closure([path.parent, *search_path()], [_project(), path.parent])
    closure.take(path.stem, Module(path))
    beside = {f"./{file.name}": file for file in path.parent.glob("*.py")}
    return {"code": place, **_content(closure, beside)}


def _module(name: str) -> dict[str, str]:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return {"code": top, "version": f"Python {platform.python_version()}"}
    module = top_module(top, search_path())
    if module is None:
        raise CodeError(f"no module {top!r} here; give an importable module:function, or path/to/file.py:function")
    version = version_behind(top) if module.is_installed else None
    if version is not None:
        return {"code": top, "version": version}
    closure = Closure(search_path(), [_project(), *(folder.resolve().parent for folder in module.folders)])
    closure.add(name)
    if top == "stages":  # of this project's stages the room is enough; some of its files are run, not imported
        room = ".".join(name.split(".")[:2])
        files = [file for folder in module.folders for file in (folder / room.partition(".")[2]).glob("*.py")]
        return {"code": room, **_content(closure, {f"{room}/{file.name}": file for file in files})}
    own = {f"{top}/{_below(file, module)}": file for file in python_below(module)}
    return {"code": top, **_content(closure, own)}


def _project() -> Path:
    return Path("stages").resolve().parent  # also from a folder whose `stages` is a link to the project's


def _below(file: Path, module: Module) -> str:
    return next(str(file.relative_to(folder)) for folder in module.folders if file.is_relative_to(folder))


def _content(closure: Closure, others: Mapping[str, Path]) -> dict[str, str]:
    """The hash of all files, and the versions of the packages."""
    files, versions = {**closure.files, **others}, set[str]()
    for top, module in closure.packages.items():
        brought = versions_behind(top)
        versions |= set(brought)
        if not brought:  # it was put among the packages by hand
            files |= {f"{top}/{file.name}": file for file in (*python_below(module), module.file) if file is not None}
    return {"sha256": hash_of(files)} | ({"packages": ", ".join(sorted(versions))} if versions else {})


def hash_of(files: Mapping[str, Path]) -> str:
    """Over the names and contents of files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        content = hashlib.sha256(files[name].read_bytes()).hexdigest()
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()
