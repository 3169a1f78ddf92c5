"""Too many rows that could not be scored stop the stage: `score.max_failed`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stages.common.post import tells_of_lost_server
from stages.score.calling.cache import Row
from stages.score.calling.inputs import key_of_row
from stages.score.calling.worker import RewardError, RewardLostError

FAILED = ("invalid", "timeout", "error")


def failed(rows: Sequence[Row]) -> list[int]:
    """Places of the rows that should have had a score; those that a function does not apply to are none of them."""
    return [place for place, row in enumerate(rows) if row[1] in FAILED]


def error_of(rows: Sequence[Row]) -> type[RewardError]:
    """What is raised for these rows: transient if every failure among them is a server that did not answer."""
    lost = all(tells_of_lost_server(rows[place][2]) for place in failed(rows))
    return RewardLostError if lost else RewardError


def check_failed(
    told: str,
    log: str | None,
    rows: Sequence[Row],
    inputs: dict[str, list[Any]],
    max_failed: float | None,
    count: int,
    limits: Sequence[str] = (),
) -> None:
    """A RewardError if more than the share `max_failed` of `count` rows has failed; `rows` may be the first of them.
    `limits`: the options of those that were too low.
    """
    places = failed(rows)
    if max_failed is None or len(places) <= max_failed * count:
        return
    counts = Counter(rows[place][1] for place in places)
    by_status = ", ".join(f"{counts[status]} {status}" for status in FAILED if counts[status])
    so_far = "" if len(rows) == count else f" after the first {len(rows)}"
    where = "" if log is None else f" What it printed is in {log}."
    first = f"the first is {key_of_row(inputs, places[0])}: {rows[places[0]][2]}"
    options = f" ({', '.join(limits)})" if limits else ""
    raise error_of(rows)(
        f"{told}: {len(places)} of {count} rows could not be scored{so_far} ({by_status}), more than score.max_failed "
        f"= {max_failed:g} allows; {first}.{where} Mend the reward or its limits{options}, or raise score.max_failed"
    )
