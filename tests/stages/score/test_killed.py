"""`python -m stages.score` is killed by SIGKILL while a function is called, and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import yaml

from stages.common import paths
from stages.common.critic import write_marker
from stages.common.params_file import parse_params
from stages.common.policy import Models, load_tokenizer
from stages.common.tables import KEY, ROLLOUTS, write_table
from stages.rollout.source import Source
from tests.manifests import finish
from tests.silent import Silent
from tests.stages.reward_model.toy import RUNTIME, lay_out
from tests.workspace import ROOT

JUDGE = """
import os, time
def paid(prompt_id, sample, completions, **columns):
    (name,), (number,) = prompt_id, sample
    with open("paid", "a") as file:
        file.write(f"{name}/{number} {os.getpid()} {os.getppid()}\\n")
    if (name, number) == ("q2", 0) and not os.path.exists("again"):
        time.sleep(100)
    return [float(number)]
paid.rows_per_call = 1
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Rollouts of two prompts, and a function that is paid by the call."""
    monkeypatch.chdir(tmp_path)
    lay_out()
    Path("judge.py").write_text(JUDGE)
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["rollout"] |= {"stop_tokens": ["<|end|>"], "temperature": 1.0, "max_new_tokens": 6, "samples_per_prompt": 3}
    raw["score"]["rewards"] = {"paid": {"function": "judge.py:paid"}}
    raw["score"]["kl"]["beta"] = 0.0
    raw["compute"] |= {"threads": 1}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    params, held = parse_params(raw, "params.yaml"), Models(RUNTIME)
    prompts = pl.read_parquet(paths.PROMPTS).filter(split="train")
    source = Source(held, held.base(), load_tokenizer(), prompts, params, 1, Silent())
    write_table(source.samples([(0, "q1"), (1, "q2")]), ROLLOUTS, KEY, paths.rollouts("i0001"))
    write_marker(paths.critic("i0000"), None)
    finish(tmp_path, "prepare", "prompts", paths.PROMPTS)
    finish(tmp_path, "sft", "policy", paths.REFERENCE)
    finish(tmp_path, "rollout", "i0001", paths.rollouts("i0001"))
    finish(tmp_path, "critic", "initial", paths.critic("i0000"))


def rows():
    return [line.split() for line in Path("paid").read_text().splitlines()] if Path("paid").exists() else []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_no_finished_call_is_paid_for_twice_and_no_process_is_left(project):
    command = [sys.executable, "-m", "stages.score", "i0001"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    stage = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not rows() or rows()[-1][0] != "q2/0":
        assert stage.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(stage.pid, signal.SIGKILL)
    stage.wait()
    first = [key for key, *_ in rows()]
    assert first == ["q1/0", "q1/1", "q1/2", "q2/0"]
    pids = {int(pid) for _, *row in rows() for pid in row}
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not paths.scores("i0001").exists()
    Path("again").touch()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert [key for key, *_ in rows()] == [*first, "q2/0", "q2/1", "q2/2"]
    table = pl.read_parquet(paths.scores("i0001"))
    assert table["reward/paid"].to_list() == [0.0, 1.0, 2.0] * 2
