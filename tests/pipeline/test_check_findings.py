"""What a check makes of facts that are there already: how much is trained, at which rate, and the memory it wants."""

from types import SimpleNamespace

import pytest
import torch
import yaml

from pipeline.check.examine import trained
from pipeline.check.resources import needed_memory
from stages.common.params_file import parse_params
from tests.workspace import ROOT


def work(method, **update):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["policy"]["method"] = method
    raw["update"] |= update
    config = SimpleNamespace(vocab_size=100, num_attention_heads=2, hidden_size=8, num_hidden_layers=1)
    runtime = SimpleNamespace(dtype=torch.float32)
    facts = {"runtime": runtime, "parameters": 1000, "trainable": 900, "largest": 200, "config": config, "longest": 9}
    return SimpleNamespace(params=parse_params(raw, "params.yaml"), facts=facts)


@pytest.mark.parametrize(
    ("method", "rate", "level"), [("lora", 1.4e-3, "ok"), ("full", 1.4e-3, "warning"), ("full", 1e-5, "ok")]
)
def test_a_rate_of_adapters_is_warned_of_where_all_weights_are_trained(method, rate, level):
    found = trained(work(method, learning_rate=rate))
    assert found.level == level
    assert ("update.learning_rate 0.0014" in found.text) is (level == "warning")


def test_moments_are_in_memory_together_only_where_there_are_several_steps():
    one, many = (needed_memory(work("full", objective="ppo", epochs=epochs)) for epochs in (1, 2))
    assert one["update"]["moments"] == 8 * 2 * 200  # of two parameters at a time
    assert many["update"]["moments"] == 8 * 900
    assert one["diagnose"]["gradients"] == 3 * 4 * 900
