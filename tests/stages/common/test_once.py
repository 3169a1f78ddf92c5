"""A model is asked once, and of models that differ in their weights alone only the first."""

import torch
from peft import LoraConfig, get_peft_model

from stages.common.once import once_per_model
from tests.tiny import gpt2, llama


def recording(answer):
    seen = []

    @once_per_model
    def probe(model):
        seen.append(model)
        return answer(model)

    return probe, seen


def test_another_of_the_same_kind_is_not_asked():
    probe, seen = recording(lambda model: True)
    first, second = llama(), llama()
    assert probe(first)
    assert probe(first)
    assert probe(second)
    assert seen == [first]
    for other in (gpt2(), llama().double(), get_peft_model(llama(), LoraConfig(target_modules=["q_proj"]))):
        assert probe(other)
        assert seen[-1] is other


def test_a_no_says_nothing_of_the_next_one():
    probe, seen = recording(lambda model: bool(next(model.parameters()).isfinite().all()))
    broken, sound = llama(), llama()
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    assert not probe(broken)
    assert not probe(broken)
    assert probe(sound)
    assert seen == [broken, sound]


def test_a_yes_that_changed_the_model_says_nothing_of_the_next_one():
    def change(model):
        model.set_attn_implementation("eager")
        return True

    probe, seen = recording(change)
    assert probe(llama())
    assert probe(llama())
    assert len(seen) == 2
