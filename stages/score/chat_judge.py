r"""A judge behind an OpenAI-compatible endpoint grades each completion.

    judge:
      function: stages.score.chat_judge:chat_judge
      arguments:
        base_url: https://api.example.org/v1
        model: some-model
        key_variable: JUDGE_KEY
        template: |
          Question: {prompt}
          Answer: {completion}
          How good is the answer, from 0 to 10? End with a line `Score: N`.

The reward is the score divided by `maximum`. `template` may name every column; `{{` and `}}` are braces. The score is
the last match of `pattern`, whose one group is a number; by default the last number, of which `/10` or `out of 10` may
follow. `parallel` requests are under way at once. The key is read from the environment variable `key_variable`.

A call ends within `deadline_seconds`, or `row_deadline_seconds` if it has one row, whatever the server does: a request
that hangs costs its own row. Both lie below the reward's `limits`, which would lose all rows of the call. What is
answered is kept at the end of each call of `rows_per_call` rows: a run that breaks off asks again for the rows of the
call it was in, and for rows without an answer. A server may bill a request whose answer came too late.

    no score in the judge's answer, one outside [0, maximum], an answer that was cut off     row unscorable, kept
    any status but 200, no chat completion, no answer in time, a server that is lost         row unscorable, not kept
    no row of the call got an answer                                                         the call raises

Nothing is sent anywhere but to `base_url`.
"""

import asyncio
import re
import string
from collections.abc import Sequence
from typing import Any

from stages.common.errors import StageError
from stages.common.post import ServerLostError, bearer, check_deadlines, post, seconds_needed, within
from stages.score.columns import Scored
from stages.score.outcome import Unscorable
from stages.score.texts import prompt_text, text_of

GIVEN = {"prompt", "completion", "prompts", "completions", "completion_ids"}  # there whatever the prompts' columns are
NUMBER = r"(?<![\w.])(-?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*\d+)?"


def check(
    base_url: str,
    model: str,
    template: str,
    key_variable: str | None = None,
    pattern: str = NUMBER,
    maximum: float = 10.0,
    parallel: int = 16,
    timeout_seconds: float = 20.0,
    tries: int = 3,
    max_tokens: int = 512,
    deadline_seconds: float = 50.0,
    row_deadline_seconds: float = 8.0,
) -> None:
    """Refuse wrong arguments, and a key that is not there, before anything is sampled."""
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise ValueError(f"chat_judge: base_url is an http(s) address, not {base_url!r}")
    if not isinstance(model, str) or not model:
        raise ValueError(f"chat_judge: model is a name, not {model!r}")
    if "completion" not in fields_of(template):
        raise ValueError("chat_judge: the template has no {completion}: the judge would not see what it grades")
    for name, value in (("parallel", parallel), ("tries", tries), ("max_tokens", max_tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"chat_judge: {name} ({value!r}) has to be a whole number of at least 1")
    if isinstance(maximum, bool) or not isinstance(maximum, (int, float)) or not 0 < maximum < float("inf"):
        raise ValueError(f"chat_judge: maximum ({maximum!r}) has to be a number over 0")
    check_deadlines("chat_judge", timeout_seconds, deadline_seconds, row_deadline_seconds)
    _check_pattern(pattern)
    bearer(key_variable, "chat_judge: key_variable")


def _check_pattern(pattern: Any) -> None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, TypeError) as error:
        raise ValueError(f"chat_judge: the pattern {pattern!r} does not compile: {error}") from None
    if groups != 1:
        raise ValueError(f"chat_judge: the pattern {pattern!r} needs exactly one group, and has {groups}")


def fields_of(template: Any) -> set[str]:
    """The names in braces; a ValueError for a template that is none. Only plain names: `{prompt.x}` is refused."""
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except (ValueError, TypeError) as error:
        raise ValueError(f"chat_judge: the template cannot be read: {error}; braces of its own are {{{{ }}}}") from None
    bad = sorted(name for name in names if not name.isidentifier())
    if bad:
        raise ValueError(f"chat_judge: {bad} in the template are no names of columns; braces of its own are {{{{ }}}}")
    return names


