"""Users' files by `dvc repro` and `rloo train`: what changes runs again, what is only touched does not."""

import json
import shutil

import polars as pl
import pytest

from tests.pipeline.test_methods import table

REWARD = """
from beside import FIVE

def brief(prompts, completions, completion_ids, answer, **columns):
    assert prompts[0][-1]["role"] == "user" and completions[0][0]["role"] == "assistant"
    return [{scale} * (sum(ids) % FIVE) / FIVE if a else None for ids, a in zip(completion_ids, answer)]
"""


def conversations(count):
    """Rows of prompt and answer, in JSON Lines."""
    turns = [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "Yes."}]
    rows = [{"prompt": [*turns, {"role": "user", "content": f"{n} + 1"}], "answer": str(n + 1)} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def run(new_workspace, tiny_model):
    """An iteration by the flow, on a user's model folder, file of conversations and function, without a penalty; and
    what `rloo check` said of it before.
    """
    made = new_workspace()
    beside = made.folder.parent
    shutil.copytree(tiny_model, beside / "model")
    (made.folder / "mine").mkdir()
    (made.folder / "mine/own.py").write_text(REWARD.format(scale=1.0))
    (made.folder / "mine/beside.py").write_text("FIVE = 5\n")
    (made.folder / "mine/prompts.jsonl").write_text(conversations(12))
    made.change("prepare.prompts.embedded", None)
    made.change("prepare.prompts.file", {"train": "mine/prompts.jsonl", "heldout_prompts": 4})
    made.change("evaluate.parts", None)
    made.change("prepare.model.source", str(beside / "model"))
    made.change("score.rewards", {"brief": {"function": "mine/own.py:brief"}})
    made.change("score.kl.beta", 0.0)
    made.plan(1, 1)
    made.checked = made.run("rloo", "check")
    made.output = made.run("rloo", "train")
    with made.warm():
        yield made


def test_a_run_without_a_penalty_is_shown_with_a_dash(run):
    assert "KL      -" in run.output
    assert "prepare_sources" not in run.output
    assert table(run, "scores")["kl"].null_count() == table(run, "scores").height
    for what in ("history", "diagnostics", "eval"):
        run.run("rloo", "show", what)
    assert "-" in run.run("rloo", "show", "rows", "i0001", "--count", "1")
    run.run("rloo", "compare", "i0001", "--estimators", "rloo,grpo", "--no-gradients")
    run.run("dvc", "plots", "show", "--out", "dvc_plots")


def test_the_flow_leaves_nothing_to_do_and_touching_runs_nothing(run):
    assert run.nothing_to_do(run.run("dvc", "repro"))
    for path in (run.folder.parent / "model").iterdir():
        path.touch()
    before = run.starts()
    assert run.nothing_to_do(run.run("dvc", "repro"))
    assert run.computed_since(before) == set()


def test_a_model_that_changes_in_its_folder_is_imported_again(run):
    before = run.starts()
    path = run.folder.parent / "model" / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"pad_token": "<|end|>"', '"pad_token": "<|stop|>"'))
    run.run("dvc", "repro", "prepare_model")
    assert run.computed_since(before) == {"prepare model"}


def test_a_reward_that_changes_scores_again_and_samples_nothing(run):
    run.run("dvc", "repro")
    before = run.starts()
    (run.folder / "mine/own.py").write_text(REWARD.format(scale=0.5))
    run.run("dvc", "repro")
    computed = run.computed_since(before)
    assert {"score i0001", "advantage i0001", "update i0001"} <= computed
    assert "rollout i0001" not in computed


def test_a_module_beside_the_function_is_part_of_it(run):
    run.run("dvc", "repro")
    before = run.starts()
    (run.folder / "mine/beside.py").write_text("FIVE = 6\n")
    run.run("dvc", "repro", "score@i0001")
    assert "score i0001" in run.computed_since(before)


def test_prompts_that_change_are_read_again(run):
    before = run.starts()
    (run.folder / "mine/prompts.jsonl").write_text(conversations(13))
    run.run("dvc", "repro", "prepare_prompts")
    assert run.computed_since(before) == {"prepare prompts"}
    assert pl.read_parquet(run.folder / "data/prompts.parquet").height == 13


def test_the_check_before_found_no_error(run):
    assert "0 errors" in run.checked
    assert "Estimate" in run.checked
