"""The README's own options are options: put into params.yaml, they make a valid run."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

from stages.common.params_file import parse_params

ROOT = Path(__file__).parents[2]


def merged(base: Any, own: Any) -> Any:
    """`own` over `base`, section by section."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | {key: merged(base.get(key), value) for key, value in own.items()}


def test_options_for_a_model_prompts_and_rewards_of_ones_own():
    section = (ROOT / "README.md").read_text().partition("## Your own model, prompts and reward")[2]
    block = section.partition("options change:\n")[2].partition("\n(each beside")[0]
    own = yaml.safe_load(dedent(block))
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    params = parse_params(merged(raw, own), "README.md")
    assert params.prepare.prompts.file.train == "my_prompts.jsonl"
    assert {"correct", "brief"} <= set(params.score.rewards)
    assert (
        sum(own["score"]["rewards"][name]["weight"] for name in ("correct", "brief")) == params.advantage.correct_reward
    )