async def chat_judge(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    base_url: str,
    model: str,
    template: str,
    key_variable: str | None = None,
    pattern: str = NUMBER,
    maximum: float = 10.0,
    parallel: int = 16,
    timeout_seconds: float = 20.0,
    tries: int = 3,
    max_tokens: int = 512,
    deadline_seconds: float = 50.0,
    row_deadline_seconds: float = 8.0,
    **columns: Any,
) -> Scored:
    """A reward in [0, 1] per completion. If the server answered for none of them a ServerLostError, or a RefusedError
    that names the argument to change.
    """
    import httpx

    messages = written(template, prompts, completions, columns)
    bodies = [request(message, model, max_tokens) for message in messages]
    gate = asyncio.Semaphore(parallel)
    headers = bearer(key_variable, "chat_judge: key_variable")
    end = asyncio.get_running_loop().time() + (deadline_seconds if len(bodies) > 1 else row_deadline_seconds)

    async with httpx.AsyncClient(headers=headers, timeout=timeout_seconds) as client:

        async def graded(body: dict[str, Any]) -> float | Unscorable | StageError:
            url = f"{base_url.rstrip('/')}/chat/completions"
            try:
                async with within(end, url), gate:
                    response = await post(client, url, body, tries)
                return read(response, pattern, maximum, key_variable)
            except (ServerLostError, RefusedError) as error:
                return error

        found = await asyncio.gather(*map(graded, bodies))
    failed = [one for one in found if isinstance(one, StageError)]
    if failed and len(failed) == len(found):
        raise next((one for one in failed if isinstance(one, RefusedError)), failed[0])
    return [Unscorable(str(one), passing=True) if isinstance(one, StageError) else one for one in found]


def written(template: str, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]) -> list[str]:
    """The template filled in for each row; a ValueError for a name that no column has."""
    given = columns | {"prompt": [prompt_text(p) for p in prompts], "completion": [text_of(c) for c in completions]}
    missing = sorted(fields_of(template) - set(given))
    if missing:
        raise ValueError(f"chat_judge: the template names {missing}; there are {', '.join(sorted(given))}")
    return [template.format(**{name: values[i] for name, values in given.items()}) for i in range(len(completions))]


def request(message: str, model: str, max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": message}],
        "temperature": 0.0,
        "max_tokens": max_tokens,
    }


class RefusedError(StageError):
    """The server answered, and not with a verdict; the message names the argument to look at."""


def read(response: Any, pattern: str, maximum: float, key_variable: str | None = None) -> float | Unscorable:
    """The judge's score, over `maximum`; a RefusedError where it is not the judge that answered."""
    if response.status_code != 200:
        raise RefusedError(refusal(response.status_code, response.text[:200], key_variable))
    try:
        (choice,) = response.json()["choices"]
        text = choice["message"]["content"]
    except (ValueError, KeyError, TypeError) as error:
        told = f"not a chat completion ({type(error).__name__}): {response.text[:200]}"
        raise RefusedError(f"chat_judge: {told}; base_url has to be that of an OpenAI-compatible server") from None
    if not isinstance(text, str):
        return Unscorable(f"the judge's answer has no text: {response.text[:200]}")
    if choice.get("finish_reason") == "length":
        return Unscorable(f"the judge's answer was cut off at max_tokens: {text[-200:]!r}")
    scores = re.findall(pattern, text)
    try:
        score = float(scores[-1])
    except (IndexError, ValueError):
        return Unscorable(f"no score in {text[-200:]!r}")
    if not 0 <= score <= maximum:
        return Unscorable(f"the score {score:g} is not in 0 to {maximum:g}: {text[-200:]!r}")
    return score / maximum


def refusal(status: int, text: str, key_variable: str | None) -> str:
    """What came back, and what to change."""
    key = f"the key in {key_variable} (key_variable)" if key_variable else "key_variable, which is not set"
    remedies = {
        400: "model, template and max_tokens have to be what this server takes",
        401: f"look at {key}",
        402: f"the account of {key} has to be paid up",
        403: f"look at {key}, which may not use this model",
        404: "base_url (it ends before /chat/completions) or model is not there",
        422: "model, template and max_tokens have to be what this server takes",
    }
    return f"chat_judge: status {status}: {text}; {remedies.get(status, 'look at base_url')}"


def needs(template: str, **others: Any) -> set[str]:
    """The columns that the template names."""
    return fields_of(template) - GIVEN


def needs_seconds(deadline_seconds: float = 50.0, row_deadline_seconds: float = 8.0, **others: Any) -> dict[str, float]:
    """What `limits` have to leave at least."""
    return seconds_needed(deadline_seconds, row_deadline_seconds)


chat_judge.needs = needs  # type: ignore[attr-defined]
chat_judge.needs_seconds = needs_seconds  # type: ignore[attr-defined]
chat_judge.check = check  # type: ignore[attr-defined]
chat_judge.rows_per_call = 16  # type: ignore[attr-defined]
