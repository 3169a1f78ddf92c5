"""What is paid for once: calls by content, in order, through crashes; and what is never kept."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from stages.common.errors import StageError
from stages.common.paths import REWARD_CACHE
from stages.score.calling import cache

COUNTING = """
import os
def f(completions, scale=1.0, **columns):
    with open("calls", "a") as file:
        file.write(",".join(completions) + "\\n")
    {body}
    return [scale * float(text) for text in completions]
"""


def calls():
    made = Path("calls").read_text().split() if Path("calls").exists() else []
    Path("calls").unlink(missing_ok=True)
    return made


def counting(body="pass"):
    return COUNTING.format(body=body)


def entries():
    return [path for path in REWARD_CACHE.glob("*/*.json") if path.parent.name != "signatures"]


def test_a_finished_call_is_not_made_again(code):
    first = code.score(counting(), cache=True)
    assert calls() == ["0,1,2"]
    assert code.score(counting(), cache=True).equals(first)
    assert calls() == []
    assert first["reward/one"].to_list() == [0.0, 1.0, 2.0]


def test_what_it_returned_comes_back_exactly(code):
    body = "return [0.1 + 0.2, None, float('nan'), 5e-324, -0.0, 1e308, True]"
    first = code.score(counting(body), rows=7, cache=True)
    assert calls() != []
    again = code.score(counting(body), rows=7, cache=True)
    assert calls() == []
    assert [repr(v) for v in again.rows()] == [repr(v) for v in first.rows()]


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"scale": 2.0}},
        {"columns": {"answer": [1, 2, 3]}},
        {"rows_per_call": 2},
        {"rows": 2},
    ],
)
def test_another_call_is_made(code, change):
    code.score(counting(), cache=True)
    calls()
    code.score(counting(), cache=True, **change)
    assert calls() != []


def test_another_code_is_called_though_the_executor_was_warm(code):
    code.score(counting(), cache=True)
    calls()
    found = code.score(counting("return [7.0] * len(completions)"), cache=True)
    assert found["reward/one"].to_list() == [7.0] * 3
    assert calls() != []


def test_off_for_a_reward(code):
    for _ in range(2):
        code.score(counting(), cache=False)
        assert calls() == ["0,1,2"]
    assert entries() == []


def test_what_may_be_different_next_time_is_not_kept_and_the_good_rows_of_it_are(code):
    body = "if '1' in completions: raise OSError('server is down')"
    found = code.score(counting(body), cache=True)
    assert found["status/one"].to_list() == ["ok", "error", "ok"]
    assert calls() == ["0,1,2", "0", "1", "2"]
    code.score(counting(body), cache=True)
    assert calls() == ["1"]


PASSING = """if '1' in completions and not os.path.exists('up'):
        from stages.score.outcome import Unscorable
        return [Unscorable("busy", passing=True) if text in "1" else float(text) for text in completions]"""


@pytest.mark.parametrize("rows_per_call", [None, 1], ids=["as it was", "row by row"])
def test_good_rows_of_a_call_that_is_partly_lost_are_not_paid_for_again(code, rows_per_call):
    found = code.score(counting(PASSING), cache=True)
    assert found["status/one"].to_list() == ["ok", "error", "ok"]
    assert calls() == ["0,1,2"]
    Path("up").touch()
    again = code.score(counting(PASSING), cache=True, rows_per_call=rows_per_call)
    assert calls() == ["1"]
    assert again["reward/one"].to_list() == [0.0, 1.0, 2.0]
    assert code.score(counting(PASSING), cache=True, rows_per_call=rows_per_call).equals(again)
    assert calls() == []


def test_rows_that_are_still_lost_are_called_together(code):
    body = """if not os.path.exists('up'):
        from stages.score.outcome import Unscorable
        return [Unscorable("busy", passing=True) if text in "13" else float(text) for text in completions]"""
    for expected in (["0,1,2,3,4"], ["1,3"]):
        code.score(counting(body), rows=5, cache=True)
        assert calls() == expected
    Path("up").touch()
    code.score(counting(body), rows=5, cache=True)
    assert calls() == ["1,3"]
    assert len(entries()) == 1 + 3  # the call, and rows 0, 2, 4


def test_a_batch_is_not_put_together_from_single_rows_that_were_called_before(code):
    """What a function says of a batch may depend on it."""
    code.score(counting(), cache=True, rows_per_call=1)
    calls()
    code.score(counting(), cache=True)
    assert calls() == ["0,1,2"]


def test_single_rows_that_were_called_after_a_failure_make_the_call_whole(code):
    body = "if len(completions) > 1: raise OSError('too many at once')"
    first = code.score(counting(body), cache=True)
    assert calls() == ["0,1,2", "0", "1", "2"]
    assert code.score(counting(body), cache=True).equals(first)
    assert calls() == []


def test_a_cache_that_cannot_be_written_is_said(code, monkeypatch):
    code.score(counting(), cache=True)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.raises(
        StageError, match=r"data/\.cache/rewards/.*cannot be kept \(No space left on device\); make room"
    ):
        code.score(counting(), rows=2, cache=True)


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"rows": []}', '{"rows": [[1, "timeout", null]]}', '{"rows": [[null, "ok", null]]}']
)
def test_a_damaged_entry_is_replaced(code, damage):
    code.score(counting(), rows=1, cache=True)
    calls()
    (entry,) = entries()
    good = entry.read_bytes()
    entry.write_text(damage)
    assert code.score(counting(), rows=1, cache=True)["reward/one"].to_list() == [0.0]
    assert calls() == ["0"]
    assert entry.read_bytes() == good


def test_nothing_is_started_when_all_calls_are_known(code, monkeypatch):
    code.score(counting(), cache=True, rows_per_call=1)

    def refuse():
        raise AssertionError("a process was started")

    from stages.score.calling import resident

    resident.close_all()
    monkeypatch.setattr(resident, "open_worker", refuse)
    assert code.score(counting(), cache=True, rows_per_call=1)["reward/one"].to_list() == [0.0, 1.0, 2.0]


def test_entries_that_were_not_used_for_a_month_are_removed(code):
    code.score(counting(), rows=1, cache=True)
    code.score(counting(), rows=2, cache=True)
    old, used = sorted(entries(), key=lambda path: len(path.read_bytes()))
    long_ago = time.time() - 40 * 86400
    for path in (old, used, cache.SWEPT):
        os.utime(path, (long_ago, long_ago))
    code.score(counting(), rows=2, cache=True)  # read: used
    assert old.exists()
    code.score(counting(), rows=3, cache=True)  # written: looked through
    assert not old.exists()
    assert used.exists()


KEYS = [
    None, True, 1, 1.0, "1", b"1", 0, False, 0.0, -0.0, "", [], {}, [[]], [None], float("nan"), float("inf"), "NaN",
    {"a": 1}, {"a": 1.0}, {1: "a"}, {"1": "a"}, [["a", 1]], {"dict": []}, [1, [2]], [[1], 2], [1, 2],
    date(2024, 1, 2), datetime(2024, 1, 2), "2024-01-02", datetime(2024, 1, 2, tzinfo=ZoneInfo("UTC")),
    datetime(2024, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), time_of_day(1, 2), timedelta(1), timedelta(microseconds=1),
    Decimal("1"), Decimal("1.0"), "\ud800", "é", "e\u0301", {"a": {"b": [1]}}, {"a": {"b": [None]}},
]  # fmt: skip


def test_different_values_have_different_keys():
    texts = [cache.canonical({"x": value}) for value in KEYS]
    assert len(set(texts)) == len(texts)


def test_the_order_of_columns_does_not_matter_and_that_of_rows_does():
    assert cache.key_of(inputs={"a": [1], "b": [2]}) == cache.key_of(inputs={"b": [2], "a": [1]})
    assert cache.key_of(inputs={"a": [1, 2]}) != cache.key_of(inputs={"a": [2, 1]})


def test_a_value_without_a_canonical_text_is_called_and_not_kept(code):
    code.score(counting(), cache=True, columns={"odd": [frozenset({1})] * 3})
    code.score(counting(), cache=True, columns={"odd": [frozenset({1})] * 3})
    assert calls() == ["0,1,2"] * 2


def test_columns_of_every_type_are_kept(code):
    columns = {"day": [date(2024, 1, 2)] * 3, "part": [{"x": [1.5, None]}] * 3, "gone": [None] * 3}
    for expected in (["0,1,2"], []):
        code.score(counting(), cache=True, columns=columns)
        assert calls() == expected


SCORING = """
import sys
sys.path.insert(0, {root!r})
from tests.stages.score.calling.code import Code
Code().score(open("text").read(), rows=6, cache=True, rows_per_call=1)
"""


def test_a_process_that_is_killed_and_started_again_repeats_no_finished_call(code):
    """It is killed by SIGKILL within its fourth call."""
    slow = counting("if completions == ['3'] and not os.path.exists('again'): __import__('time').sleep(100)")
    Path("text").write_text(slow)
    root = str(Path(__file__).parents[4])
    stage = subprocess.Popen([sys.executable, "-c", SCORING.format(root=root)], start_new_session=True)
    deadline = time.monotonic() + 30
    while not (Path("calls").exists() and Path("calls").read_text().split()[-1] == "3"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(stage.pid, signal.SIGKILL)
    stage.wait()
    assert calls() == ["0", "1", "2", "3"]
    Path("again").touch()
    found = code.score(slow, rows=6, cache=True, rows_per_call=1)
    assert calls() == ["3", "4", "5"]
    assert found["reward/one"].to_list() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_an_entry_is_small_json(code):
    code.score(counting(), rows=2, cache=True)
    (entry,) = entries()
    assert json.loads(entry.read_text()) == {"rows": [[0.0, "ok", None], [1.0, "ok", None]]}
