"""A judge behind an OpenAI-compatible endpoint: which of two answers is better, asked in both orders.

Whatever goes wrong (no connection, an error status, a verdict that cannot be read) leaves the pair without an outcome
and says so: it is never a tie, and never a win. Nothing is sent anywhere but to `base_url`.
"""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from stages.common.params import Endpoint, ParamsError
from stages.common.post import NO_ANSWER, bearer, pauses, tried_again

VERDICT = re.compile(r"\b(A|B|TIE|Tie|tie)\b")


@dataclass(frozen=True)
class Question:
    """A prompt and two answers, in the order in which the judge sees them."""

    prompt: str
    a: str
    b: str


@dataclass(frozen=True)
class Answer:
    """`verdict` is "A", "B" or "tie"; None with a `message` that says why there is none."""

    verdict: str | None
    message: str | None = None


def headers(options: Endpoint) -> dict[str, str]:
    """The key comes from the environment, never from params.yaml."""
    try:
        return bearer(options.key_variable, "judge.endpoint.key_variable")
    except ValueError as error:
        raise ParamsError(f"params.yaml: {error}") from None


def ask_all(
    questions: Sequence[Question],
    options: Endpoint,
    progress: Callable[[int], None] = lambda done: None,
    transport: httpx.BaseTransport | None = None,
) -> list[Answer]:
    """An answer to each question, in order; `parallel` requests are under way at once."""
    client = httpx.Client(
        base_url=options.base_url, headers=headers(options), timeout=options.timeout_seconds, transport=transport
    )
    with client, ThreadPoolExecutor(options.parallel) as pool:
        answers: list[Answer] = []
        for answer in pool.map(lambda question: ask(client, question, options), questions):
            answers.append(answer)
            progress(len(answers))
    return answers


def ask(client: httpx.Client, question: Question, options: Endpoint) -> Answer:
    """One question; tried again where trying again can help."""
    message = ""
    for pause in pauses(options.tries):
        time.sleep(pause)
        try:
            response = client.post("chat/completions", json=request(question, options))
        except httpx.RequestError as error:
            message = f"{type(error).__name__}: {error}"
            continue
        if not tried_again(response.status_code):
            return read(response)
        message = f"status {response.status_code}"
    return Answer(None, f"{options.base_url}{NO_ANSWER}in {options.tries} tries; the last: {message}")


def request(question: Question, options: Endpoint) -> dict[str, object]:
    text = options.template.format(prompt=question.prompt, a=question.a, b=question.b)
    return {
        "model": options.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0.0,
        "max_tokens": options.max_tokens,
    }


def read(response: httpx.Response) -> Answer:
    """The last verdict in the last line of the judge's answer: before that, answers are talked about."""
    if response.status_code != 200:
        return Answer(None, f"status {response.status_code}: {response.text[:200]}")
    try:
        text = str(response.json()["choices"][0]["message"]["content"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return Answer(None, f"not a chat completion ({type(error).__name__}): {response.text[:200]}")
    lines = text.strip().splitlines()
    found = VERDICT.findall(lines[-1]) if lines else []
    if not found:
        return Answer(None, f"no verdict at the end of {text[-200:]!r}")
    return Answer({"A": "A", "B": "B"}.get(found[-1], "tie"))
