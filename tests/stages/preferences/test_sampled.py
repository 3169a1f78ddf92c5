"""Pairs of the reference's own answers, labelled by a gold function."""

import polars as pl
import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.common.gate import check_preferences
from stages.common.seeds import seed_of
from stages.common.tables import TableError
from tests.stages.preferences.project import Project

GOLD = "gold_of_tests.py:gold"
CODE = '''
def gold(completions, completion_ids, wanted, prompts, scale=1.0, **columns):
    """Null for a third of the prompts; reads a column of the dataset."""
    assert len(completions) == len(completion_ids) == len(wanted) == len(prompts)
    return [None if w == 0 else scale * (w + sum(ids) % 5) for ids, w in zip(completion_ids, wanted, strict=True)]

def short(completions, **columns):
    return [1.0]

def strict(prompts, completions, completion_ids):
    return []
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "gold_of_tests.py").write_text(CODE)
    return Project(tmp_path, monkeypatch)


def sampled(**changes):
    return {"prompts": 24, "gold": GOLD} | changes


def test_chosen_has_the_higher_gold_and_the_rest_is_counted(project):
    table = project.pairs(sampled=sampled(), heldout=0.3)
    assert not table["flipped"].any()
    assert (table["chosen_gold"] > table["rejected_gold"]).all()
    wanted = {f"train-{n:05d}": n % 3 for n in range(24)}
    for row in table.to_dicts():
        for side in ("chosen", "rejected"):
            assert row[f"{side}_gold"] == wanted[row["pair_id"]] + sum(row[f"{side}_ids"]) % 5
    assert 0 < table.height <= 16
    assert set(table["split"]) == {"train", "heldout"}
    said = next(said for said in project.said if said.startswith("24 prompts"))
    assert f"{table.height} pairs" in said
    assert "8 not scorable" in said
    assert "held out; 0.0% flipped, mean gold of chosen less rejected " in project.said[-1]


def test_prompts_are_training_prompts_with_their_own_ids(project):
    table = project.pairs(sampled=sampled())
    prompts = pl.read_parquet(paths.PROMPTS).filter(split="train")
    joined = table.join(prompts, left_on="pair_id", right_on="prompt_id", how="inner")
    assert joined.height == table.height
    assert (joined["prompt_ids"] == joined["prompt_ids_right"]).all()
    assert (joined["prompt"] == joined["prompt_right"]).all()


def test_answers_are_those_of_the_sampler_with_hashed_seeds(project):
    table = project.pairs(sampled=sampled())
    before = {frozenset(map(tuple, pair)) for pair in table.select("chosen_ids", "rejected_ids").iter_rows()}
    project.raw["rollout"]["batch_tokens"] = 200
    other = project.pairs(sampled=sampled())
    assert {frozenset(map(tuple, pair)) for pair in other.select("chosen_ids", "rejected_ids").iter_rows()} == before
    project.raw["rollout"]["temperature"] = 0.3
    assert not project.pairs(sampled=sampled()).equals(table)


def test_same_bytes_twice(project):
    contents = set()
    for _ in range(2):
        project.pairs(sampled=sampled(noise=0.3, temperature=1.0))
        contents.add(paths.preferences("gold").read_bytes())
    assert len(contents) == 1


def test_flipped_pairs_are_the_clean_ones_the_other_way_round(project):
    clean = project.pairs(sampled=sampled())
    noisy = project.pairs(sampled=sampled(noise=0.5))
    assert clean["pair_id"].to_list() == noisy["pair_id"].to_list()
    assert 0 < noisy["flipped"].sum() < noisy.height
    for one, other in zip(clean.to_dicts(), noisy.to_dicts(), strict=True):
        ends = ("chosen", "rejected") if not other["flipped"] else ("rejected", "chosen")
        for part in ("", "_ids", "_gold"):
            assert [one[f"chosen{part}"], one[f"rejected{part}"]] == [other[f"{end}{part}"] for end in ends]


def test_names_get_prompts_of_their_own(project):
    first = project.pairs("gold", sampled=sampled(prompts=12))
    other = project.pairs("other", sampled=sampled(prompts=12))
    expected = {
        name: set(sorted((f"train-{n:05d}" for n in range(24)), key=lambda i: seed_of(0, "preferences", name, i))[:12])
        for name in ("gold", "other")
    }
    assert set(first["pair_id"]) <= expected["gold"]
    assert set(other["pair_id"]) <= expected["other"]
    assert expected["gold"] != expected["other"]


def test_more_prompts_keep_the_pairs_of_the_fewer(project):
    few = project.pairs(sampled=sampled(prompts=16)).drop("split")
    many = project.pairs(sampled=sampled(prompts=24)).drop("split")
    assert few.height < many.height
    assert many.join(few.select("pair_id"), on="pair_id", how="semi").equals(few)


def test_arguments_reach_the_gold_function(project):
    one = project.pairs(sampled=sampled())
    ten = project.pairs(sampled=sampled(arguments={"scale": 10.0}))
    assert (ten["chosen_gold"] == 10 * one["chosen_gold"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": 25}, r"preferences.sampled.prompts = 25: there are 24 training prompts \(prepare.prompts\)"),
        (
            {"gold": "stages.score.nothing:here"},
            r"reward_models.gold.preferences.sampled.gold = .*: ModuleNotFoundError",
        ),
        (
            {"gold": "gold_of_tests.py:strict", "arguments": {"colour": 1}},
            "reward_models.gold.preferences.sampled.arguments: gold_of_tests.py:strict takes no colour",
        ),
        ({"gold": "gold_of_tests.py:short"}, "returned 1 values for 48 completions"),
        (
            {"arguments": {"wanted": 1}},
            r"sampled.arguments: \['wanted'\] are columns that the function receives anyway",
        ),
    ],
)
def test_told(project, changes, message):
    with pytest.raises(StageError, match=message):
        project.pairs(sampled=sampled(**changes))


GATE = {"pair_id": "a", "split": "train", "prompt_ids": [1], "chosen_ids": [1], "rejected_ids": [2], "flipped": False}
GATE |= {"chosen_gold": None, "rejected_gold": None, "margin": None}
FLOATS = {"chosen_gold": pl.Float64, "rejected_gold": pl.Float64, "margin": pl.Float64}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"prompt_ids": []}, "prompt_ids has at least one token"),
        ({"chosen_ids": []}, "chosen_ids has at least one token"),
        ({"rejected_ids": [1]}, "chosen and rejected differ"),
        ({"split": "test"}, "split is train or heldout"),
        ({"split": "heldout"}, "the pairs of a prompt are on one side"),
        ({"chosen_gold": 1.0}, "both answers have a gold score or neither"),
        ({"chosen_gold": 1.0, "rejected_gold": 2.0}, "flipped where gold prefers the rejected"),
        ({"flipped": True}, "flipped where gold prefers the rejected"),
        ({"margin": float("nan")}, "margin is finite or null"),
    ],
)
def test_gate(changes, rule):
    good = pl.DataFrame([GATE, GATE | {"pair_id": "b"}], schema_overrides=FLOATS)
    check_preferences(good)
    with pytest.raises(TableError, match=f"{rule}.*pair_id="):
        check_preferences(pl.DataFrame([GATE, GATE | {"pair_id": "b"} | changes], schema_overrides=FLOATS))
