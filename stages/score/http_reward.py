"""Rewards of a server: rows are posted to it, one number for each comes back.

    server:
      function: stages.score.http_reward:http_reward
      arguments: {url: "http://127.0.0.1:8000/score", key_variable: REWARD_KEY}

    POST url   {"rows": [{"prompt": ..., "completion": "...", "completion_ids": [...], <columns>}, ...]}
    answer     {"rewards": [0.5, null, ...]}     one per row, in order; null: does not apply

`batch_rows` rows are sent at once, one request after the other. The key is read from the environment variable
`key_variable` and sent as a bearer token. Requests are tried again as stages/common/post.py says, until the call's
`deadline_seconds` are over, or `row_deadline_seconds` if it has one row; the reward's `limits` have to lie above them.

A server that is lost, an error status, or an answer of another form fails the whole call with a message that says what
came back. A number that is too large for a reward makes its row unscorable. Rows are never 0 for that.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from stages.common.post import bearer, check_deadlines, post, seconds_needed, within
from stages.score.columns import Scored
from stages.score.outcome import Unscorable
from stages.score.texts import text_of


def check(
    url: str,
    key_variable: str | None = None,
    batch_rows: int = 64,
    timeout_seconds: float = 20.0,
    tries: int = 3,
    deadline_seconds: float = 50.0,
    row_deadline_seconds: float = 8.0,
) -> None:
    """Refuse wrong arguments, and a key that is not there, before anything is sampled."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError(f"http_reward: url is an http(s) address, not {url!r}")
    for name, value in (("batch_rows", batch_rows), ("tries", tries)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"http_reward: {name} ({value!r}) has to be a whole number of at least 1")
    check_deadlines("http_reward", timeout_seconds, deadline_seconds, row_deadline_seconds)
    bearer(key_variable, "http_reward: key_variable")


async def http_reward(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    url: str,
    key_variable: str | None = None,
    batch_rows: int = 64,
    timeout_seconds: float = 20.0,
    tries: int = 3,
    deadline_seconds: float = 50.0,
    row_deadline_seconds: float = 8.0,
    **columns: Any,
) -> Scored:
    """The server's rewards, one per completion. Without an answer a ServerLostError, for another form a ValueError."""
    import httpx

    texts = [text_of(completion) for completion in completions]
    rows = [
        {"prompt": prompt, "completion": text} | {name: values[i] for name, values in columns.items()}
        for i, (prompt, text) in enumerate(zip(prompts, texts, strict=True))
    ]
    _sendable(rows)
    rewards: Scored = []
    headers = bearer(key_variable, "http_reward: key_variable")
    end = asyncio.get_running_loop().time() + (deadline_seconds if len(rows) > 1 else row_deadline_seconds)
    async with httpx.AsyncClient(headers=headers, timeout=timeout_seconds) as client, within(end, url):
        for start in range(0, len(rows), batch_rows):
            batch = rows[start : start + batch_rows]
            rewards += read(await post(client, url, {"rows": batch}, tries), len(batch), url)
    return rewards


def _sendable(rows: list[dict[str, Any]]) -> None:
    """Refuse what JSON cannot hold, by the name of its column."""
    for row in rows:
        for name, value in row.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError(f"http_reward: column {name!r} cannot be sent as JSON: {error}") from None


def read(response: Any, count: int, url: str) -> Scored:
    """The rewards in the answer; a ValueError that says what came back instead."""
    came = f"status {response.status_code}, {response.text[:200]!r}"
    if response.status_code != 200:
        raise ValueError(f"http_reward: {url} refused the rows: {came}")
    try:
        answer = json.loads(response.text, parse_int=lambda text: _number(text, int), parse_float=_number)
    except ValueError:
        raise ValueError(f"http_reward: {url} did not answer in JSON: {came}") from None
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    if not isinstance(rewards, list) or not all(_is_reward(one) for one in rewards):
        raise ValueError(f'http_reward: {url} has to answer {{"rewards": [number or null, ...]}}, and said: {came}')
    if len(rewards) != count:
        raise ValueError(f"http_reward: {url} gave {len(rewards)} rewards for {count} rows: {came}")
    return rewards


def _number(text: str, kind: Callable[[str], float] = float) -> float | Unscorable:
    return kind(text) if math.isfinite(float(text)) else Unscorable(f"the server's reward is too large: {text[:40]}")


def _is_reward(value: Any) -> bool:
    if value is None or isinstance(value, Unscorable):
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def needs_seconds(deadline_seconds: float = 50.0, row_deadline_seconds: float = 8.0, **others: Any) -> dict[str, float]:
    """What `limits` have to leave at least."""
    return seconds_needed(deadline_seconds, row_deadline_seconds)


http_reward.needs_seconds = needs_seconds  # type: ignore[attr-defined]
http_reward.check = check  # type: ignore[attr-defined]
http_reward.rows_per_call = 64  # type: ignore[attr-defined]
