"""Posting JSON to a server that may be busy or lost for a moment.

Tried again, after a pause, where trying again can help: without a connection or an answer in time, and on the status
429 or 5xx. Any other status is the answer. A deadline ends all of that. httpx is imported when it is used: reward
functions use this, and their modules import nothing heavy.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from stages.common.errors import TransientError

if TYPE_CHECKING:
    import httpx

PAUSES = (1.0, 4.0, 16.0)  # seconds before the second try, the third, and those after it
SPARE_SECONDS = 2.0  # over a deadline: importing the client, and ending what is under way


NO_ANSWER = ": no answer "  # what such a message says, and nothing else does: between processes only texts are passed


class ServerLostError(TransientError):
    """No try had an answer; the message says what the last one met."""


def tells_of_lost_server(message: str | None) -> bool:
    """Whether it is the message of a ServerLostError, which has come as a text."""
    return message is not None and NO_ANSWER in message


def bearer(variable: str | None, option: str) -> dict[str, str]:
    """The header with the key in the environment variable, whose name alone is in params.yaml; none for null."""
    if variable is None:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise ValueError(f"{option}: the environment has no {variable}")
    return {"Authorization": f"Bearer {key}"}


def check_deadlines(function: str, timeout_seconds: Any, deadline_seconds: Any, row_deadline_seconds: Any) -> None:
    """A ValueError for what is no number of seconds."""
    given = {
        "timeout_seconds": timeout_seconds,
        "deadline_seconds": deadline_seconds,
        "row_deadline_seconds": row_deadline_seconds,
    }
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ValueError(f"{function}: {name} ({value!r}) has to be a number over 0")


def seconds_needed(deadline_seconds: float, row_deadline_seconds: float) -> dict[str, float]:
    """What the limits of a reward have to leave for calls with these deadlines."""
    return {"row": row_deadline_seconds + SPARE_SECONDS, "batch": deadline_seconds + SPARE_SECONDS}


@asynccontextmanager
async def within(end: float, url: str) -> AsyncIterator[None]:
    """What is done inside ends when the loop's clock says `end`, with a ServerLostError."""
    try:
        async with asyncio.timeout_at(end):
            yield
    except TimeoutError:
        raise ServerLostError(f"{url}{NO_ANSWER}before the deadline of the call") from None


def pauses(tries: int) -> Iterator[float]:
    """Seconds before each try."""
    yield from ([0.0, *PAUSES, *[PAUSES[-1]] * tries])[:tries]


def tried_again(status: int) -> bool:
    """Whether another try may help."""
    return status >= 500 or status == 429


async def post(client: "httpx.AsyncClient", url: str, body: Mapping[str, Any], tries: int) -> "httpx.Response":
    """The server's answer, whatever its status; a ServerLostError if none came after `tries` tries."""
    import httpx

    met = ""
    for pause in pauses(tries):
        await asyncio.sleep(pause)
        try:
            response = await client.post(url, json=body)
        except httpx.RequestError as error:
            met = f"{type(error).__name__}: {error}"
            continue
        if not tried_again(response.status_code):
            return response
        met = f"status {response.status_code}: {response.text[:200]}"
    raise ServerLostError(f"{url}{NO_ANSWER}in {tries} tries; the last: {met}")
