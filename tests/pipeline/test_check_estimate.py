"""What `rloo check` makes of the times that it measures."""

from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from pipeline.check import probe
from pipeline.check.dry_run import DryRun
from pipeline.check.estimate import Line, Work, rollout_seconds, update_seconds
from pipeline.check.page import duration
from pipeline.check.probe import Passes, Rollout
from pipeline.check.reduced import reduced
from pipeline.check.timing import Timed
from stages.common.params_file import load_params

ROOT = Path(__file__).parents[2]


def test_a_stage_is_timed_by_what_it_says():
    timed = Timed(10.0, [(1.0, "passes of the reference"), (4.0, "passes of the reference"), (7.0, "other")])
    assert timed.span("passes of the reference") == (1.0, 4.0)
    assert timed.span("passes of the critic") is None
    assert timed.tail == 3.0
    assert Timed(10.0).tail == 10.0


@pytest.fixture
def measured(monkeypatch):
    """A dry run of 2 prompts out of 16, with round numbers."""
    monkeypatch.chdir(ROOT)
    params = load_params()
    content = params.model_dump()
    content["rollout"] |= {"prompts_per_iteration": 16, "samples_per_prompt": 4, "max_new_tokens": 41}
    params = type(params).model_validate(content)
    work = DryRun(params, reduced(params, 2), [], print)
    work.rollout = Rollout(prompts=8, sequences=32, batches=2, prefill=1.0, step=0.25)
    work.passes = Passes(tokens=400, seconds=2.0, difference=0.0, packed=True)
    work.timed["update i0001"] = Timed(6.0, [(4.0, "micro-batches")])
    return work


def test_rollouts_are_all_batches_up_to_the_limit(measured):
    assert rollout_seconds(measured) == 2 * (1.0 + 40 * 0.25)
    content = measured.params.model_dump()
    content["rollout"]["greedy"] = True  # one row more for each four
    measured.params = type(measured.params).model_validate(content)
    assert rollout_seconds(measured) == 1.25 * 2 * (1.0 + 40 * 0.25)


def test_an_update_is_its_tokens_and_what_it_writes(measured, monkeypatch):
    monkeypatch.setattr("pipeline.check.estimate.gradient_tokens", lambda work: 200)
    assert update_seconds(measured, Work(64, 3200, 8)) == 3200 * 4.0 / 200 + 2.0
    monkeypatch.setattr("pipeline.check.estimate.gradient_tokens", lambda work: 0)
    measured.timed["update i0001"] = Timed(2.0)
    assert update_seconds(measured, Work(64, 3200, 8)) == 3200 * 3 * 2.0 / 400 + 2.0


@pytest.mark.parametrize(("seconds", "text"), [(3.21, "3.2 s"), (600, "10.0 min"), (9000, "2.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
    assert Line("rollout", seconds, 2, "").total == 2 * seconds


def test_a_further_token_of_the_batch_is_timed(monkeypatch):
    clock = [0.0]

    def sampled(policy, batch, settings):
        clock[0] += 2.0 + 0.5 * (settings.max_new_tokens - 1)

    prompts = pl.DataFrame({"prompt_id": ["a", "b"], "prompt_ids": [[1, 2], [3]]})
    monkeypatch.setattr(probe, "sample", sampled)
    monkeypatch.setattr(probe, "read_prompts", lambda split: prompts)
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    params = load_params(ROOT / "params.yaml")
    found = probe.rollout(None, params)
    assert (found.prefill, found.step) == (2.0, 0.5)
