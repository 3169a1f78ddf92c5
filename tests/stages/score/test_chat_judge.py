"""A judge behind a chat endpoint: a real server on the loopback, and what may go wrong."""

import asyncio
import json
import threading
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from stages.common import post
from stages.common.post import ServerLostError
from stages.score.chat_judge import chat_judge, check
from stages.score.outcome import Unscorable

_spec = spec_from_file_location("servers", Path(__file__).with_name("servers.py"))
servers = module_from_spec(_spec)
_spec.loader.exec_module(servers)

TEMPLATE = "Q: {prompt}\nA: {completion}\nKey: {answer}, as {{json}}. Score?"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(post, "PAUSES", (0.0,))


def chat(text, **more):
    return json.dumps({"choices": [{"message": {"content": text}} | more]}).encode()


def judged(url, completions=("abc",), **more):
    given = {"prompts": ["p"] * len(completions), "completions": list(completions), "answer": ["k"] * len(completions)}
    arguments = {"base_url": f"{url}/v1", "model": "m", "template": TEMPLATE}
    return asyncio.run(chat_judge(**(given | arguments | more)))


def says(text, **more):
    with servers.serving(lambda *_: (200, chat(text))) as (url, _):
        return judged(url, **more)[0]


def test_each_completion_is_graded_in_order_and_what_is_asked(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret")

    def by_length(body, count):
        time.sleep(0.05 * (count % 3))  # answers come back in another order
        text = body["messages"][0]["content"]
        return 200, chat(f"I see 99 reasons.\nScore: {len(text.split('A: ')[1].split(chr(10))[0])}/10")

    with servers.serving(by_length) as (url, seen):
        assert judged(url, ["x" * i for i in (3, 0, 10, 5)], key_variable="JUDGE_KEY") == [0.3, 0.0, 1.0, 0.5]
    assert {(path, key) for path, key, _ in seen} == {("/v1/chat/completions", "Bearer secret")}
    body = next(body for _, _, body in seen if "xxxxxxxxxx" in body["messages"][0]["content"])
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Q: p\nA: xxxxxxxxxx\nKey: k, as {json}. Score?"}],
        "temperature": 0.0,
        "max_tokens": 512,
    }


def test_no_more_requests_at_once_than_allowed():
    now, most, lock = 0, 0, threading.Lock()

    def count_them(*_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return 200, chat("5")

    with servers.serving(count_them) as (url, _):
        assert judged(url, ["x"] * 12, parallel=3) == [0.5] * 12
    assert 2 <= most <= 3


@pytest.mark.parametrize(
    ("text", "reward"),
    [("7", 0.7), ("8/10", 0.8), ("Score: 8 out of 10.", 0.8), ("3 flaws, so 6.5", 0.65), ("10", 1.0), ("**9**", 0.9)],
)
def test_the_last_number_is_the_score(text, reward):
    assert says(text) == pytest.approx(reward)


def test_another_pattern_and_another_scale():
    assert says("<score>4</score> of 5", pattern=r"<score>(\d)</score>", maximum=5) == 0.8


@pytest.mark.parametrize("text", ["no idea", "", "11", "-1", "version v2"])
def test_a_verdict_that_cannot_be_read_is_unscorable_and_shown(text):
    found = says(text)
    assert isinstance(found, Unscorable)
    assert text in found.reason


@pytest.mark.parametrize(
    ("status", "text", "told"),
    [
        (200, b"oops", "not a chat completion"),
        (200, b'{"choices": []}', "not a chat completion"),
        (200, b'{"choices": [{"message": {"content": null}}]}', "has no text"),
        (200, chat("8", finish_reason="length"), "cut off"),
        (400, b"bad model", "status 400: bad model"),
    ],
)
def test_other_answers_are_unscorable(status, text, told):
    with servers.serving(lambda *_: (status, text)) as (url, _):
        (found,) = judged(url)
    assert isinstance(found, Unscorable)
    assert told in found.reason


def test_a_server_lost_for_some_rows_leaves_the_others_and_is_not_kept():
    def fails_for_b(body, _):
        return (500, b"down") if "A: b" in body["messages"][0]["content"] else (200, chat("5"))

    with servers.serving(fails_for_b) as (url, seen):
        first, second = judged(url, ["a", "b"], tries=2)
    assert first == 0.5
    assert isinstance(second, Unscorable)
    assert second.passing
    assert len(seen) == 3


def test_a_server_lost_for_all_rows_raises():
    with (
        servers.serving(lambda *_: (500, b"down")) as (url, _),
        pytest.raises(ServerLostError, match="status 500: down"),
    ):
        judged(url, ["a", "b"], tries=1)


def test_conversations_are_written_out():
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with servers.serving(lambda *_: (200, chat("5"))) as (url, seen):
        judged(url, [[{"role": "assistant", "content": "done"}]], prompts=[turns])
    assert seen[0][2]["messages"][0]["content"].startswith("Q: system: s\n\nuser: u\nA: done\n")


def test_a_name_that_no_column_has():
    with pytest.raises(ValueError, match=r"the template names \['rubric'\]; there are answer, completion, prompt"):
        judged("http://127.0.0.1:9", template="{completion} {rubric}")


GOOD = {"base_url": "http://x", "model": "m", "template": "{completion}"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"base_url": "x"}, "base_url is an http"),
        ({"model": ""}, "model is a name"),
        ({"template": "{prompt}"}, "has no {completion}"),
        ({"template": "{completion"}, "template cannot be read"),
        ({"template": "{completion.x}"}, "no names of columns"),
        ({"template": "{completion} {}"}, "no names of columns"),
        ({"pattern": "("}, "does not compile"),
        ({"pattern": "x"}, "exactly one group"),
        ({"maximum": 0}, "maximum"),
        ({"parallel": 0}, "parallel"),
        ({"key_variable": "NOT_THERE_AT_ALL"}, "the environment has no NOT_THERE_AT_ALL"),
    ],
)
def test_wrong_arguments(arguments, told):
    check(**GOOD)
    with pytest.raises(ValueError, match=told):
        check(**(GOOD | arguments))
