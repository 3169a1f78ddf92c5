"""Samples of real data, in the formats that users bring, through prepare, a tiny model and score."""

import json
import os
import random
from pathlib import Path

import polars as pl
import pytest

from pipeline.study.runs import workspace
from stages.common import paths
from tests.models import PREPARATION, grouped_queries, params_for
from tests.stages.preferences.test_file import is_complete, majority_pairs

FOLDER = Path(os.environ.get("RLOO_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
GSM8K, PANDALM = FOLDER / "gsm8k_test.jsonl", FOLDER / "pandalm_testset_v1.json"
SCORED = "i0001"


@pytest.fixture
def params(tmp_path, monkeypatch):
    """Params of a run on a tiny model in a folder of its own, by the options that differ."""
    monkeypatch.chdir(tmp_path)
    folder = grouped_queries(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    return lambda changes: params_for(folder, {"prepare.prompts.embedded": None} | changes)


def scored(params, *more):
    """The scores of one iteration."""
    start = PREPARATION.index(("prepare", "policy"))
    stages = (*PREPARATION[:start], *more, *PREPARATION[start:], ("rollout", SCORED), ("score", SCORED))
    for stage, name in stages:
        workspace.run(stage, name, params)
    return pl.read_parquet(paths.scores(SCORED))


@pytest.mark.skipif(not GSM8K.exists(), reason="the sample of GSM8K is not here")
def test_gsm8k(params):
    rewards = {
        name: {"function": f"stages.score.{module}", "arguments": {"gold_extract": {"after": "####"}}}
        for name, module in (("numeric", "numeric_match:numeric_match"), ("mathematics", "math_answer:math_answer"))
    }
    rewards["length"] = {"function": "stages.score.length:length_penalty", "arguments": {"scale": 4, "high": 2}}
    file = {"train": str(GSM8K), "rename": {"question": "prompt"}, "columns": {"answer": "string"}}
    table = scored(
        params(
            {
                "prepare.prompts.file": file | {"train_prompts": 40, "heldout_prompts": 20},
                "prepare.prompts.verify": {"reward": "numeric", "completion": "{answer}", "failing": "refuse"},
                "score.rewards": rewards,
            }
        )
    )
    report = json.loads(paths.PROMPTS_JSON.read_text())
    assert report["golden"]["checked"] == 60
    assert report["golden"]["failing"] == []
    assert all(table[f"status/{name}"].unique().to_list() == ["ok"] for name in rewards)
    assert table["reward/numeric"].to_list() == table["reward/mathematics"].to_list()
    assert table["reward/length"].min() < 0


@pytest.mark.skipif(not PANDALM.exists(), reason="the sample of PandaLM is not here")
def test_preferences_of_pandalm(params):
    pairs = random.Random(0).sample([row for row in majority_pairs() if is_complete(row)], 24)
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in pairs))
    options = {"preferences": {"file": "pairs.jsonl", "heldout": 0.25}, "reference_samples": 4}
    table = scored(
        params(
            {
                "prepare.prompts.file": {"train": "prompts.jsonl", "heldout_prompts": 6},
                "reward_models": {"human": options},
                "score.rewards": {"human": {"model": "human", "normalise": True}},
            }
        ),
        ("preferences", "human"),
        ("reward_model", "human"),
    )
    assert pl.read_parquet(paths.preferences("human")).height == 24
    assert table["status/human"].unique().to_list() == ["ok"]
    assert table["reward/human"].n_unique() > 1
