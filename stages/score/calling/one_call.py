"""One call: its rows together, and one by one if that fails.

A call of several rows that raises, hangs, dies or takes too much memory says nothing about which row it was. Its rows
are then called on their own, each with `limits.row_seconds`.

Nothing that was paid for is paid for again. A finished call is kept whole. Of one that was not (it failed, or some of
its rows did) the good rows are kept singly, with a mark that it was tried: when it comes again, rows that are known
singly are taken, and the others alone are called. Without that mark rows are not put together from single ones, as what
a function says of a batch may differ from what it says of its rows.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from stages.score.calling import cache
from stages.score.calling.cache import NotCacheableError, Row
from stages.score.calling.inputs import Inputs, key_of_row, part_of
from stages.score.calling.session import Failure, Session


@dataclass(frozen=True)
class Call:
    """Rows, by their places in the inputs, that are called together."""

    session: Session
    inputs: Inputs
    places: list[int]

    def of(self, places: list[int]) -> "Call":
        return Call(self.session, self.inputs, places)


def one_call(call: Call) -> Iterator[Row | Failure]:
    """What became of its rows, in their order."""
    key = key_of_call(call)
    known = None if key is None else cache.read(key, len(call.places))
    if known is None:
        yield from _not_known(call, key)
    else:
        yield from known


def _not_known(call: Call, key: str | None) -> Iterator[Row | Failure]:
    several = len(call.places) > 1
    rows: dict[int, Row | Failure] = {}
    if several and key is not None and cache.was_tried(key):
        rows = {place: row for place in call.places if (row := kept_single(call, place)) is not None}
    rows |= _together(call, [place for place in call.places if place not in rows])
    tried = several and not all(_lasts(rows.get(place)) for place in call.places)
    if tried and key is not None:
        _keep_good(call, key, rows)
    for place in call.places:
        if place not in rows:
            rows[place] = single(call, place)
        yield rows[place]
    whole = [row for row in map(rows.__getitem__, call.places) if not isinstance(row, Failure)]
    if key is not None and len(whole) == len(call.places):
        cache.write(key, whole)


def _together(call: Call, places: list[int]) -> dict[int, Row | Failure]:
    """The rows of one call; none if it fails as a whole and there are several, which are then to be called singly."""
    if not places:
        return {}
    made = make(call.of(places))
    if not isinstance(made, Failure):
        return dict(zip(places, made, strict=True))
    return {places[0]: made} if len(places) == 1 else {}


def _keep_good(call: Call, key: str, rows: dict[int, Row | Failure]) -> None:
    """Before anything else is called: the run may be killed."""
    for place, row in rows.items():
        own = key_of_call(call.of([place]))
        if own is not None and not isinstance(row, Failure) and cache.read(own, 1) is None:
            cache.write(own, [row])
    cache.mark_tried(key)


def _lasts(row: Row | Failure | None) -> bool:
    return row is not None and not isinstance(row, Failure) and row[1] in cache.LASTING


def single(call: Call, place: int) -> Row | Failure:
    """One row on its own: as it is known, or called, and kept."""
    own = call.of([place])
    known = kept_single(call, place)
    if known is not None:
        return known
    made = make(own)
    if isinstance(made, Failure):
        return made
    if (key := key_of_call(own)) is not None:
        cache.write(key, made)
    return made[0]


def kept_single(call: Call, place: int) -> Row | None:
    key = key_of_call(call.of([place]))
    known = None if key is None else cache.read(key, 1)
    return None if known is None else known[0]


def make(call: Call) -> list[Row] | Failure:
    """Called now."""
    count, row = len(call.places), key_of_row(call.inputs, call.places[0])
    title = f"{count} rows from {row}" if count > 1 else row
    seconds = call.session.seconds_for(count)
    return call.session.call(part_of(call.inputs, call.places), count, seconds, title)


def key_of_call(call: Call) -> str | None:
    """None: this call is not kept."""
    function = call.session.function
    if not function.cache:
        return None
    with suppress(NotCacheableError):
        return cache.key_of(
            spec=function.spec,
            code=call.session.identity,
            kind=function.kind,
            arguments=dict(function.arguments),
            inputs=part_of(call.inputs, call.places),
        )
    return None
