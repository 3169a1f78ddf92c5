"""Which code a reward function is, by content: cached results belong to it, and scores are made again when it changes.

`file.py:name` is the file and the Python files beside it, which it may import. `module:name` is the module's top-level
package in this project (of `stages` the room), or the version of the installed distribution that brings it. Nothing is
imported to find out.
"""

import hashlib
from functools import lru_cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from stages.common.errors import StageError


class CodeError(StageError):
    """A function whose code is not there; the message names it, without the option that asked for it."""


def code_identity(spec: str) -> dict[str, str]:
    """{"code": where it lies, "sha256": ...} or {"code": ..., "version": ...}; a CodeError if it is missing."""
    place, _, _ = spec.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise CodeError(f"{place}: no such file; paths are relative to the project's folder")
        return {"code": place, "sha256": hash_of(sorted(path.parent.glob("*.py")), path.parent)}
    return _module(place)


def hash_of(files: list[Path], root: Path) -> str:
    """Over the names and contents of files."""
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(root)}\0{content}\0".encode())
    return digest.hexdigest()


def _module(name: str) -> dict[str, str]:
    parts = name.split(".")
    top = ".".join(parts[:2]) if parts[0] == "stages" else parts[0]  # of this project's stages the room is enough
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        raise CodeError(f"no module {top!r} here; give an importable module:function, or path/to/file.py:function")
    file = Path(spec.origin or next(iter(spec.submodule_search_locations or ["/"]))).resolve()
    project = Path("stages").resolve().parent  # also from a folder whose `stages` is a link to the project's
    if "site-packages" not in file.parts and file.is_relative_to(project):
        folder = file if file.is_dir() else file.parent
        package = file.is_dir() or file.name == "__init__.py"
        return {"code": top, "sha256": hash_of(sorted(folder.rglob("*.py")) if package else [file], folder)}
    return {"code": top, "version": _version(top)}


@lru_cache
def _version(top: str) -> str:
    distributions = packages_distributions().get(top)
    return version(distributions[0]) if distributions else "none"
