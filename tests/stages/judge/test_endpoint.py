"""A judge behind an endpoint: a real server on the loopback, and what may go wrong."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from stages.common import post
from stages.common.params import Endpoint, ParamsError
from stages.judge.endpoint import Question, ask_all


class Judge(BaseHTTPRequestHandler):
    """Prefers the longer answer."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"]
        a, b = text.split("Answer A:\n")[1].split("\n\nAnswer B:\n")
        b = b.split("\n\nThink")[0]
        verdict = "TIE" if len(a) == len(b) else "A" if len(a) > len(b) else "B"
        answer = {"choices": [{"message": {"content": f"A is one, B the other.\nSo: {verdict}"}}]}
        self.server.seen.append((self.path, self.headers.get("Authorization"), body["model"], body["temperature"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    made.seen = []
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def options(**more):
    return Endpoint(**{"base_url": "http://127.0.0.1:9/v1", "model": "judge", "tries": 1} | more)


def test_verdicts_of_a_server_in_the_order_of_the_questions(server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret")
    settings = options(base_url=f"http://127.0.0.1:{server.server_port}/v1", key_variable="JUDGE_KEY", parallel=3)
    questions = [Question("say it", "x" * n, "y" * m) for n, m in [(1, 5), (5, 1), (3, 3), (9, 2), (2, 9)]]
    heard = []
    answers = ask_all(questions, settings, heard.append)
    assert [answer.verdict for answer in answers] == ["B", "A", "tie", "A", "B"]
    assert heard == [1, 2, 3, 4, 5]
    assert set(server.seen) == {("/v1/chat/completions", "Bearer secret", "judge", 0.0)}


def answered(respond, **more):
    (answer,) = ask_all([Question("p", "a", "b")], options(**more), transport=httpx.MockTransport(respond))
    return answer


def says(text):
    return lambda _: httpx.Response(200, json={"choices": [{"message": {"content": text}}]})


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("B", "B"),
        ("I prefer A to B.\n\nB.", "B"),
        ("Both are fine: tie", "tie"),
        ("**A**", "A"),
        ("A is better at first, but in the end: B", "B"),
    ],
)
def test_the_last_line_decides(text, verdict):
    assert answered(says(text)).verdict == verdict


@pytest.mark.parametrize(
    ("respond", "told"),
    [
        (says("They are both a mess"), "no verdict at the end of 'They are both a mess'"),
        (says("A\nbut I cannot say"), "no verdict"),
        (says(""), "no verdict"),
        (lambda _: httpx.Response(401, text="who are you"), "status 401: who are you"),
        (lambda _: httpx.Response(200, text="<html>"), "not a chat completion"),
        (lambda _: httpx.Response(200, json={"choices": []}), "not a chat completion"),
        (lambda _: httpx.Response(503), "status 503"),
    ],
)
def test_what_goes_wrong_is_no_verdict_and_says_why(respond, told):
    answer = answered(respond)
    assert answer.verdict is None
    assert told in answer.message


def test_no_connection_is_no_verdict():
    (answer,) = ask_all([Question("p", "a", "b")], options())
    assert answer.verdict is None
    assert "no answer in 1 tries; the last: ConnectError" in answer.message


def test_trying_again_helps_where_it_can(monkeypatch):
    monkeypatch.setattr(post, "PAUSES", (0.0,))
    answers = [httpx.Response(429), httpx.Response(500), says("A")(None)]
    assert answered(lambda _: answers.pop(0), tries=3).verdict == "A"
    asked = []

    def refuse(request):
        asked.append(request)
        return httpx.Response(400, text="no such model")

    assert answered(refuse, tries=3).message == "status 400: no such model"
    assert len(asked) == 1


def test_pauses_grow_and_stay():
    assert [list(post.pauses(tries)) for tries in (1, 3, 6)] == [
        [0.0],
        [0.0, 1.0, 4.0],
        [0.0, 1.0, 4.0, 16.0, 16.0, 16.0],
    ]


def test_a_key_that_is_not_there_is_told_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ParamsError, match="key_variable: the environment has no NO_KEY"):
        ask_all([Question("p", "a", "b")], options(key_variable="NO_KEY"))


@pytest.mark.parametrize("template", ["{a} {b}", "{prompt} {a} {b} {c}", "{prompt} {a} {b} {"])
def test_a_template_with_wrong_places_is_refused(template):
    with pytest.raises(ValueError, match="template"):
        options(template=template)
