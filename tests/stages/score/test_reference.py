"""What the KL is measured to: another model, or nothing at all where it is not penalised."""

import gc
import json
import weakref

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from pipeline.compare import check_scores_belong
from pipeline.show.rows import joined
from pipeline.study.runs import workspace
from stages.common import paths, policy
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.journal import Journal
from stages.common.params import ParamsError
from stages.common.policy import Models, PolicyError
from stages.history.rows import history_frame
from stages.score import run as score
from tests.models import ITERATION, PREPARATION, one_iteration, params_for, save, small_llama, tied
from tests.tiny import tiny_tokenizer

RUNTIME = Runtime(torch.device("cpu"), torch.float32)


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    tied(tmp_path / "model")
    save(tmp_path / "other", small_llama(hidden_size=48, tie_word_embeddings=False), tiny_tokenizer(chat=False))
    return tmp_path


def table(name):
    return pl.read_parquet(paths.iteration("i0001") / f"{name}.parquet")


def direct(model, prompt, completion):
    """Log-probs of the completion by an ordinary forward pass."""
    with torch.no_grad():
        logp = model(torch.tensor([[*prompt, *completion]])).logits[0].log_softmax(dim=-1)
    rows = logp[len(prompt) - 1 : -1]
    return rows.gather(-1, torch.tensor(completion)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_kl_is_that_to_the_other_model(project, method):
    changes = {"prepare.reference": {"source": str(project / "other")}, "policy.method": method}
    one_iteration(params_for(project / "model", changes))
    told = json.loads((paths.KL_REFERENCE / "reference.json").read_text())
    assert told["reference"] == "data/kl_reference"
    assert told["model"]["source"] == str(project / "other")
    other = AutoModelForCausalLM.from_pretrained(project / "other")
    rows = table("rollouts").join(table("scores"), on=["prompt_id", "sample"])
    rows = rows.join(pl.read_parquet(paths.PROMPTS).select("prompt_id", "prompt_ids"), on="prompt_id")
    assert rows.height == 6
    for row in rows.iter_rows(named=True):
        expected = direct(other, row["prompt_ids"], row["completion_ids"])
        assert row["ref_logprobs"] == pytest.approx(expected, abs=1e-4)
        assert row["kl"] == pytest.approx(sum(row["sampler_logprobs"]) - sum(expected), abs=1e-3)
        assert row["score"] == pytest.approx(row["task_reward"] - 0.04 * row["kl"], abs=1e-9)
    assert rows["kl"].abs().min() > 1e-2  # from the first iteration on
    assert table("generations")["kl"].abs().min() > 1e-2


def test_another_model_in_the_folder_is_noticed_and_the_old_one_freed(project):
    params = params_for(project / "model", {"prepare.reference": {"source": str(project / "other")}})
    for part in ("model", "reference"):
        workspace.run("prepare", part, params)
    models = Models(RUNTIME)
    with models.kl_reference() as first:
        held = weakref.ref(first)
    with models.kl_reference() as again:
        assert again is held()
    workspace.run(
        "prepare", "reference", params_for(project / "model", {"prepare.reference": {"source": str(project / "model")}})
    )
    del first, again
    with models.kl_reference() as second:
        assert second.config.hidden_size == 32
    gc.collect()
    assert held() is None


def test_a_reference_that_nobody_wrote_down_is_an_error(project):
    with (
        pytest.raises(PolicyError, match=r"data/kl_reference/reference\.json does not exist"),
        Models(RUNTIME).kl_reference(),
    ):
        pass


@pytest.mark.parametrize(
    ("ids", "told"), [([5, 300], "token ids are below 300"), ([5] * 640, "at most 640 tokens, its positions")]
)
def test_what_the_reference_cannot_read_is_told_with_the_row(ids, told):
    rows = pl.DataFrame(
        [{"iteration": 1, "prompt_id": "p", "sample": 0, "kind": "sample", "prompt_ids": [1], "completion_ids": ids}]
    )
    with pytest.raises(StageError, match=rf"(?s){told}.*prompt_id=p"):
        score.check_readable(rows, small_llama())


NO_KL = ("ref_logprobs", "token_kl", "ref_logp_sum", "kl")


@pytest.fixture
def loads(monkeypatch):
    """Folders of the models that are loaded as policy or reference."""
    loaded, load = [], policy.load_model

    def counted(folder, runtime):
        loaded.append(str(folder))
        return load(folder, runtime)

    monkeypatch.setattr(policy, "load_model", counted)
    return loaded


def whole_iteration(project, models, **changes):
    """In a process of its own models, so that none of another test are held."""
    params = params_for(project / "model", {"score.kl": {"beta": 0.0}, **changes})
    for stage, part in PREPARATION:
        workspace.run(stage, part, params)
    for stage in ITERATION:
        if stage == "advantage":
            workspace.run(stage, "i0001", params)
        else:
            module = __import__(f"stages.{stage}.run", fromlist=["run"])
            module.run("i0001", params, models, Journal(stage, "i0001"))
    return params


def test_without_a_penalty_no_reference_is_loaded_or_held(project, loads):
    models = Models(RUNTIME)
    params = whole_iteration(project, models, **{"policy.method": "full"})
    assert set(loads) == {"data/policies/i0000"}  # of the next iteration's the update has it in memory
    assert models._base is None
    assert models._kl_reference is None
    scores, generations = table("scores"), table("generations")
    for name in NO_KL:
        assert scores[name].null_count() == scores.height == 6
    assert scores["score"].to_list() == scores["task_reward"].to_list()
    assert scores["logp_sum"].null_count() == 0
    assert scores["length"].to_list() == table("rollouts")["length"].to_list()
    assert generations["kl"].null_count() == generations.height
    assert json.loads(paths.evaluation("i0001").read_text())["kl"] is None
    assert table("steps")["grad_norm"][0] > 0
    check_scores_belong(scores, "i0001", params)
    assert joined("i0001")["kl"].null_count() == 6


def test_the_kl_is_measured_where_that_is_asked_for(project, loads):
    whole_iteration(project, Models(RUNTIME), **{"policy.method": "full", "evaluate.kl": True})
    assert table("scores")["kl"].null_count() == 6
    assert "data/reference" in loads
    assert table("generations")["kl"].abs().max() > 0


def test_it_is_not_measured_where_that_is_switched_off(project, loads):
    changes = {"policy.method": "full", "evaluate.kl": False, "score.kl": {"beta": 0.1}}
    whole_iteration(project, Models(RUNTIME), **changes)
    assert table("scores")["kl"].null_count() == 0
    assert table("generations")["kl"].null_count() == table("generations").height


def test_scores_without_a_kl_do_not_belong_to_params_with_a_penalty(project):
    whole_iteration(project, Models(RUNTIME))
    for placement in ("reward", "loss"):
        params = params_for(project / "model", {"score.kl": {"beta": 0.1, "placement": placement}})
        with pytest.raises(StageError, match=r"made with another penalty than score\.kl"):
            check_scores_belong(table("scores"), "i0001", params)


def test_the_history_has_no_kl(project):
    params = whole_iteration(project, Models(RUNTIME))
    workspace.run("evaluate", "i0000", params)
    frame = history_frame("i0001", ["i0000"], params.alarms)
    assert frame.schema["kl"] == frame.schema["eval/kl"] == pl.Float64
    assert frame["kl"].null_count() == frame["eval/kl"].null_count() == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"score.kl": {"beta": 0.0}, "prepare.reference": {"source": "x"}}, "prepare.reference: with score.kl.beta 0"),
        ({"score.kl": {"beta": 0.0}, "alarms": {"kl_above": 1.0}}, "alarms.kl_above: with score.kl.beta 0"),
        (
            {
                "prepare.reference": {"source": "x"},
                "advantage.estimator": "gae",
                "critic": {"learning_rate": 1e-3, "pretraining": {"prompts": 2}},
            },
            "critic.pretraining: it learns returns without a KL penalty",
        ),
    ],
)
def test_options_that_have_no_use_for_a_reference_are_refused(project, changes, told):
    with pytest.raises(ParamsError, match=told):
        params_for(project / "model", changes)
