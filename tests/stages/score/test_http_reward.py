"""A reward server: a real one on the loopback, and what may go wrong."""

import asyncio
import json
import socket
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from stages.common import post
from stages.common.params import Reward
from stages.common.post import ServerLostError
from stages.score.http_reward import check, http_reward
from stages.score.outcome import Unscorable

_spec = spec_from_file_location("servers", Path(__file__).with_name("servers.py"))
servers = module_from_spec(_spec)
_spec.loader.exec_module(servers)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(post, "PAUSES", (0.0,))


def rewards(url, count=3, **more):
    given = {
        "prompts": [f"p{i}" for i in range(count)],
        "completions": ["x" * i for i in range(count)],
        "completion_ids": [[i] for i in range(count)],
        "answer": list(range(count)),
    }
    return asyncio.run(http_reward(url=url, **(given | more)))


def lengths(body, _):
    found = [len(row["completion"]) or None for row in body["rows"]]
    return 200, json.dumps({"rewards": found}).encode()


def test_rows_go_in_batches_with_all_columns_and_come_back_in_order(monkeypatch):
    monkeypatch.setenv("REWARD_KEY", "secret")
    with servers.serving(lengths) as (url, seen):
        check(url=url, key_variable="REWARD_KEY")
        assert rewards(f"{url}/score", 5, batch_rows=2, key_variable="REWARD_KEY") == [None, 1, 2, 3, 4]
    assert [(path, key, len(body["rows"])) for path, key, body in seen] == [
        ("/score", "Bearer secret", n) for n in (2, 2, 1)
    ]
    assert seen[0][2]["rows"][1] == {"prompt": "p1", "completion": "x", "completion_ids": [1], "answer": 1}


def test_conversations():
    with servers.serving(lengths) as (url, seen):
        turns = [{"role": "user", "content": "hello"}]
        assert rewards(url, 1, prompts=[turns], completions=[[{"role": "assistant", "content": "abc"}]]) == [3]
    assert seen[0][2]["rows"][0]["prompt"] == turns


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(status):
    with servers.serving(lambda body, count: (status, b"busy") if count < 3 else lengths(body, count)) as (url, seen):
        assert rewards(url) == [None, 1, 2]
    assert len(seen) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_not_asked_again_and_says_what_came(status):
    with (
        servers.serving(lambda *_: (status, b"no such model")) as (url, seen),
        pytest.raises(ValueError, match=rf"refused the rows: status {status}, 'no such model'"),
    ):
        rewards(url)
    assert len(seen) == 1


def test_a_server_that_stays_busy_is_lost():
    with (
        servers.serving(lambda *_: (503, b"later")) as (url, seen),
        pytest.raises(ServerLostError, match=r"no answer in 2 tries; the last: status 503: later"),
    ):
        rewards(url, tries=2)
    assert len(seen) == 2


def test_a_server_that_is_not_there_is_lost():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServerLostError, match=rf"{port}: no answer in 3 tries; the last: ConnectError"):
        rewards(f"http://127.0.0.1:{port}")


def test_a_server_that_hangs_costs_its_time_limit():
    with servers.serving(lambda *_: time.sleep(3) or (200, b"{}")) as (url, _):
        start = time.monotonic()
        with pytest.raises(ServerLostError, match="ReadTimeout"):
            rewards(url, tries=1, timeout_seconds=0.3)
        assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"oops", "did not answer in JSON"),
        (b"[1, 2, 3]", "has to answer"),
        (b'{"rewards": 3}', "has to answer"),
        (b'{"rewards": [1, "2", 3]}', "has to answer"),
        (b'{"rewards": [1, true, 3]}', "has to answer"),
        (b'{"rewards": [1, NaN, 3]}', "has to answer"),
        (b'{"rewards": [1, 2]}', "gave 2 rewards for 3 rows"),
    ],
)
def test_an_answer_of_another_form_says_what_came(text, told):
    with servers.serving(lambda *_: (200, text)) as (url, _), pytest.raises(ValueError, match=told) as error:
        rewards(url)
    assert repr(text.decode()) in str(error.value)


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "1e999", "-1e999"])
def test_a_number_too_large_for_a_reward_is_that_of_its_row(number):
    with servers.serving(lambda *_: (200, f'{{"rewards": [1, {number}, 0.5]}}'.encode())) as (url, _):
        first, huge, last = rewards(url)
    assert (first, last) == (1, 0.5)
    assert isinstance(huge, Unscorable)
    assert "too large" in huge.reason


@pytest.mark.parametrize(("count", "option"), [(1, "row_deadline_seconds"), (3, "deadline_seconds")])
def test_a_call_ends_at_its_deadline(count, option):
    with servers.serving(lambda *_: time.sleep(2) or (200, b"{}")) as (url, _):
        start = time.monotonic()
        with pytest.raises(ServerLostError, match="no answer before the deadline"):
            rewards(url, count, **{option: 0.4})
        assert time.monotonic() - start < 1.5


def test_the_defaults_fit_into_the_default_limits():
    needed, limits = http_reward.needs_seconds(url="http://x"), Reward(function="a:b").limits
    assert needed["row"] <= limits.row_seconds
    assert needed["batch"] <= limits.batch_seconds


def test_what_cannot_be_sent_is_told_by_its_column():
    with pytest.raises(ValueError, match="column 'image' cannot be sent as JSON"):
        rewards("http://127.0.0.1:9", 1, image=[b"x"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"url": "localhost:8000"}, "url is an http"),
        ({"url": "http://x", "tries": 0}, "tries"),
        ({"url": "http://x", "batch_rows": 1.5}, "batch_rows"),
        ({"url": "http://x", "timeout_seconds": 0}, "timeout_seconds"),
        ({"url": "http://x", "key_variable": "NOT_THERE_AT_ALL"}, "the environment has no NOT_THERE_AT_ALL"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(ValueError, match=told):
        check(**arguments)
