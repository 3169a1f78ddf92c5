"""What functions take, as their executors told it, kept by content: nothing is started only to ask again."""

import json
import time
from typing import Any

from stages.common.paths import REWARD_CACHE
from stages.score.calling.cache import key_of, publish

About = dict[str, Any]  # of these fields
FIELDS = frozenset({"parameters", "required", "takes_all", "rows_per_call", "has_check", "has_needs"})


def known(spec: str, identity: dict[str, str], younger_than: float | None = None) -> About | None:
    """None if it was never asked, or not within so many seconds."""
    path = _path(spec, identity)
    try:
        if younger_than is not None and time.time() - path.stat().st_mtime > younger_than:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() == FIELDS else None


def keep(spec: str, identity: dict[str, str], about: About) -> None:
    publish(_path(spec, identity), about)


def _path(spec: str, identity: dict[str, str]) -> Any:
    return REWARD_CACHE / "signatures" / f"{key_of(spec=spec, identity=identity)}.json"
