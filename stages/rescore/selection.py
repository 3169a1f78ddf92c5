"""Which iterations are scored anew, and the name that their tables get."""

import re
from collections.abc import Sequence

from stages.common import paths
from stages.common.errors import StageError
from stages.common.paths import is_iteration, iteration_name, iteration_number

OPTION = "--iterations"
OWN = "scores"  # the run's own tables, in `rloo diff`


def check_name(name: str) -> None:
    """Refuse a name that is no folder's, or that stands for something else in `rloo diff`."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise StageError(f"NAME {name!r}: names begin with a letter and are letters, digits, - and _")
    if name == OWN:
        raise StageError(f"NAME {name!r} stands for the run's own tables; choose another")
    if is_iteration(name):
        raise StageError(f"NAME {name!r} is the name of an iteration; choose another, and give iterations by {OPTION}")


def select(text: str, known: Sequence[str]) -> list[str]:
    """Iterations in order: of `all`, those with rollouts; of `i0001,i0003-i0005` exactly these. `known`: the plan's."""
    if text == "all":
        return _with_rollouts(known)
    numbers = {number for part in text.split(",") for number in _numbers(part.strip())}
    chosen = [iteration_name(number) for number in sorted(numbers)]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise StageError(f"{OPTION} {text}: no iteration {', '.join(unknown)}; the plan has {known[0]} to {known[-1]}")
    for name in chosen:
        if not paths.rollouts(name).exists():
            raise StageError(f"{OPTION} {text}: {paths.rollouts(name)} does not exist; `rloo train` makes it")
    return chosen


def _with_rollouts(known: Sequence[str]) -> list[str]:
    found = [name for name in known if paths.rollouts(name).exists()]
    if not found:
        raise StageError(
            f"{paths.rollouts(known[0])} does not exist, nor rollouts of another iteration; `rloo train` makes them"
        )
    return found


def _numbers(part: str) -> range:
    """`i0003`, or both ends of `i0001-i0006` and what lies between."""
    first, dash, last = part.partition("-")
    try:
        low = iteration_number(first.strip())
        high = iteration_number(last.strip()) if dash else low
    except StageError as error:
        raise StageError(f"{OPTION} {part!r}: {error}; or give `all`") from None
    if high < low:
        raise StageError(f"{OPTION} {part!r}: the first comes before the last: {last.strip()}-{first.strip()}")
    return range(low, high + 1)
