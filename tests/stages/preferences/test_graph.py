"""The stage as DVC runs it: what re-runs it, and what does not."""

import polars as pl
import pytest

from stages.common.paths import REFERENCE
from stages.common.tables import PREFERENCES, read_table
from tests.manifests import finish
from tests.stages.preferences.project import write_lines
from tests.tiny import save_tiny
from tests.workspace import Workspace, tiny_params

PAIRS = [{"prompt": f"Why {n}?", "chosen": "So.", "rejected": "No."} for n in range(10)]
GOLD = {"prompts": 12, "gold": "stages.score.varied:varied", "noise": 0.2}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    model = save_tiny(folder / "model")
    params = tiny_params(model)
    params["reward_models"] = {
        "human": {"preferences": {"file": "pairs.jsonl"}},
        "gold": {"preferences": {"sampled": GOLD}},
        "given": {"preferences": None, "source": str(model)},
    }
    found = Workspace(folder / "project", params)
    write_lines(found.folder / "pairs.jsonl", PAIRS)
    save_tiny(found.folder / REFERENCE)
    finish(found.folder, "sft", "policy", REFERENCE)
    found.plan(1)
    with found.warm():
        for stage in ("prepare_sources", "prepare_model", "prepare_prompts"):
            found.run("dvc", "repro", "-s", stage)
        for name in params["reward_models"]:
            found.run("dvc", "repro", "-s", f"preferences@{name}")
        yield found


def table(workspace, name):
    return read_table(workspace.folder / "data" / "preferences" / f"{name}.parquet", PREFERENCES, ("pair_id",))


def test_every_kind_of_reward_model_has_its_table(workspace):
    assert table(workspace, "human").height == 10
    assert table(workspace, "given").height == 0
    gold = table(workspace, "gold")
    assert 4 <= gold.height <= 12
    assert gold["flipped"].equals((gold["chosen_gold"] < gold["rejected_gold"]).rename("flipped"))


@pytest.mark.parametrize(
    ("key", "value", "again"),
    [
        ("reward_models.human.learning_rate", 1e-4, False),
        ("reward_models.gold.preferences.heldout", 0.5, False),
        ("update.learning_rate", 0.5, False),
        ("reward_models.human.preferences.heldout", 0.3, True),
        ("prepare.prompts.system", None, True),
    ],
)
def test_what_runs_it_again(workspace, key, value, again):
    before = workspace.starts()
    workspace.change(key, value)
    workspace.run("dvc", "repro", "-s", "preferences@human")
    assert workspace.computed_since(before) == ({"preferences human"} if again else set())


def test_a_changed_file_is_noticed_by_its_hash_alone(workspace):
    before = workspace.starts()
    write_lines(workspace.folder / "pairs.jsonl", PAIRS[:8])
    workspace.run("dvc", "repro", "-s", "preferences@human")
    assert workspace.computed_since(before) == set()
    workspace.change("reward_models.human.preferences.sha256", "0" * 64)
    assert "pairs.jsonl: its hash is " in workspace.fail("python", "-m", "stages.preferences", "human")
    workspace.change("reward_models.human.preferences.sha256", None)
    workspace.run("dvc", "repro", "-f", "-s", "preferences@human")
    assert table(workspace, "human").select(pl.len()).item() == 8
