"""The stage from files to files: adapters and whole models, the same bytes each time, held models left alone."""

import pytest
import torch

from stages.common import paths
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.params import ParamsError
from stages.common.policy import Models
from stages.common.tables import OFFLINE_STEPS, read_table
from stages.offline.run import run
from stages.prepare.policy import run as prepare_policy
from tests.silent import Silent
from tests.stages.reward_model.toy import PREFERRED, RUNTIME, bytes_of, lay_out, params, table
from tests.tiny import sliding

OFFLINE = {"objective": "dpo", "pairs": "toy", "learning_rate": 1e-2, "batch_pairs": 5, "epochs": 2}
LORA = {"rank": 2, "alpha": 4, "last_layers": 1, "targets": ["q_proj", "v_proj"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(method="lora", **more):
    policies = {"mine": OFFLINE | more}
    return params({"toy": PREFERRED}, offline=policies, policy={"method": method, "lora": LORA})


def set_up(method="lora", pairs=None, **more):
    lay_out(pairs)
    chosen = options(method, **more)
    prepare_policy(chosen, Silent())
    return chosen


def make(chosen, models=None):
    journal = Silent()
    run("mine", chosen, models or Models(RUNTIME), journal)
    return read_table(paths.steps("mine"), OFFLINE_STEPS, ("step",)), journal.said


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("objective", ["dpo", "simpo"])
def test_policy_and_steps(folder, method, objective):
    chosen = set_up(method, objective=objective)
    steps, said = make(chosen)
    assert steps["pairs"].to_list() == [0, 5, 5, 2, 5, 5, 2]
    assert steps["heldout_loss"].is_null().to_list() == [False, True, True, False, True, True, False]
    assert steps["loss"].is_null().to_list() == [True] + [False] * 6
    assert steps["learning_rate"].to_list()[1:] == [1e-2] * 6
    if objective == "dpo":
        assert steps["heldout_loss"][0] == pytest.approx(0.693147, abs=1e-5)
    assert steps["heldout_loss"][-1] < steps["heldout_loss"][0]
    names = [{path.name for path in paths.policy(name).iterdir()} for name in ("mine", "i0000")]
    assert names[0] == names[1]
    assert said[-1].startswith(f"{objective}, 6 steps on 12 pairs of toy: held-out loss ")


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_same_bytes_whatever_a_process_holds_and_held_models_stay_what_they_were(folder, method):
    chosen, models = set_up(method), Models(RUNTIME)
    make(chosen)
    first = bytes_of(paths.iteration("mine"))
    initial = {name: tensor.clone() for name, tensor in models.policy(paths.policy("i0000")).state_dict().items()}
    base = {name: tensor.clone() for name, tensor in models.base().state_dict().items()}
    for _ in range(2):
        make(chosen, models)
        assert bytes_of(paths.iteration("mine")) == first
    trained = models.policy(paths.policy("mine")).state_dict()
    assert any(not torch.equal(tensor, trained[name]) for name, tensor in initial.items())
    again = models.policy(paths.policy("i0000")).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in initial.items())
    assert all(torch.equal(tensor, models.base().state_dict()[name]) for name, tensor in base.items())


def test_a_run_that_fails_leaves_no_trained_weights_behind(folder, monkeypatch):
    chosen, models = set_up(), Models(RUNTIME)
    initial = {name: tensor.clone() for name, tensor in models.policy(paths.policy("i0000")).state_dict().items()}
    monkeypatch.setattr("stages.offline.run.save_policy", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(chosen, models)
    again = models.policy(paths.policy("i0000")).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in initial.items())
    assert not paths.policy("mine").exists()


def test_a_model_without_block_mask_reads_answers_one_by_one(folder):
    chosen = set_up("full")
    sliding().save_pretrained(paths.REFERENCE)
    sliding().save_pretrained(paths.policy("i0000"))
    steps, _ = make(chosen)
    assert steps["heldout_loss"][0] == pytest.approx(0.693147, abs=1e-5)
    assert steps["heldout_loss"][-1] < 0.69


def test_bfloat16_weights_learn_by_float32_masters(folder):
    chosen = set_up(learning_rate=1e-3)
    steps, _ = make(chosen, Models(Runtime(torch.device("cpu"), torch.bfloat16)))
    assert steps["heldout_loss"][-1] != steps["heldout_loss"][0]


def test_without_held_out_pairs_the_columns_are_null(folder):
    chosen = set_up(pairs=table(split="train"))
    steps, said = make(chosen)
    assert steps["heldout_loss"].null_count() == steps["heldout_accuracy"].null_count() == steps.height
    assert ": loss 0.69" in said[-1]


def test_no_pairs_to_train_on_are_told(folder):
    chosen = set_up(pairs=table(split="heldout"))
    with pytest.raises(StageError, match=r"toy\.parquet has no pairs to train on; give reward_models\.toy"):
        make(chosen)


def test_names_of_iterations_and_pairs_that_nobody_has_are_refused():
    toy = {"toy": PREFERRED}
    with pytest.raises(ParamsError, match=r"offline\.i0003: names like that are those of iterations"):
        params(toy, offline={"i0003": OFFLINE})
    with pytest.raises(ParamsError, match=r"offline\.mine\.pairs = 'other': .*: toy"):
        params(toy, offline={"mine": OFFLINE | {"pairs": "other"}})
    with pytest.raises(ParamsError, match=r"offline\.mine\.dpo\.gamma"):
        params(toy, offline={"mine": OFFLINE | {"dpo": {"gamma": 1.0}}})
