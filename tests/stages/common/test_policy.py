"""Policies as folders, and what a process that keeps models warm must notice."""

import json
import shutil
import weakref

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from stages.common import paths
from stages.common.device import Runtime
from stages.common.model_folder import load_model
from stages.common.params import Lora
from stages.common.policy import (
    Models,
    PolicyError,
    load_tokenizer,
    new_adapter,
    save_new_adapter,
    save_policy,
    trainable,
)
from tests.tiny import save_tiny

RUNTIME = Runtime(torch.device("cpu"), torch.float32)
LORA = Lora(rank=2, alpha=4, targets=["q_proj", "down_proj"])
IDS = torch.tensor([[11, 12, 13, 14]])


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny(paths.REFERENCE)
    return paths.REFERENCE


def make_adapter(name, scale):
    folder = paths.policy(name)
    model = new_adapter(Models(RUNTIME).base(), LORA, 3)
    with torch.no_grad():
        for key, parameter in trainable(model).items():
            if "lora_B" in key:
                parameter.fill_(scale)
    save_new_adapter(model, folder)
    return folder


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def test_a_fresh_adapter_changes_nothing_and_its_bytes_are_repeatable(base):
    folder, again = make_adapter("i0000", 0.0), make_adapter("i0009", 0.0)
    plain = AutoModelForCausalLM.from_pretrained(base)
    assert torch.equal(logits(Models(RUNTIME).policy(folder)), logits(plain))
    for path in folder.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "data/reference"
    assert config["target_modules"] == ["down_proj", "q_proj"]


def test_a_tokenizer_is_read_once_and_again_when_its_files_have_changed(base):
    first = load_tokenizer(base)
    assert load_tokenizer(base.absolute()) is first
    path = base / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 77}))
    assert first.model_max_length != 77
    assert load_tokenizer(base).model_max_length == 77


def test_an_adapter_folder_loads_through_peft(base):
    folder = make_adapter("i0001", 0.05)
    ours = logits(Models(RUNTIME).policy(folder))
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
    assert torch.equal(ours, logits(peft))
    assert not torch.equal(ours, logits(AutoModelForCausalLM.from_pretrained(base)))


def test_the_reference_is_the_base_with_the_adapter_off(base):
    models = Models(RUNTIME)
    policy = models.policy(make_adapter("i0001", 0.05))
    plain = logits(AutoModelForCausalLM.from_pretrained(base))
    with models.reference() as reference:
        assert torch.equal(logits(reference), plain)
    assert not torch.equal(logits(policy), plain)
    assert all(parameter.requires_grad for parameter in trainable(policy).values())


def test_an_adapter_changed_behind_the_back_is_noticed(base):
    folder, models = make_adapter("i0001", 0.05), Models(RUNTIME)
    before = logits(models.policy(folder)).clone()
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({k: v * 2 for k, v in weights.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    after = logits(models.policy(folder))
    assert not torch.equal(before, after)
    assert torch.equal(after, logits(Models(RUNTIME).policy(folder)))


def test_a_base_changed_behind_the_back_is_noticed(base):
    folder, models = make_adapter("i0001", 0.05), Models(RUNTIME)
    before = logits(models.policy(folder)).clone()
    weights = load_file(base / "model.safetensors")
    save_file({k: v * 1.5 for k, v in weights.items()}, base / "model.safetensors", metadata={"format": "pt"})
    after = logits(models.policy(folder))
    assert not torch.equal(before, after)
    assert torch.equal(after, logits(Models(RUNTIME).policy(folder)))


def test_other_models_are_freed_for_the_update_of_all_weights_and_read_again(base):
    models, full = Models(RUNTIME), paths.policy("i0001")
    shutil.copytree(base, full)
    model = models.policy(full)
    with models.reference() as reference:
        before, gone = logits(reference), weakref.ref(reference)
    del reference
    models.keep_policy_alone()
    assert gone() is None
    assert models.policy(full) is model
    with models.reference() as reference:
        assert torch.equal(logits(reference), before)


def test_what_an_adapter_is_built_into_stays(base):
    models = Models(RUNTIME)
    model = models.policy(make_adapter("i0001", 0.05))
    models.keep_policy_alone()
    with models.reference() as reference:
        assert reference is model


def test_switching_between_policies_gives_each_its_own_weights(base):
    one, two, models = make_adapter("i0001", 0.05), make_adapter("i0002", -0.05), Models(RUNTIME)
    first, second = logits(models.policy(one)).clone(), logits(models.policy(two)).clone()
    assert not torch.equal(first, second)
    assert torch.equal(logits(models.policy(one)), first)


def test_an_update_that_failed_half_way_leaves_no_trace(base):
    folder, models = make_adapter("i0001", 0.05), Models(RUNTIME)
    before = logits(models.policy(folder)).clone()
    models.dirty()
    with torch.no_grad():
        for parameter in trainable(models.policy(folder)).values():
            parameter.add_(1.0)
    models.dirty()
    assert torch.equal(logits(models.policy(folder)), before)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_saved_policy_reloads_as_it_was(base, method):
    models = Models(RUNTIME)
    source = make_adapter("i0001", 0.05) if method == "lora" else base
    model = models.policy(source)
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.add_(0.01)
    save_policy(model, source, paths.policy("i0002"))
    assert torch.equal(logits(Models(RUNTIME).policy(paths.policy("i0002"))), logits(model))
    if method == "full":
        assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(paths.policy("i0002"))), logits(model))
        assert (paths.policy("i0002") / "tokenizer.json").exists()
    assert not list(paths.policy("i0002").glob("*.bin"))


def test_targets_that_the_model_lacks_are_refused(base):
    with pytest.raises(PolicyError, match=r"policy\.lora\.targets"):
        new_adapter(Models(RUNTIME).base(), Lora(rank=2, alpha=4, targets=["nonsense"]), 0)


def test_a_folder_that_is_no_model_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths.REFERENCE.mkdir(parents=True)
    with pytest.raises(PolicyError, match="data/reference: not a model folder"):
        Models(RUNTIME).base()


def test_a_byte_that_flips_in_the_file_does_not_flip_in_a_model_that_is_held(base):
    """Weights are mapped from their file when they are loaded, and held over many stages."""
    model = load_model(base, RUNTIME)
    before, path = logits(model), base / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-2] ^= 0x40  # the exponent of a weight
    with path.open("r+b") as file:
        file.write(content)
    assert torch.equal(logits(model), before)
    assert not torch.equal(logits(load_model(base, RUNTIME)), before)
