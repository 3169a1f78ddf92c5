"""The stage from files to files: a folder that anything loads, the same bytes each time, models from elsewhere."""

import json
import shutil

import polars as pl
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from stages.common import paths
from stages.common.policy import Models
from stages.common.reward_model import RewardModelError, load_reward_folder, load_reward_model, scores
from stages.common.tables import REWARD_STEPS, read_table
from stages.reward_model.pairs import pairs_of
from stages.reward_model.run import run
from tests.models import remote_code_with_head
from tests.silent import Silent
from tests.stages.reward_model.toy import PREFERRED, RUNTIME, bytes_of, lay_out, params, table
from tests.tiny import gpt2, llama, tiny_tokenizer

SETTINGS = {**PREFERRED, "epochs": 8, "reference_samples": 13}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(settings=None, models=None):
    """Run the stage; its metrics and what it said."""
    journal = Silent()
    run("toy", params({"toy": settings or SETTINGS}), models or Models(RUNTIME), journal)
    return json.loads(paths.reward_metrics("toy").read_text()), journal.said


@pytest.mark.parametrize("method", ["full", "lora"])
def test_folder_steps_and_metrics(folder, method):
    lay_out()
    metrics, said = make({**SETTINGS, "method": method})
    model = AutoModelForSequenceClassification.from_pretrained(paths.reward_model("toy"))
    assert model.config.num_labels == 1
    assert (paths.reward_model("toy") / "model.safetensors").exists()
    assert AutoTokenizer.from_pretrained(paths.reward_model("toy")).chat_template == tiny_tokenizer().chat_template
    assert metrics["heldout"]["accuracy"] == metrics["train"]["accuracy"] == 1.0
    assert (metrics["heldout"]["pairs"], metrics["train"]["pairs"]) == (4, 12)
    assert metrics["heldout"]["gold_accuracy"] is None
    steps = read_table(paths.reward_steps("toy"), REWARD_STEPS, ("step",))
    assert steps["pairs"].to_list() == [4] * 24
    assert steps["epoch"].to_list() == [1 + number // 3 for number in range(24)]
    assert steps["loss"][-1] < steps["loss"][0]
    assert metrics["reference"]["samples"] == 13
    assert json.loads((paths.reward_model("toy") / "normalisation.json").read_text()) == metrics["reference"]
    assert said[-1].startswith("accuracy 1.000 (heldout), accuracy 1.000 (train), scores of the reference ")


def test_metrics_are_those_of_the_folder(folder):
    lay_out()
    metrics, _ = make()
    model = load_reward_model(paths.reward_model("toy"), torch.float32)
    pairs = pairs_of(table().filter(split="heldout"), margin=False)
    found = scores(model, [pair.chosen_ids for pair in pairs], 100)
    assert sum(found) / len(found) == pytest.approx(metrics["heldout"]["chosen"]["mean"], abs=1e-5)
    with torch.no_grad():  # transformers' own forward, one sequence at a time
        theirs = [model(input_ids=torch.tensor([pair.chosen_ids])).logits.item() for pair in pairs]
    assert found == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_same_bytes_twice_and_a_held_reference_is_left_alone(folder, method):
    lay_out()
    models = Models(RUNTIME)
    held = {name: tensor.clone() for name, tensor in models.base().state_dict().items()}
    make({**SETTINGS, "method": method, "epochs": 2}, models)
    first = bytes_of(paths.DATA / "reward_models")
    make({**SETTINGS, "method": method, "epochs": 2}, models)
    assert bytes_of(paths.DATA / "reward_models") == first
    after = models.base().state_dict()
    assert after.keys() == held.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in held.items())


def test_flipped_labels_show_in_the_accuracy_against_gold(folder):
    """Every label is the wrong way round: what is learnt is wrong by gold."""
    gold = {"chosen_gold": 0.0, "rejected_gold": 1.0, "flipped": True}
    lay_out(table(**gold))
    metrics, _ = make()
    assert metrics["train"]["accuracy"] == 1.0
    assert metrics["train"]["gold_accuracy"] == 0.0


def test_without_held_out_pairs_there_are_no_metrics_of_them(folder):
    lay_out(table(split="train"))
    metrics, _ = make({**SETTINGS, "epochs": 1})
    assert set(metrics) == {"train", "reference"}


def test_no_training_pairs_are_told(folder):
    lay_out(table(split="heldout"))
    with pytest.raises(RewardModelError, match=r"toy\.parquet has no training pairs"):
        make()


def foreign(folder, labels=1, make_model=gpt2):
    model = make_model()
    model.save_pretrained(folder / "causal")
    torch.manual_seed(4)
    made = AutoModelForSequenceClassification.from_pretrained(folder / "causal", num_labels=labels)
    made.save_pretrained(folder / "foreign")
    tiny_tokenizer(chat=False).save_pretrained(folder / "foreign")
    return made


def test_a_model_from_elsewhere_is_brought_in(folder):
    lay_out()
    made = foreign(folder)
    metrics, _ = make({"preferences": None, "source": "foreign", "reference_samples": 9})
    assert set(metrics) == {"reference"}
    assert metrics["reference"]["samples"] == 9
    assert metrics["reference"]["std"] > 0
    loaded = load_reward_model(paths.reward_model("toy"), torch.float32)
    assert torch.equal(loaded.score.weight, made.score.weight)
    assert AutoTokenizer.from_pretrained(paths.reward_model("toy")).chat_template is None
    assert pl.read_parquet(paths.reward_steps("toy")).height == 0


def test_two_labels_are_refused(folder):
    lay_out()
    foreign(folder, labels=2, make_model=llama)
    with pytest.raises(RewardModelError, match="foreign: a reward model gives one number, this one has 2 labels"):
        make({"preferences": None, "source": "foreign"})
    assert not paths.reward_model("toy").exists()


def test_a_reward_model_over_code_of_the_base_brings_the_code_along(folder):
    lay_out()
    shutil.rmtree(paths.REFERENCE)
    remote_code_with_head(paths.REFERENCE)
    (paths.REFERENCE / "remote_code.json").write_text('{"allowed_by": "prepare.model.trust_remote_code"}')
    make({**SETTINGS, "method": "lora", "epochs": 1})
    made = paths.reward_model("toy")
    assert (made / "own.py").read_bytes() == (paths.REFERENCE / "own.py").read_bytes()
    model, tokenizer = load_reward_folder(made, RUNTIME)
    assert type(model).__name__ == "OwnForSequenceClassification"
    assert len(tokenizer) == 300
    with pytest.raises(RewardModelError, match="cannot be loaded as a reward model"):
        load_reward_model(made, torch.float32)  # the same folder as a user's: no option allows its code
