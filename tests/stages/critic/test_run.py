"""The critic on disk: what the stage writes, that it loads back to the same bits, and that training goes on from it."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification

from stages.common import paths
from stages.common.critic import Critic, CriticError, headed, load_critic
from stages.common.device import Runtime
from stages.common.policy import Models, load_tokenizer, trainable
from stages.common.tables import CRITIC_STEPS, TableError
from stages.critic.run import run
from stages.critic.update import check_critic, update_critic
from stages.critic.values import completion_values
from stages.prepare import policy
from tests.silent import Silent
from tests.stages.critic.toy import CPU, GROUPS, rows_to_learn
from tests.stages.reward_model import toy
from tests.tiny import tiny_tokenizer

PRETRAINING = {"prompts": 4, "samples": 3, "epochs": 4}
REWARD_MODEL = {"toy": {"preferences": None, "source": "anything"}}
MODES = [
    pytest.param("policy", "full", id="full"),
    pytest.param("policy", "lora", id="lora"),
    pytest.param("toy", "full", id="full over a reward model"),
    pytest.param("toy", "lora", id="lora over a reward model"),
]


def params(critic, **sections):
    gae = {"estimator": "gae"} if critic is not None else {}
    rewards = {"toy": {"model": "toy"}}
    return toy.params(REWARD_MODEL, rewards, critic=critic, advantage=gae, **sections)


def options(initial, method, **more):
    return params({"initial": initial, "method": method, "learning_rate": 0.01, "epochs": 2, "minibatches": 2} | more)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Reference, prompts, initial policy and a reward model in the current folder."""
    monkeypatch.chdir(tmp_path)
    toy.lay_out()
    policy.run(params(None), Silent())
    model = headed(paths.REFERENCE, CPU)
    torch.manual_seed(3)
    with torch.no_grad():
        model.score.weight.normal_()
    model.save_pretrained(paths.reward_model("toy"))
    load_tokenizer().save_pretrained(paths.reward_model("toy"))


def initial(settings, runtime=CPU):
    journal = Silent()
    run("initial", settings, Models(runtime), journal)
    return journal.said


def bits(model):
    return {name: p.detach().clone() for name, p in trainable(model).items()}


def same_bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_without_a_critic_the_folder_says_so_and_holds_nothing_else():
    initial(params(None))
    update_critic("i0001", rows_to_learn(), params(None), Models(CPU), Silent())
    for name in ("i0000", "i0001"):
        assert [path.name for path in paths.critic(name).iterdir()] == ["critic.json"]
        assert json.loads((paths.critic(name) / "critic.json").read_text()) == {"critic": None}
    assert pl.read_parquet(paths.critic_steps("i0001")).equals(pl.DataFrame(schema=CRITIC_STEPS))
    assert Models(CPU).critic(paths.critic("i0001")) is None


@pytest.mark.parametrize(("first", "method"), MODES)
def test_the_first_critic(first, method):
    settings = options(first, method)
    initial(settings)
    folder = paths.critic("i0000")
    critic = load_critic(folder, CPU)
    values = completion_values(critic.model, GROUPS, 100)
    start = headed(paths.REFERENCE if first == "policy" else paths.reward_model("toy"), CPU)
    assert values == completion_values(start, GROUPS, 100)  # the adapter changes nothing yet
    assert any(map(any, values.values())) == (first == "toy")
    held = toy.bytes_of(folder)
    initial(settings)
    assert toy.bytes_of(folder) == held
    if method == "full":
        made = AutoModelForSequenceClassification.from_pretrained(folder)  # an ordinary folder, with its tokenizer
        assert torch.equal(made.score.weight, critic.model.score.weight)
        assert load_tokenizer(folder)("a b")["input_ids"] == load_tokenizer()("a b")["input_ids"]
    else:
        assert (folder / "base").exists() == (first == "toy")
        base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
        assert Path(base) == (paths.REFERENCE if first == "policy" else paths.reward_model("toy"))
        small = [name for name in trainable(critic.model) if "lora_" not in name]
        assert small == ["score.weight"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("first", "method"), MODES)
