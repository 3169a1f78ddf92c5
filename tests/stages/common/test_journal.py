"""The journal of a stage: events in order, its end told as finished or failed."""

import json

import pytest

from stages.common import journal
from stages.common.journal import Journal, journal_path, journalled, read_journal, seconds_of


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(journal.QUIET_VARIABLE, raising=False)


def events(stage="score", name="i0001"):
    return [record["event"] for record in read_journal(stage, name)]


def test_a_stage_that_ends_has_seconds():
    with journalled("score", "i0001"):
        assert events() == ["started"]
        assert seconds_of("score", "i0001") is None
    assert events() == ["started", "finished"]
    assert seconds_of("score", "i0001") == read_journal("score", "i0001")[-1]["seconds"] >= 0


@pytest.mark.parametrize("error", [ValueError("no reward"), KeyboardInterrupt("no reward")])
def test_a_stage_that_fails_says_why_and_has_no_seconds(error):
    with pytest.raises(type(error)), journalled("score", "i0001"):
        raise error
    assert read_journal("score", "i0001")[-1] == {
        "event": "failed",
        "error": f"{type(error).__name__}: no reward",
        "transient": False,
    }
    assert seconds_of("score", "i0001") is None


def test_a_new_run_starts_a_new_journal():
    with journalled("score", "i0001"):
        pass
    Journal("score", "i0001")
    assert events() == ["started"]


def test_stages_and_iterations_have_their_own_journals():
    with journalled("score", "i0001"):
        pass
    Journal("score", "i0002")
    assert events("score", "i0001") == ["started", "finished"]
    assert events("score", "i0002") == ["started"]
    assert events("rollout", "i0001") == []
    assert seconds_of("rollout", "i0001") is None


def test_progress_is_thinned_but_its_end_is_always_told(monkeypatch):
    monkeypatch.setattr(journal, "RECORD_EVERY_SECONDS", 1e9)
    one = Journal("score", "i0001")
    one._recorded = one._started
    for done in range(1, 101):
        one.progress(done, 100, "rows")
    told = [record for record in read_journal("score", "i0001") if record["event"] == "progress"]
    assert told == [{"event": "progress", "done": 100, "total": 100, "unit": "rows"}]


def test_progress_is_told_each_time_without_thinning(monkeypatch):
    monkeypatch.setattr(journal, "RECORD_EVERY_SECONDS", 0.0)
    one = Journal("score", "i0001")
    for done in range(1, 6):
        one.progress(done, 5, "rows")
    assert [record["done"] for record in read_journal("score", "i0001")[1:]] == [1, 2, 3, 4, 5]


def test_line_that_is_still_being_written_is_left_out():
    one = Journal("score", "i0001")
    one.progress(1, 1, "rows")
    with journal_path("score", "i0001").open("a") as file:
        file.write('{"event": "fini')
    assert events() == ["started", "progress"]


def test_lines_are_json_whatever_the_error_says():
    with pytest.raises(ValueError, match="row"), journalled("score", "i0001"):
        raise ValueError('row "é"\nsecond line')
    lines = journal_path("score", "i0001").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["started", "failed"]


def test_people_read_lines_unless_a_front_end_asks_for_quiet(capsys, monkeypatch):
    with journalled("score", "i0001") as one:
        one.say("half way")
    assert capsys.readouterr().out.startswith("score i0001: half way\nscore i0001: done in ")
    monkeypatch.setenv(journal.QUIET_VARIABLE, "1")
    with journalled("score", "i0001") as one:
        one.say("half way")
    assert capsys.readouterr().out == ""
