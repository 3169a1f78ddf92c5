"""Values as short texts. `z` in a format: what is rounded to zero has no sign."""

from typing import Any


def text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:z.3f}" if isinstance(value, float) else str(value)
