"""A folder with a tiny base model, and params of fine-tuning it."""

import copy

import pytest
import yaml

from stages.common.params_file import parse_params
from tests.silent import Silent
from tests.tiny import save_tiny
from tests.workspace import ROOT


@pytest.fixture
def journal():
    return Silent()


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The working folder is a new one whose data/base is the tiny model."""
    monkeypatch.chdir(tmp_path)
    return save_tiny(tmp_path / "data" / "base")


@pytest.fixture
def params():
    """Makes params with a section `sft`; other options by their path, such as `policy.lora.rank`."""
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["rollout"] |= {"stop_tokens": ["<|end|>", "<|stop|>"], "max_new_tokens": 8, "temperature": 1.0}
    raw["policy"]["lora"] |= {"rank": 2, "alpha": 4, "last_layers": None}
    raw["prepare"]["prompts"]["system"] = None

    def make(sft, **others):
        made = copy.deepcopy(raw) | {"sft": sft}
        for path, value in others.items():
            *sections, name = path.split("__")
            section = made
            for part in sections:
                section = section[part]
            section[name] = value
        return parse_params(made, "params.yaml")

    return make
