"""The modules that a module imports, and those that they import: read from their text, without importing anything.

What lies outside Python and its installed packages is given by content. It is followed within `roots` (the project and
the folder of the file that is asked about); of a package elsewhere, such as one that is installed as editable, all
Python files are taken as they are. Installed packages are given by name. An import that is made up while the program
runs (`importlib.import_module(name)`) is not seen.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Module:
    """A file, and where modules below it are looked for: nowhere, if it is no package. A namespace has no file."""

    file: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def is_installed(self) -> bool:
        return any(INSTALLED & set(place.parts) for place in (self.file, *self.folders) if place is not None)


@dataclass
class Closure:
    """`files` by the names of their modules; `packages`: top-level modules that are installed."""

    path: list[Path]
    roots: list[Path]
    files: dict[str, Path] = field(default_factory=dict)
    packages: dict[str, Module] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """A module by its dotted name, with the packages above it and all that they import; a name that is none, such
        as that of a function, ends the search.
        """
        top, *below = name.split(".")
        module = top_module(top, self.path)
        if module is None:
            return
        if module.is_installed:
            self.packages[top] = module
            return
        self.take(top, module)
        for part in below:
            top, module = f"{top}.{part}", module_in(part, module.folders)
            if module is None:
                return
            self.take(top, module)

    def take(self, name: str, module: Module) -> None:
        """A module's file, and what it imports."""
        if module.file is None or name in self.files:
            return
        self.files[name] = module.file
        if module.file.suffix != ".py":
            return
        if module.folders and not any(module.file.resolve().is_relative_to(root) for root in self.roots):
            self.files |= {f"{name}/{file.relative_to(module.file.parent)}": file for file in python_below(module)}
            return
        package = name if module.folders else name.rpartition(".")[0]
        for imported in imports_of(module.file.read_bytes()):
            for wanted in absolute(imported, package):
                self.add(wanted)


def search_path() -> list[Path]:
    """Where this process imports from; the empty entry is the working folder."""
    return [Path(entry).absolute() for entry in sys.path]


def top_module(name: str, path: list[Path]) -> Module | None:
    """None: a module of Python, or none at all."""
    if name in sys.stdlib_module_names:
        return module_in(name, path[:1]) if path[:1] != search_path()[:1] else None
    found = module_in(name, path)
    if found is not None and found.file is not None:
        return found
    try:
        spec = find_spec(name)  # installed as editable: known to a finder of its own
    except (ImportError, ValueError, AttributeError):
        return found
    if spec is None or spec.origin in ("built-in", "frozen"):
        return found
    folders = tuple(map(Path, spec.submodule_search_locations or ()))
    return Module(Path(spec.origin) if spec.origin is not None else None, folders)


def module_in(name: str, folders: list[Path] | tuple[Path, ...]) -> Module | None:
    """As Python looks for it: the first package or file wins; folders without an `__init__.py` are one namespace."""
    portions: list[Path] = []
    for folder in folders:
        inner = folder / name
        if (inner / "__init__.py").is_file():
            return Module(inner / "__init__.py", (inner,))
        for suffix in (*EXTENSION_SUFFIXES, ".py"):
            if (file := folder / f"{name}{suffix}").is_file():
                return Module(file)
        if inner.is_dir():
            portions.append(inner)
    return Module(None, tuple(portions)) if portions else None


def python_below(module: Module) -> list[Path]:
    """All Python files of a package but those of hidden folders."""
    found: list[Path] = []
    for folder in module.folders:
        files = folder.rglob("*.py")
        found += [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    return sorted(found)


@lru_cache(maxsize=4096)
def imports_of(source: bytes) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """Level, module and names of each import, those within functions too; none if it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: dict[tuple[int, str, tuple[str, ...]], None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name, ()): None for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found[node.level, node.module or "", tuple(alias.name for alias in node.names)] = None
    return tuple(found)


def absolute(imported: tuple[int, str, tuple[str, ...]], package: str) -> Iterator[str]:
    """The dotted names that an import in a module of `package` may mean."""
    level, module, names = imported
    parts = package.split(".") if package else []
    if level > len(parts):
        return
    base = ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])]) if level else module
    yield base
    yield from (f"{base}.{name}" for name in names if name != "*")
