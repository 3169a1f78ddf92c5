"""Sampling in bfloat16: from a copy of the policy as it is, which is gone afterwards; the policy is never rounded."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from stages.common.journal import Journal
from stages.common.kept.key import identify, identity_of, key_of, weights_hash
from stages.common.params import Rollout
from stages.common.seeds import seed_of
from stages.rollout.sampler import sample
from stages.rollout.samples import Request, SamplerSettings
from stages.rollout.skeleton import copied
from stages.rollout.weights import sampling_weights
from tests.tiny import gpt2, llama

SETTINGS = SamplerSettings(8, 1.0, frozenset(), 400)
REQUESTS = [Request([11, 12, 13], [seed_of(s) for s in range(6)])]


def adapted():
    torch.manual_seed(0)
    return get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)).eval()


def options(dtype):
    return Rollout(prompts_per_iteration=1, samples_per_prompt=2, max_new_tokens=8, temperature=1.0, dtype=dtype)


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Journal("rollout", "i0001")


@pytest.mark.parametrize("made", [llama, gpt2, adapted])
def test_the_copy_is_the_policy_rounded_and_the_policy_is_not(made, journal):
    policy = made()
    before, shared = weights_hash(policy), dict(policy.named_parameters(remove_duplicate=False))
    rounded = made().to(torch.bfloat16)
    for name, buffer in made().named_buffers():
        rounded.get_buffer(name).data = buffer  # positions are never rounded
    with sampling_weights(policy, options("bfloat16"), journal) as model:
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        assert not {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in shared.values()}
        assert len(list(model.parameters())) == len(list(policy.parameters()))  # tied as they were
        found = sample(model, REQUESTS, SETTINGS)
        assert found == sample(rounded, REQUESTS, SETTINGS)
        gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert weights_hash(policy) == before
    assert found != sample(policy, REQUESTS, SETTINGS)


def test_a_copy_follows_the_policy_and_is_known_by_its_content(journal):
    policy = llama()
    keys = []
    for change in (0.0, 0.0, 0.1):
        with torch.no_grad():
            next(policy.parameters()).add_(change)
        with sampling_weights(policy, options("bfloat16"), journal) as model:
            assert identity_of(model) == identity_of(policy)
            assert torch.equal(next(model.parameters()), next(policy.parameters()).bfloat16())
            keys.append(key_of({}, model, {}))
        keys.append(key_of({}, policy, {}))
    assert len(set(keys)) == 4  # two contents in two precisions
    identify(policy, "files")
    with sampling_weights(policy, options("bfloat16"), journal) as model:
        assert identity_of(model) == "files"


def test_processes_sample_from_the_copy_too(journal):
    torch.set_num_threads(1)
    with sampling_weights(llama(), options("bfloat16"), journal) as model:
        assert sample(model, REQUESTS * 3, replace(SETTINGS, processes=2)) == sample(model, REQUESTS * 3, SETTINGS)


def test_without_the_option_the_policy_itself_samples(journal):
    policy = llama()
    with sampling_weights(policy, options(None), journal) as model:
        assert model is policy
    already = copied(policy, torch.bfloat16)
    with sampling_weights(already, options("bfloat16"), journal) as model:
        assert model is already
    assert "rollout.dtype has no effect" in journal.path.read_text()


def test_a_processor_that_has_to_convert_says_so(journal, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with sampling_weights(llama(), options("bfloat16"), journal):
        pass
    assert "no instructions for bfloat16" in journal.path.read_text()
