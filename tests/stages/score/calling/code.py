"""Reward functions in files, called as a stage calls them, and a look at the processes that are left."""

import textwrap
from pathlib import Path

import psutil
import pytest

from stages.common.params import Reward
from stages.score.calling.resident import close_all
from stages.score.rewards import reward_columns

LIMITS = {"start_seconds": 20.0, "batch_seconds": 5.0, "row_seconds": 5.0, "memory_mb": 4096}


class Code:
    """Writes `rewards.py` and calls the function `f` in it."""

    def write(self, text, file="rewards.py"):
        """Only if it is another text: a file that is written again is taken for one that has changed."""
        if not Path(file).exists() or Path(file).read_text() != textwrap.dedent(text):
            Path(file).write_text(textwrap.dedent(text))

    def reward(self, limits=None, cache=False, **options):
        return Reward.model_validate(
            {"function": "rewards.py:f", "limits": LIMITS | (limits or {}), "cache": cache} | options
        )

    def score(self, text, rows=3, limits=None, max_failed=None, columns=None, **options):
        """The columns of `reward_columns`: completions are "0", "1", ..."""
        self.write(text)
        inputs = {"completions": [str(row) for row in range(rows)], "prompt_id": [f"p{row}" for row in range(rows)]}
        inputs |= {"sample": [0] * rows} | (columns or {})
        return reward_columns({"one": self.reward(limits, **options)}, inputs, max_failed=max_failed)

    def verdicts(self, text, *arguments, **options):
        frame = self.score(text, *arguments, **options)
        return list(zip(frame["reward/one"], frame["status/one"], frame["message/one"], strict=True))

    def log(self):
        return Path("data/logs/rewards/one.log").read_text()


def running(pid):
    """Whether a process lives; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def below():
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """In a folder of its own; afterwards nothing may be left of the processes that were started."""
    monkeypatch.chdir(tmp_path)
    close_all()
    before = below()
    yield Code()
    close_all()
    assert below() <= before
