"""JSON files that a stage may or may not have written."""

import json
from pathlib import Path
from typing import Any

from stages.common.errors import StageError


def read_json(path: Path, remedy: str = "delete it, and run its stage again") -> dict[str, Any]:
    """Its contents, {} if it is not there; a StageError with the remedy if it is no JSON."""
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StageError(f"{path}: cannot be read as JSON: {error}; {remedy}") from None
    return found
