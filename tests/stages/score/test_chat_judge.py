"""A judge behind a chat endpoint: a real server on the loopback, and what may go wrong."""

import asyncio
import json
import threading
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from stages.common import post
from stages.common.params import Reward
from stages.common.post import ServerLostError
from stages.score.chat_judge import RefusedError, chat_judge, check
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
        (200, b'{"choices": [{"message": {"content": null}}]}', "has no text"),
        (200, chat("8", finish_reason="length"), "cut off"),
    ],
)
def test_what_the_judge_itself_says_stays_unscorable(status, text, told):
    with servers.serving(lambda *_: (status, text)) as (url, _):
        (found,) = judged(url)
    assert isinstance(found, Unscorable)
    assert told in found.reason
    assert not found.passing


REFUSALS = [
    (400, b"bad model", "status 400: bad model; model, template"),
    (401, b"who", r"look at key_variable, which is not set"),
    (402, b"pay", "has to be paid up"),
    (403, b"no", "key_variable"),
    (404, b"where", "base_url .* or model is not there"),
    (200, b"<html>", "not a chat completion .*base_url"),
    (200, b'{"choices": []}', "not a chat completion"),
]


@pytest.mark.parametrize(("status", "text", "told"), REFUSALS)
def test_a_refusal_is_not_kept_and_for_all_rows_it_names_the_argument(status, text, told):
    def refuses_b(body, _):
        return (status, text) if "A: b" in body["messages"][0]["content"] else (200, chat("5"))

    with servers.serving(refuses_b) as (url, _):
        first, second = judged(url, ["a", "b"])
        assert first == 0.5
        assert isinstance(second, Unscorable)
        assert second.passing
        with pytest.raises(RefusedError, match=told):
            judged(url, ["b", "b"])


def test_the_key_that_is_refused_is_named(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "wrong")
    with (
        servers.serving(lambda *_: (401, b"no")) as (url, _),
        pytest.raises(RefusedError, match=r"the key in JUDGE_KEY \(key_variable\)"),
    ):
        judged(url, ["a", "b"], key_variable="JUDGE_KEY")


def test_a_refused_row_is_asked_again_in_the_next_run(tmp_path, monkeypatch):
    """Through the cache: 401 for one of two rows, then 200."""
    from stages.score.calling.resident import close_all
    from stages.score.rewards import reward_columns

    monkeypatch.chdir(tmp_path)
    mended = False

    def answers(body, _):
        return (200, chat("5")) if mended or "A: a" in body["messages"][0]["content"] else (401, b"no")

    inputs = {"prompts": ["p"] * 2, "completions": ["a", "b"], "prompt_id": ["p1", "p2"], "sample": [0, 0]}
    with servers.serving(answers) as (url, _):
        arguments = {"base_url": url, "model": "m", "template": "A: {completion}"}
        reward = Reward(function="stages.score.chat_judge:chat_judge", arguments=arguments)
        first = reward_columns({"one": reward}, inputs)
        mended = True
        second = reward_columns({"one": reward}, inputs)
    close_all()
    assert first["status/one"].to_list() == ["ok", "error"]
    assert second["reward/one"].to_list() == [0.5, 0.5]


@pytest.mark.parametrize("tries", [1, 3])
def test_a_request_that_hangs_costs_its_row_and_ends_at_the_deadline(tries):
    def hangs_for_b(body, _):
        if "A: b" in body["messages"][0]["content"]:
            time.sleep(3)
        return 200, chat("5")

    with servers.serving(hangs_for_b) as (url, _):
        start = time.monotonic()
        found = judged(url, ["a", "b", "c", "d"], parallel=2, deadline_seconds=1, tries=tries, timeout_seconds=0.6)
        assert time.monotonic() - start < 2.5
    assert [found[0], *found[2:]] == [0.5] * 3
    assert isinstance(found[1], Unscorable)
    assert found[1].passing


def test_a_call_of_one_row_has_a_deadline_of_its_own():
    with servers.serving(lambda *_: time.sleep(2) or (200, chat("5"))) as (url, _):
        start = time.monotonic()
        with pytest.raises(ServerLostError, match="no answer before the deadline"):
            judged(url, ["a"], row_deadline_seconds=0.3)
        assert time.monotonic() - start < 1.5


def test_the_defaults_fit_into_the_default_limits():
    needed, limits = chat_judge.needs_seconds(**GOOD), Reward(function="a:b").limits
    assert needed["row"] <= limits.row_seconds
    assert needed["batch"] <= limits.batch_seconds
    assert chat_judge.needs_seconds(deadline_seconds=90, row_deadline_seconds=20) == {"row": 22, "batch": 92}


def test_the_columns_it_needs_are_those_of_the_template():
    assert chat_judge.needs(**(GOOD | {"template": TEMPLATE + "{rubric} {completion_ids}"})) == {"answer", "rubric"}


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
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"row_deadline_seconds": "1"}, "row_deadline_seconds"),
        ({"key_variable": "NOT_THERE_AT_ALL"}, "the environment has no NOT_THERE_AT_ALL"),
    ],
)
def test_wrong_arguments(arguments, told):
    check(**GOOD)
    with pytest.raises(ValueError, match=told):
        check(**(GOOD | arguments))
