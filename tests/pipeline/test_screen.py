"""The terminal shows progress while DVC's own output is redirected away."""

import sys
import time
from contextlib import redirect_stdout
from io import StringIO

import pytest

from pipeline.door import stage_id
from pipeline.follow import followed
from pipeline.plan import make_plan
from pipeline.screen import Screen
from stages.common.journal import Journal


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_progress_of_the_running_stage_is_heard_and_that_of_an_earlier_run_is_not(project):
    stage, heard = stage_id("rollout@i0003", "i0003"), []
    Journal("rollout", "i0003").progress(1, 64, "of yesterday")
    with followed(stage, 0.005, heard.extend):
        for _ in range(5):
            time.sleep(0.01)
        journal = Journal("rollout", "i0003")
        journal.progress(7, 64, "completions ended")
        for _ in range(40):
            time.sleep(0.01)
    assert [record["event"] for record in heard] == ["started", "progress"]
    assert heard[1]["done"] == 7


def test_lines_reach_the_terminal_though_stdout_is_redirected(project, capsys):
    hidden = StringIO()
    with Screen(total=1) as screen, redirect_stdout(hidden):
        screen.console.print("a line for people")
        print("noise of a library", file=sys.stdout)
    assert "a line for people" in capsys.readouterr().out
    assert "a line for people" not in hidden.getvalue()
    assert "noise of a library" in hidden.getvalue()


@pytest.mark.parametrize(
    ("dvc_name", "stage", "name"),
    [
        ("rollout@i0003", "rollout", "i0003"),
        ("evaluate@i0000", "evaluate", "i0000"),
        ("prepare_model", "prepare", "model"),
        ("history", "history", "i0018"),
        ("offline@my_offline", "offline", "my_offline"),
        ("evaluate_offline@dpo", "evaluate", "dpo"),
        ("judge_offline@dpo", "judge", "dpo"),
    ],
)
def test_names_of_dvc_stages(dvc_name, stage, name):
    found = stage_id(dvc_name, "i0018")
    assert (found.stage, found.name) == (stage, name)


def test_a_stage_that_loads_libraries_says_so_until_its_work_begins(project):
    with Screen(1) as screen, screen.stage(stage_id("rollout@i0001", "i0001"), 0) as show:
        bar = screen.progress.tasks[1]
        show([{"event": "started"}, {"event": "loading"}])
        assert bar.fields["detail"] == "loading libraries"
        show([{"event": "progress", "done": 2, "total": 9, "unit": "completions ended"}])
        assert bar.fields["detail"] == "2/9 completions ended"


ROW = {"reward": 0.5, "kl": None, "completions/mean_length": 7.0, "completions/clipped_ratio": 0.0, "groups/mixed": 0.0}


@pytest.mark.parametrize(("norm", "lines"), [(0.5, 1), (0.0, 2)])
def test_an_iteration_that_moved_nothing_is_told(project, capsys, monkeypatch, norm, lines):
    monkeypatch.setattr("pipeline.screen.read_table", lambda *_: None)
    monkeypatch.setattr("pipeline.screen.training_row", lambda *_: ROW | {"grad_norm": norm})
    with Screen(1) as screen:
        screen.iteration("i0003")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("i0003")]
    assert len(told) == lines
    assert ("no row has a gradient" in told[-1]) == (norm == 0)


def test_the_summary_names_the_window(capsys):
    second = make_plan(5, 2, 2).next
    with Screen(1, second.title) as screen:
        screen.finished(stage_id("rollout@i0003", "i0004"), "unchanged")
    assert screen.progress.tasks[0].fields["detail"] == "1 stage was up to date"
    assert capsys.readouterr().out.splitlines() == [
        "Stages of w0002 of w0003, i0003 to i0004: 1 unchanged",
    ]
