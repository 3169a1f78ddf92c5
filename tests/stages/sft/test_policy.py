"""The reference: the base itself, or the base fine-tuned with all weights or an adapter; the same bytes each time."""

import os
import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages.common import paths
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.files import link_folder, publish
from stages.common.policy import Models
from stages.common.tables import DEMONSTRATIONS, SFT_STEPS, read_table, write_table
from stages.sft import policy
from stages.sft.run import run
from stages.sft.training import mean_loss
from stages.sft.weights import stored_dtype
from tests.stages.sft.test_training import learnable, table
from tests.tiny import llama

CPU = Runtime(torch.device("cpu"), torch.float32)
SFT = {"file": "d.jsonl", "learning_rate": 0.02, "batch_sequences": 4, "epochs": 2}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def demonstrations(base):
    write_table(table(learnable(), heldout=4), DEMONSTRATIONS, ("prompt_id",), paths.DEMONSTRATIONS)


def fine_tuned(params, journal, sft=SFT, runtime=CPU, **others):
    run("policy", params(sft, **others), Models(runtime), journal)
    return read_table(paths.SFT_STEPS, SFT_STEPS, ("step",))


def test_without_sft_the_reference_is_the_base_under_another_name(base, params, journal):
    for part in ("demonstrations", "policy"):
        run(part, params(None), Models(CPU), journal)
    assert contents(paths.REFERENCE) == contents(base)
    assert all(os.path.samefile(paths.REFERENCE / name, base / name) for name in contents(base))
    assert read_table(paths.DEMONSTRATIONS, DEMONSTRATIONS, ("prompt_id",)).is_empty()
    assert read_table(paths.SFT_STEPS, SFT_STEPS, ("step",)).is_empty()


def test_links_of_a_read_only_base_that_links_into_a_cache_are_replaced_and_leave_it_alone(base):
    cache = Path("cache")
    shutil.move(base, cache)
    base.mkdir()
    for file in cache.iterdir():
        file.chmod(0o444)
        (base / file.name).symlink_to(file.resolve())
    before = contents(cache)
    for _ in range(2):
        with publish(paths.REFERENCE) as scratch:
            link_folder(base, scratch)
    assert not any(file.is_symlink() for file in paths.REFERENCE.iterdir())
    assert contents(paths.REFERENCE) == before
    with publish(paths.REFERENCE) as scratch:
        scratch.mkdir()
        (scratch / "config.json").write_text("{}")
    assert contents(cache) == before


def test_files_are_copied_where_they_cannot_be_linked(base, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    link_folder(base, Path("copy"))
    assert contents(Path("copy")) == contents(base)
    assert not os.path.samefile(base / "config.json", "copy/config.json")


@pytest.mark.parametrize("method", ["full", "lora"])
def test_fine_tuning_writes_a_plain_model_folder_with_other_weights(base, demonstrations, params, journal, method):
    before = contents(base)
    steps = fine_tuned(params, journal, SFT | {"method": method})
    assert contents(base) == before
    assert set(contents(paths.REFERENCE)) == set(before)
    old, new = load_file(base / "model.safetensors"), load_file(paths.REFERENCE / "model.safetensors")
    assert {name: (t.shape, t.dtype) for name, t in old.items()} == {
        name: (t.shape, t.dtype) for name, t in new.items()
    }
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed == (set(old) if method == "full" else {name for name in old if "proj" in name})
    model = AutoModelForCausalLM.from_pretrained(paths.REFERENCE)
    after = steps["heldout_loss"][-1]
    assert policy_loss(model) == pytest.approx(after, abs=1e-4)
    assert after < 0.7 * steps["heldout_loss"][0]
    assert AutoTokenizer.from_pretrained(paths.REFERENCE).chat_template
    assert journal.said[-1] == f"held-out loss {steps['heldout_loss'][0]:.4f} -> {after:.4f} nats per token in 10 steps"


def policy_loss(model):
    rows = pl.read_parquet(paths.DEMONSTRATIONS).filter(split="heldout")
    return mean_loss(model.eval(), rows, 512, one_by_one=False)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_two_runs_give_the_same_bytes_and_another_seed_others(base, demonstrations, params, journal, method):
    found = []
    for seed in (0, 0, 1):
        fine_tuned(params, journal, SFT | {"method": method}, seed=seed)
        found.append((contents(paths.REFERENCE), paths.SFT_STEPS.read_bytes()))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_models_that_the_process_holds_stay_as_they_are(base, demonstrations, params, journal):
    run("policy", params(None), Models(CPU), journal)
    models = Models(CPU)
    held = models.base()
    before = {name: tensor.clone() for name, tensor in held.state_dict().items()}
    run("policy", params(SFT), models, journal)
    assert all(torch.equal(before[name], tensor) for name, tensor in held.state_dict().items())
    assert not torch.equal(models.base().lm_head.weight, before["lm_head.weight"])


@pytest.mark.parametrize("method", ["full", "lora"])
def test_precision_on_disk_is_the_bases_whatever_is_computed_in(base, demonstrations, params, journal, method):
    low = Runtime(torch.device("cpu"), torch.bfloat16)
    fine_tuned(params, journal, SFT | {"method": method}, runtime=low)
    assert stored_dtype(paths.REFERENCE) == torch.float32
    new = load_file(paths.REFERENCE / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(new[name], new[name].bfloat16().float())  # the masters, or an exact merge
    if method == "lora":
        norm = "model.embed_tokens.weight"
        assert torch.equal(new[norm], load_file(base / "model.safetensors")[norm])
    llama().bfloat16().save_pretrained(base)
    fine_tuned(params, journal, SFT | {"method": method})
    assert stored_dtype(paths.REFERENCE) == torch.bfloat16
    assert AutoModelForCausalLM.from_pretrained(paths.REFERENCE).dtype == torch.bfloat16


def test_demonstrations_of_other_params_are_refused(base, params, journal):
    run("demonstrations", params(None), Models(CPU), journal)
    with pytest.raises(StageError, match=r"demonstrations\.parquet is not of these params"):
        policy.run(params(SFT), CPU, journal)
