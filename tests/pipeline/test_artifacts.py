"""What Prefect shows of a completion."""

from pipeline.artifacts import _card

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
