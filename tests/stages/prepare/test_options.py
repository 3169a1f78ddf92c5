"""`prepare options` tells what would otherwise be found out after fine-tuning, or by the first scores."""

import json
import time

import polars as pl
import pytest
import torch
import yaml

from pipeline.train import preparation
from stages.common import paths
from stages.common.adapter import new_adapter
from stages.common.errors import StageError
from stages.common.params import Lora
from stages.common.tables import PROMPTS, write_table
from stages.prepare import adapters, options, sources
from tests.models import bfloat16, gpt2, params_for, remote_code, remote_code_with_head, small_llama, tied
from tests.silent import Silent
from tests.workspace import ROOT

RM = {"preferences": {"sampled": {"prompts": 1, "gold": "tests.models:varied"}}, "method": "lora"}
SFT = {"best_of": {"prompts": 1, "samples": 2}, "learning_rate": 1e-5, "method": "lora"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The working folder has prompts of 3 and 5 tokens to train on, and a held-out one of 9."""
    monkeypatch.chdir(tmp_path)
    lengths = {"short": ("train", 3), "long": ("train", 5), "held": ("heldout", 9)}
    rows = [
        dict.fromkeys(PROMPTS) | {"prompt_id": name, "split": split, "prompt_ids": [1] * length}
        for name, (split, length) in lengths.items()
    ]
    write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), paths.PROMPTS)
    return tmp_path


def told(changes):
    """The error, or an empty text."""
    try:
        options.run(params_for(paths.BASE, changes), Silent())
    except StageError as error:
        assert not paths.SFT_SOURCE.exists()
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("make", "changes", "expected"),
    [
        (tied, {}, ""),
        (tied, {"policy.lora.targets": ["q_proj", "lm_head"]}, "lm_head shares its weights with the embeddings"),
        (tied, {"policy.lora.targets": ["c_attn"]}, "policy.lora.targets = ['c_attn']"),
        (tied, {"policy.lora.last_layers": 3}, "policy.lora.last_layers = 3: the model has 2 layers"),
        (bfloat16, {"policy.lora.targets": ["embed_tokens"]}, "embed_tokens is the embeddings"),
        (gpt2, {"policy.lora.targets": ["c_attn"]}, ""),
        (
            gpt2,
            {"policy.lora.targets": ["q_proj"]},
            "no layer q_proj; its linear layers are c_attn, c_fc, c_proj, lm_head",
        ),
        (gpt2, {"policy.lora.targets": ["q_proj"], "policy.method": "full"}, ""),
        (gpt2, {"policy.lora.targets": ["q_proj"], "policy.method": "full", "sft": SFT}, "targets = ['q_proj']"),
        (
            gpt2,
            {"policy.lora.targets": ["q_proj"], "policy.method": "full", "reward_models": {"rm": RM}},
            "targets = ['q_proj']",
        ),
        (remote_code, {}, ""),
        (remote_code_with_head, {"reward_models": {"rm": RM}}, ""),
        (remote_code, {"reward_models": {"rm": RM}}, "reward_models.rm: there is no sequence classification"),
    ],
)
def test_an_adapter_or_a_head_that_does_not_fit_the_base(project, make, changes, expected):
    make(paths.BASE)
    if make in (remote_code, remote_code_with_head):
        (paths.BASE / "remote_code.json").write_text("{}")
    found = told(changes)
    assert expected in found
    assert bool(found) == bool(expected)


def test_what_is_tried_has_no_weights_takes_no_time_and_draws_no_number(project):
    """A model of a gigabyte in a few seconds; adapters have the same shapes as on the model itself."""
    config = small_llama().config
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 1024, 4096, 16
    config.save_pretrained(paths.BASE)
    before, started = torch.random.get_rng_state(), time.monotonic()
    adapters.check_adapters(params_for(paths.BASE), Silent())
    assert time.monotonic() - started < 10
    assert torch.equal(before, torch.random.get_rng_state())


def test_on_the_meta_device_an_adapter_is_the_same(project):
    tied(paths.BASE)
    lora = Lora(rank=2, alpha=4.0, targets=["q_proj", "down_proj"], last_layers=1)
    model = adapters.without_weights(adapters.AutoModelForCausalLM.from_config, Silent())
    assert all(one.is_meta for one in model.parameters())
    shapes = [
        {name: one.shape for name, one in new_adapter(base, lora, 0).named_parameters()}
        for base in (model, small_llama(tie_word_embeddings=True))
    ]
    assert shapes[0] == shapes[1]


def with_reference(positions):
    paths.KL_REFERENCE.mkdir(parents=True)
    config = small_llama().config
    config.max_position_embeddings = positions
    config.save_pretrained(paths.KL_REFERENCE)


@pytest.mark.parametrize(
    ("positions", "changes", "expected"),
    [
        (17, {}, ""),  # 5 + 12
        (16, {}, "it has 16 positions; prompt long has 5 tokens, and with rollout.max_new_tokens = 12 that is more"),
        (16, {"rollout.max_new_tokens": 11}, ""),
        (12, {}, "lower rollout.max_new_tokens"),
        (20, {"evaluate.kl": True}, "prompt held has 9 tokens"),
        (21, {"evaluate.kl": True}, ""),
        (20, {"evaluate.kl": True, "score.kl.beta": 0.0}, "prompt held has 9 tokens"),
    ],
)
def test_a_reference_with_fewer_positions_than_prompt_and_answer_need(project, positions, changes, expected):
    tied(paths.BASE)
    with_reference(positions)
    changes = {"evaluate.kl": False, "prepare.reference": {"source": "other"}} | changes
    found = told(changes)
    assert expected in found
    assert bool(found) == bool(expected)
    if expected and positions > 12:
        assert "set prepare.prompts.max_tokens to" in found


def test_the_reference_and_the_options_come_before_fine_tuning(monkeypatch):
    monkeypatch.chdir(ROOT)
    order = preparation()
    assert order.index("prepare_model") + 1 == order.index("prepare_reference")
    assert order.index("prepare_options") < order.index("sft_demonstrations")
    deps = stages_of_dvc()
    assert {"data/base", "data/kl_reference"} <= set(deps["prepare_options"]["deps"])
    assert set(deps["prepare_options"]["outs"]) & set(deps["sft_demonstrations"]["deps"])


def stages_of_dvc():
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def test_what_the_reference_reads_is_among_the_sources(project):
    (project / "model").mkdir()
    (project / "model/config.json").write_text("{}")
    sources.run(params_for(project / "model", {"score.kl.beta": 0.0, "evaluate.kl": "auto"}), Silent())
    found = json.loads((paths.SOURCES / "options.json").read_text())
    assert found == {"reference_reads": {"heldout": False, "train": False}}


KEYED = {"function": "tests.models:varied", "arguments": {"key_variable": "RLOO_TEST_NO_KEY"}}
ENDPOINT = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "key_variable": "RLOO_TEST_NO_KEY"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"score.rewards": {"paid": KEYED}}, "score.rewards.paid.arguments.key_variable"),
        ({"evaluate.rewards": {"paid": KEYED}}, "evaluate.rewards.paid.arguments.key_variable"),
        ({"judge": {"endpoint": ENDPOINT}}, "judge.endpoint.key_variable"),
        ({"judge": KEYED}, "judge.arguments.key_variable"),
    ],
)
def test_a_key_that_the_environment_lacks(project, monkeypatch, changes, place):
    tied(paths.BASE)
    changes = changes | {"policy.method": "full"}
    assert f"params.yaml: {place}: the environment has no RLOO_TEST_NO_KEY" in told(changes)
    monkeypatch.setenv("RLOO_TEST_NO_KEY", "")
    assert "RLOO_TEST_NO_KEY" in told(changes)
    monkeypatch.setenv("RLOO_TEST_NO_KEY", "secret")
    assert told(changes) == ""
