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
      rows_per_call: 16
      limits: {batch_seconds: 600, row_seconds: 120}

The reward is the score divided by `maximum`. `template` may name every column; `{{` and `}}` are braces. The score is
the last match of `pattern`, whose one group is a number; by default the last number, of which `/10` or `out of 10` may
follow. `parallel` requests are under way at once. Finished calls are kept, so a run that breaks off pays for at most
one call of `rows_per_call` rows twice; give `rows_per_call` and `parallel` the same value. The key is read from the
environment variable `key_variable`.

    no score in the judge's answer, one outside [0, maximum], an answer that was cut off     row unscorable
    an answer that is no chat completion, an error status, a server that is lost             row unscorable
    no row of the call got an answer                                                         the call raises

Nothing is sent anywhere but to `base_url`.
"""

import asyncio
import re
import string
from collections.abc import Sequence
from typing import Any

from stages.common.post import ServerLostError, bearer, post
from stages.score.columns import Scored
from stages.score.outcome import Unscorable
from stages.score.texts import prompt_text, text_of

NUMBER = r"(?<![\w.])(-?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*\d+)?"


def check(
    base_url: str,
    model: str,
    template: str,
    key_variable: str | None = None,
    pattern: str = NUMBER,
    maximum: float = 10.0,
    parallel: int = 16,
    timeout_seconds: float = 60.0,
    tries: int = 3,
    max_tokens: int = 512,
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
    for name, number in (("maximum", maximum), ("timeout_seconds", timeout_seconds)):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < float("inf"):
            raise ValueError(f"chat_judge: {name} ({number!r}) has to be a number over 0")
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
    timeout_seconds: float = 60.0,
    tries: int = 3,
    max_tokens: int = 512,
    **columns: Any,
) -> Scored:
    """A reward in [0, 1] per completion; ServerLostError if the server answered for none of them."""
    import httpx

    messages = written(template, prompts, completions, columns)
    bodies = [request(message, model, max_tokens) for message in messages]
    gate = asyncio.Semaphore(parallel)
    headers = bearer(key_variable, "chat_judge: key_variable")

    async with httpx.AsyncClient(headers=headers, timeout=timeout_seconds) as client:

        async def graded(body: dict[str, Any]) -> float | Unscorable | ServerLostError:
            async with gate:
                try:
                    response = await post(client, f"{base_url.rstrip('/')}/chat/completions", body, tries)
                except ServerLostError as error:
                    return error
            return read(response, pattern, maximum)

        found = await asyncio.gather(*map(graded, bodies))
    lost = [one for one in found if isinstance(one, ServerLostError)]
    if lost and len(lost) == len(found):
        raise lost[0]
    return [Unscorable(str(one), passing=True) if isinstance(one, ServerLostError) else one for one in found]


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


def read(response: Any, pattern: str, maximum: float) -> float | Unscorable:
    """The judge's score, over `maximum`."""
    if response.status_code != 200:
        return Unscorable(f"status {response.status_code}: {response.text[:200]}")
    try:
        (choice,) = response.json()["choices"]
        text = choice["message"]["content"]
    except (ValueError, KeyError, TypeError) as error:
        return Unscorable(f"not a chat completion ({type(error).__name__}): {response.text[:200]}")
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


chat_judge.check = check  # type: ignore[attr-defined]
chat_judge.rows_per_call = 16  # type: ignore[attr-defined]
