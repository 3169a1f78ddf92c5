"""The trainings before the iterations, and those beside them, go on after a stop as if there had been none."""

from pathlib import Path

import pytest
import torch

from stages.common.kept.keeping import current, keeping
from stages.common.kept.steps import state_of
from stages.common.optimizer import StoredAdamW
from stages.common.params import RewardModel
from stages.common.policy import trainable
from stages.offline import train as offline
from stages.offline.pairs import Splits
from stages.reward_model import train as reward_model
from stages.reward_model.initial import new_reward_model
from stages.reward_model.pairs import pairs_of
from stages.sft import training as sft
from tests.silent import Silent
from tests.stages.offline.test_train import reading, referenced, settings
from tests.stages.reward_model.toy import PREFERRED, RUNTIME
from tests.stages.reward_model.toy import table as preferences
from tests.stages.sft.test_training import SFT, learnable, table
from tests.tiny import llama, save_tiny


class Stopping(Silent):
    """Ends the training with an error at a step; hears what was resumed."""

    def __init__(self, stop=None):
        super().__init__()
        self.stop, self.found = stop, []

    def progress(self, done, total, unit):
        if done == self.stop:
            raise RuntimeError("stopped")

    def resumed(self, done, total, unit):
        self.found.append((done, total, unit))


def of_sft(journal):
    model = llama().requires_grad_(True)
    return model, sft.train(model, StoredAdamW(trainable(model), SFT), table(learnable(), heldout=4), SFT, 0, journal)


def of_reward_model(journal):
    if not Path("model").exists():
        save_tiny(Path("model"))
    model = new_reward_model(Path("model"), RUNTIME, 0, frozenset({0}))[0].requires_grad_(True)
    options = RewardModel(**{**PREFERRED, "epochs": 3})
    return model, reward_model.train(model, pairs_of(preferences(), margin=False), options, 3, journal)


def of_offline(journal):
    pairs, options, model = referenced(), settings("dpo", epochs=3), llama().requires_grad_(True)
    splits, optimizer = Splits(pairs[4:], pairs[:4]), StoredAdamW(trainable(model), options)
    work = offline.work_of(model, splits, options, reading(), 0)
    state = state_of(work, optimizer) if current() else None
    return model, offline.train(model, optimizer, splits, options, reading(), 0, journal, state)


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("train", "stops"), [(of_sft, (11, 25)), (of_reward_model, (3, 5)), (of_offline, (4, 8))])
def test_a_training_that_was_stopped_twice_ends_as_one_that_was_not(train, stops):
    """Before and after the measurement at the end of an epoch."""
    model, expected = train(Stopping())
    for stop in stops:
        journal = Stopping(stop)
        with pytest.raises(RuntimeError, match="stopped"), keeping("offline", "dpo", 0, journal):
            train(journal)
    journal = Stopping()
    with keeping("offline", "dpo", 0, journal):
        again, found = train(journal)
    assert found == expected
    ((done, total, unit),) = journal.found
    assert stops[-1] - 1 <= done < total
    assert unit == "optimizer steps"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
