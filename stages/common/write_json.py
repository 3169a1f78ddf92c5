"""JSON files with sorted keys: the same content gives the same bytes."""

import json
from pathlib import Path
from typing import Any


def write_json(content: dict[str, Any], path: Path) -> None:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
