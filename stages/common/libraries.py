"""Modules that bring torch or transformers along: they take seconds to import, and may not be installed whole."""

import sys
from importlib import import_module
from types import ModuleType

from stages.common.errors import StageError
from stages.common.journal import Journal


class LibraryError(StageError):
    """A library that a stage needs and that cannot be imported."""


def imported(module: str, journal: Journal) -> ModuleType:
    """The module; the journal says so while it is loaded. A LibraryError if what it imports is missing or broken."""
    if module in sys.modules:
        return sys.modules[module]
    try:
        with journal.loading():
            return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a shared library that is not there
        raise LibraryError(
            f"{module} cannot be imported: {type(error).__name__}: {error}; `make setup` installs what is missing, and "
            f'`python -c "import {module}"` shows where it fails'
        ) from error