def test_training_from_disk_is_training_without_a_stop(first, method, dtype):
    runtime, settings, rows = Runtime(torch.device("cpu"), dtype), options(first, method), rows_to_learn()
    initial(settings, runtime)
    warm = Models(runtime)
    for name in ("i0001", "i0002", "i0003"):
        check_critic(name, rows, settings.critic)
        update_critic(name, rows, settings, warm, Silent())
        held = warm.critic(paths.critic(name))
        assert same_bits(bits(held.model), bits(load_critic(paths.critic(name), runtime).model))
    expected = {name: toy.bytes_of(paths.critic(name)) for name in ("i0001", "i0002", "i0003")}
    assert len({tuple(folder.values()) for folder in expected.values()}) == 3
    for name in expected:  # each in a process of its own, as it were
        update_critic(name, rows, settings, Models(runtime), Silent())
        assert toy.bytes_of(paths.critic(name)) == expected[name]
    with safe_open(paths.critic("i0003") / "optimizer.safetensors", framework="pt") as state:
        assert state.metadata()["steps"] == "12"
        masters = {name for name in state.keys() if name.startswith("master/")}  # noqa: SIM118
    assert bool(masters) == (dtype == torch.bfloat16)
    steps = pl.read_parquet(paths.critic_steps("i0003"))
    assert steps["optimizer_step"].to_list() == [9, 10, 11, 12]
    assert steps["iteration"].to_list() == [3] * 4


def test_a_held_critic_is_reused_until_its_files_change():
    initial(options("policy", "lora"))
    models, folder = Models(CPU), paths.critic("i0000")
    held = models.critic(folder)
    assert isinstance(held, Critic)
    assert models.critic(folder) is held
    models.critic_changed(None)  # an update that failed half-way
    again = models.critic(folder)
    assert again is not held
    weights = paths.REFERENCE / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert models.critic(folder) is not again  # what lies below the adapter counts, too


@pytest.mark.parametrize("method", ["full", "lora"])
def test_pretraining_reduces_the_loss_and_its_steps_count(method):
    settings = options("policy", method, pretraining=PRETRAINING)
    said = initial(settings)
    steps = pl.read_parquet(paths.critic("i0000") / "pretraining.parquet")
    assert steps.schema == CRITIC_STEPS
    assert steps["optimizer_step"].to_list() == [1, 2, 3, 4]  # four prompts, all in the one step of an epoch
    assert steps["rows"].to_list() == [12] * 4
    assert steps["value_loss"][-1] < steps["value_loss"][0]
    assert steps["value_clip"].null_count() == 4
    assert "12 of 12 answers scored" in said[0]
    held = toy.bytes_of(paths.critic("i0000"))
    initial(settings)
    assert toy.bytes_of(paths.critic("i0000")) == held
    update_critic("i0001", rows_to_learn(), settings, Models(CPU), Silent())
    assert pl.read_parquet(paths.critic_steps("i0001"))["optimizer_step"].to_list() == [5, 6, 7, 8]
    assert not (paths.critic("i0001") / "pretraining.parquet").exists()


def test_what_cannot_be_is_refused_before_anything_is_trained():
    tiny_tokenizer(chat=False).save_pretrained(paths.reward_model("toy"))
    (paths.reward_model("toy") / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(CriticError, match="has a tokenizer or template of its own"):
        initial(options("toy", "full"))
    with pytest.raises(CriticError, match=r"a prompt is taken once, and .* has 5 training prompts"):
        initial(options("policy", "full", pretraining={"prompts": 50}))
    with pytest.raises(CriticError, match=r"critics/i0000/critic\.json does not exist"):
        Models(CPU).critic(paths.critic("i0000"))
    initial(options("policy", "lora"))
    rows = rows_to_learn()
    with pytest.raises(CriticError, match=r"not the critic that params\.yaml asks for"):
        check_critic("i0001", rows, options("policy", "full").critic)
    without = rows.with_columns(returns=pl.lit(None, dtype=pl.List(pl.Float32)))
    with pytest.raises(TableError, match="returns of every row in the loss"):
        check_critic("i0001", without, options("policy", "lora").critic)
