"""What Prefect shows of a completion, and under which key the progress of a stage."""

import pytest
from prefect.client.schemas.actions import ArtifactCreate

from pipeline import artifacts
from pipeline.artifacts import _card, progress_key
from pipeline.door import stage_id

ROW = {
    "prompt": "Say it.",
    "completion": "~~~ It. ~~~",
    "prompt_id": "train-00001",
    "sample": 2,
    "task_reward": 1.0,
    "score": 0.9,
    "baseline": 0.25,
    "advantage": 0.65,
    "estimator": "rloo",
}


def test_a_card_shows_the_answer_verbatim_and_its_numbers():
    card = _card(ROW)
    assert "~~~~text\n~~~ It. ~~~\n~~~~" in card
    assert card.endswith("reward 1.000, score 0.900, baseline 0.250, advantage +0.650 by rloo")


def test_an_estimator_without_a_baseline_has_none():
    assert "baseline none, advantage +1.000 by raft" in _card(
        ROW | {"baseline": None, "advantage": 1.0, "estimator": "raft"}
    )


@pytest.mark.parametrize("dvc_name", ["rollout@i0003", "reward_model@my_model", "offline@by_dpo", "sft_policy"])
def test_prefect_takes_the_keys_of_all_stages(dvc_name):
    key = progress_key(stage_id(dvc_name, "i0003"))
    assert ArtifactCreate(key=key).key == key


@pytest.mark.parametrize(("seconds", "shown"), [(3600.0, []), (0.0, [50.0, 100.0])])
def test_only_a_stage_that_takes_its_time_has_a_progress_artifact(monkeypatch, seconds, shown):
    told = []
    monkeypatch.setattr(artifacts, "PROGRESS_SECONDS", seconds)
    monkeypatch.setattr(artifacts, "create_progress_artifact", lambda percent, **_: told.append(percent))
    monkeypatch.setattr(artifacts, "update_progress_artifact", lambda _, percent: told.append(percent))
    with artifacts.progress(stage_id("rollout@i0003", "i0003")) as tell:
        tell([{"event": "progress", "done": 1, "total": 2}])
    assert told == shown
