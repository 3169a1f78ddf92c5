"""Posting JSON to a server that may be busy or lost for a moment.

Tried again, after a pause, where trying again can help: without a connection or an answer in time, and on the status
429 or 5xx. Any other status is the answer. httpx is imported when it is used: reward functions use this, and their
modules import nothing heavy.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.common.errors import StageError

if TYPE_CHECKING:
    import httpx

PAUSES = (1.0, 4.0, 16.0)  # seconds before the second try, the third, and those after it


class ServerLostError(StageError):
    """No try had an answer; the message says what the last one met."""


def bearer(variable: str | None, option: str) -> dict[str, str]:
    """The header with the key in the environment variable, whose name alone is in params.yaml; none for null."""
    if variable is None:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise ValueError(f"{option}: the environment has no {variable}")
    return {"Authorization": f"Bearer {key}"}


async def post(client: "httpx.AsyncClient", url: str, body: Mapping[str, Any], tries: int) -> "httpx.Response":
    """The server's answer, whatever its status; a ServerLostError if none came after `tries` tries."""
    import httpx

    met = ""
    for attempt in range(tries):
        if attempt:
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES)) - 1])
        try:
            response = await client.post(url, json=body)
        except httpx.TransportError as error:
            met = f"{type(error).__name__}: {error}"
            continue
        if response.status_code < 500 and response.status_code != 429:
            return response
        met = f"status {response.status_code}: {response.text[:200]}"
    raise ServerLostError(f"{url}: no answer in {tries} tries; the last: {met}")
