"""params.yaml: what is refused, and that each message names the file and the key."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.common.params import ParamsError
from stages.common.params_file import load_params, parse_params

FILE = Path(__file__).parents[3] / "params.yaml"
RAW: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
ABSENT = object()


def changed(key: str, value: object, start: dict[str, Any] = RAW) -> dict[str, Any]:
    """The repository's params with one key set to another value, or taken out."""
    raw = copy.deepcopy(start)
    *sections, last = key.split(".")
    place = raw
    for section in sections:
        place = place[section]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return raw


def test_params_of_the_repository_load_as_they_are_written():
    params = load_params(FILE)
    assert params.rollout.samples_per_prompt == RAW["rollout"]["samples_per_prompt"]
    assert params.update.betas == RAW["update"]["betas"]
    assert list(params.score.rewards) == list(RAW["score"]["rewards"])


@pytest.mark.parametrize(
    "section",
    [
        "",
        "compute",
        "prepare",
        "prepare.model",
        "prepare.prompts",
        "policy",
        "policy.lora",
        "rollout",
        "score",
        "score.rewards.constraints",
        "score.kl",
        "advantage",
        "update",
        "update.schedule",
        "evaluate",
    ],
)
def test_unknown_key_is_refused_at_every_level(section):
    key = f"{section}.tempreature".removeprefix(".")
    with pytest.raises(ParamsError) as error:
        parse_params(changed(key, 1), "params.yaml")
    assert str(error.value) == f"params.yaml: {key}: no such option; remove it or correct its spelling"


@pytest.mark.parametrize(
    "key",
    [
        "seed",
        "prepare",
        "prepare.model",
        "prepare.model.source",
        "prepare.prompts.embedded.constraints",
        "policy",
        "policy.method",
        "policy.lora",
        "rollout",
        "rollout.temperature",
        "score",
        "score.rewards",
        "score.kl.beta",
        "update",
        "update.learning_rate",
        "evaluate",
        "evaluate.temperature",
    ],
)
def test_missing_key_is_named(key):
    with pytest.raises(ParamsError) as error:
        parse_params(changed(key, ABSENT), "other.yaml")
    assert str(error.value) == f"other.yaml: {key}: missing; add it"


@pytest.mark.parametrize("key", ["compute", "advantage", "update.schedule", "update.betas", "score.pack_tokens"])
def test_key_with_a_default_may_be_left_out(key):
    parse_params(changed(key, ABSENT), "params.yaml")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        # what leave-one-out and on-policy sampling forbid
        ("rollout.samples_per_prompt", 1, "compares the samples of a prompt, at least 2"),
        ("rollout.samples_per_prompt", 0, "greater than or equal to 1"),
        ("rollout.top_p", 0.9, "must be 1"),
        ("rollout.top_p", 1.1, "must be 1"),
        ("rollout.top_k", 50, "must be 0"),
        ("rollout.top_k", -1, "must be 0"),
        ("rollout.temperature", 0, "greater than 0"),
        ("rollout.temperature", -1.0, "greater than 0"),
        ("score.kl.beta", -0.1, "greater than or equal to 0"),
        # what methods forbid
        ("score.kl.placement", "rewards", "'reward', 'reward_to_go' or 'loss'"),
        ("advantage.clip", 0, "greater than 0"),
        ("advantage.moving_average.decay", 1.0, "less than 1"),
        ("advantage.moving_average.window", 0, "greater than or equal to 1"),
        ("update.objective", "trpo", "'reinforce', 'ppo'"),
        ("update.reduction", "sum", "'sequence_sum'"),
        ("update.constant_length", 0, "greater than or equal to 1"),
        ("update.entropy_bonus", -0.1, "greater than or equal to 0"),
        ("update.epochs", 0, "greater than or equal to 1"),
        ("update.ppo.clip_low", 1.5, "less than or equal to 1"),
        ("update.ppo.clip_high", 0, "greater than 0"),
        ("update.importance_correction", {"form": "clip"}, "'truncate' or 'mask'"),
        # out of range
        ("seed", -1, "greater than or equal to 0"),
        ("compute.threads", 0, "greater than or equal to 1"),
        ("compute.dtype", "float16", "'float32' or 'bfloat16'"),
        ("prepare.prompts.embedded.train", 0, "greater than or equal to 1"),
        ("prepare.prompts.embedded.heldout", 0, "greater than or equal to 1"),
        ("prepare.prompts.embedded.two_constraints", 1.5, "less than or equal to 1"),
        ("policy.method", "qlora", "'lora' or 'full'"),
        ("policy.lora.rank", 0, "greater than or equal to 1"),
        ("policy.lora.targets", [], "at least 1 item"),
        ("rollout.prompts_per_iteration", 0, "greater than or equal to 1"),
        ("rollout.max_new_tokens", 0, "greater than or equal to 1"),
        ("rollout.stop_tokens", [], "at least 1 item"),
        ("advantage.estimator", "grpoo", "'rloo'"),
        ("update.learning_rate", 0, "greater than 0"),
        ("update.schedule.warmup", -1, "greater than or equal to 0"),
        ("update.schedule.horizon", 0, "greater than or equal to 1"),
        ("update.betas.1", 1.0, "less than 1"),
        ("update.minibatches", 0, "greater than or equal to 1"),
        ("evaluate.confidence", 1.0, "less than 1"),
        ("evaluate.temperature", -0.1, "greater than or equal to 0"),
        # wrong types
        ("seed", "one", "integer"),
        ("seed", None, "integer"),
        ("prepare", None, "dictionary"),
        ("policy.lora", [16, 32], "dictionary"),
        ("policy.lora.targets", "q_proj", "list"),
        ("rollout.samples_per_prompt", 2.5, "integer"),
        ("rollout.stop_tokens", "<|end|>", "list"),
        ("update.learning_rate", "fast", "number"),
        ("prepare.model.source", 3, "string"),
        # no numbers
        ("rollout.temperature", float("nan"), "finite"),
        ("update.learning_rate", float("inf"), "finite"),
        ("score.rewards.constraints.weight", float("nan"), "finite"),
        ("advantage.correct_reward", float("-inf"), "finite"),
        # rewards
        ("score.rewards", {}, "at least 1 item"),
        ("score.rewards", {"a/b": {"function": "m:f"}}, "letters, digits and underscores"),
        ("evaluate.rewards", {"a/b": {"function": "m:f"}}, "letters, digits and underscores"),
        ("score.rewards.constraints.function", "stages.score.constraints", "pattern"),
        ("score.rewards.constraints.function", "a:b:c", "pattern"),
        ("score.rewards.constraints.function", "path/file.txt:f", "pattern"),
        ("evaluate.parts", "parts", "pattern"),
        # constraints
        ("prepare.prompts.embedded.constraints", {"digits": 1, "rhymes": 1}, "Input should be 'title', 'max_words'"),
        ("prepare.prompts.embedded.constraints", {"digits": 1, "keyword": 0}, "greater than 0"),
        ("prepare.prompts.embedded.constraints", {"digits": 1}, "at least 2 items"),
    ],
)
def test_bad_value_is_refused_with_file_key_and_reason(key, value, why):
    raw = changed("update.betas", [0.9, value]) if key == "update.betas.1" else changed(key, value)
    with pytest.raises(ParamsError) as error:
        parse_params(raw, "params.yaml")
    message = str(error.value)
    assert f"params.yaml: {key}" in message
    assert why in message


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"advantage.estimator": "remax"}, "params.yaml: advantage.estimator remax compares with greedy completions"),
        ({"score.kl": {"beta": 0.1, "estimator": "k3"}}, "params.yaml: score.kl: estimator k3 is for placement loss"),
        (
            {"score.kl": {"beta": 0.1, "placement": "reward_to_go", "importance_weighted": True}},
            "params.yaml: score.kl: importance_weighted is for placement loss",
        ),
        ({"rollout.dynamic_sampling": {"max_prompts": 3}}, "params.yaml: rollout: dynamic_sampling.max_prompts (3)"),
        (
            {"rollout.dynamic_sampling": {"max_prompts": 99, "reward": "accuracy"}},
            "params.yaml: rollout.dynamic_sampling.reward = 'accuracy' is none of score.rewards: constraints",
        ),
        (
            {"update.objective": "ppo", "update.ppo": {"ratio": "sequence"}, "update.reduction": "token_mean"},
            "params.yaml: update.reduction token_mean with a ratio of whole sequences",
        ),
        ({"update.objective": "gspo"}, "params.yaml: update.reduction sequence_sum: the ratio of gspo is a mean"),
        ({"update.constant_length": 40}, "params.yaml: update.constant_length is for reduction constant_length"),
        (
            {"score.kl": {"beta": 0.1, "placement": "loss", "estimator": "k2", "importance_weighted": True}},
            "params.yaml: score.kl: importance_weighted with estimator k2",
        ),
        (
            {"rollout.dynamic_sampling": {"max_prompts": 1001}},
            "params.yaml: rollout.dynamic_sampling.max_prompts = 1001: an iteration samples a prompt once",
        ),
        ({"advantage.outcome_reward": "x"}, "params.yaml: advantage.outcome_reward = 'x' is none of score.rewards"),
        (
            {
                "rollout.samples_per_prompt": 1,
                "advantage.estimator": "reinforce_pp",
                "advantage.reinforce_pp": {"baseline": "group"},
            },
            "params.yaml: rollout.samples_per_prompt = 1: advantage.estimator reinforce_pp compares",
        ),
        (
            {"advantage.estimator": "raft", "advantage.normalise": "batch"},
            "params.yaml: advantage.normalise batch: the advantages of raft are all 1",
        ),
        ({"update.minibatches": 17}, "params.yaml: update.minibatches (17) are made of whole groups"),
        ({"update.ppo": {"clip_high": 0.5, "dual_clip": 1.4}}, "params.yaml: update.ppo: dual_clip (1.4)"),
        (
            {"update.importance_correction": {"form": "mask", "cap": 0.5, "floor": 0.5}},
            "params.yaml: update.importance_correction: cap (0.5)",
        ),
        (
            {
                "score.kl": {"beta": 0.1, "placement": "reward_to_go"},
                "update.objective": "gspo",
                "update.reduction": "token_mean",
            },
            "params.yaml: score.kl.placement reward_to_go gives each token an advantage of its own",
        ),
        (
            {
                "score.kl": {"beta": 0.1, "placement": "reward_to_go"},
                "update.objective": "ppo",
                "update.ppo": {"ratio": "sequence"},
            },
            "params.yaml: score.kl.placement reward_to_go gives each token an advantage of its own",
        ),
        ({"advantage.estimator": "gae"}, "params.yaml: advantage.estimator gae takes the values of a critic: write"),
        ({"critic": {}}, "params.yaml: critic: advantage.estimator rloo has no use for it; set critic to null"),
        (
            {"advantage.estimator": "gae", "critic": {"initial": "proxy"}},
            "params.yaml: critic.initial = 'proxy' is none of: policy",
        ),
        (
            {"advantage.estimator": "gae", "critic": {"minibatches": 17}},
            "params.yaml: critic.minibatches (17) are made of whole groups",
        ),
        (
            {"advantage.estimator": "gae", "critic": {"pretraining": {"prompts": 1001}}},
            "params.yaml: critic.pretraining.prompts = 1001: a prompt is taken once, and there are 1000",
        ),
        (
            {
                "advantage.estimator": "gae",
                "critic": {},
                "update.objective": "gspo",
                "update.reduction": "token_mean",
            },
            "params.yaml: advantage.estimator gae gives each token an advantage of its own",
        ),
        (
            {"compute.linear": "onednn", "compute.dtype": "bfloat16"},
            "params.yaml: compute.linear: onednn is for float32 on a CPU; set it to auto",
        ),
        (
            {"compute.linear": "onednn", "compute.device": "cuda:0"},
            "params.yaml: compute.linear: onednn is for float32 on a CPU; set it to auto",
        ),
        (
            {"compute.compile": True, "update.gradient_checkpointing": True},
            "params.yaml: compute.compile: torch does not compile the checkpoints of every architecture; set it to",
        ),
        ({"advantage.gae.length_adaptive": 0.5}, "params.yaml: advantage.gae: lambda is either `lam` or"),
        ({"advantage.gae.lam": None}, "params.yaml: advantage.gae: lambda is either `lam` or"),
        (
            {"advantage.gae.lam": None, "advantage.gae": {"lam": None, "length_adaptive": 0.5}},
            "params.yaml: advantage.gae: lam_critic: with length_adaptive there is no lam to take",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes, told):
    raw = RAW
    for key, value in changes.items():
        raw = changed(key, value, raw)
    with pytest.raises(ParamsError) as error:
        parse_params(raw, "params.yaml")
    assert str(error.value).startswith(told)
    assert "Value error" not in str(error.value)


SINGLE = ["reinforce", "moving_average", "batch_mean", "remax", "reinforce_pp", "gae"]


@pytest.mark.parametrize("estimator", SINGLE)
def test_one_sample_per_prompt_goes_with_estimators_that_need_no_siblings(estimator):
    raw = changed("rollout.samples_per_prompt", 1, changed("advantage.estimator", estimator))
    raw = changed("critic", {} if estimator == "gae" else None, raw)
    parse_params(changed("rollout.greedy", estimator == "remax", raw), "params.yaml")


def test_all_errors_are_told_at_once():
    raw = changed("rollout.top_k", 5)
    raw["seed"] = -1
    with pytest.raises(ParamsError) as error:
        parse_params(raw, "params.yaml")
    assert [line.split(" = ")[0] for line in str(error.value).splitlines()] == [
        "params.yaml: seed",
        "params.yaml: rollout.top_k",
    ]


@pytest.mark.parametrize("raw", [None, [], "seed", 3])
def test_a_file_without_sections_is_refused(raw):
    with pytest.raises(ParamsError, match=f"params.yaml: expected sections .* found {type(raw).__name__}"):
        parse_params(raw, "params.yaml")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ParamsError, match=r"nowhere\.yaml does not exist"):
        load_params(tmp_path / "nowhere.yaml")


def test_broken_yaml_is_named(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("rollout: [1,\n", encoding="utf-8")
    with pytest.raises(ParamsError, match=r"params\.yaml: not valid YAML"):
        load_params(path)


def test_exponent_without_a_point_is_a_number(tmp_path):
    path = tmp_path / "params.yaml"  # YAML 1.1 reads 1e-4 as a string
    path.write_text(yaml.safe_dump(changed("update.learning_rate", "RATE")).replace("RATE", "1e-4"), encoding="utf-8")
    assert load_params(path).update.learning_rate == 1e-4


def test_params_cannot_be_changed():
    params = parse_params(RAW, "params.yaml")
    with pytest.raises(ValueError, match="frozen"):
        params.rollout.temperature = 2.0


@pytest.mark.parametrize("section", ["score", "evaluate"])
def test_a_reward_by_a_model_that_is_not_there_is_named(section):
    raw = changed(f"{section}.rewards", {"proxy": {"model": "nope"}})
    with pytest.raises(ParamsError, match=rf"{section}\.rewards\.proxy\.model = 'nope' is none of reward_models: none"):
        parse_params(raw, "params.yaml")


def test_two_sources_of_prompts_are_told_before_what_is_wrong_in_one():
    raw = changed("prepare.prompts.embedded", {"train": 10})
    raw["prepare"]["prompts"]["file"] = {"train": "my.jsonl"}
    with pytest.raises(ParamsError) as error:
        parse_params(raw, "params.yaml")
    assert "one source of embedded, file, dataset, gym, the others are null; embedded and file are set" in str(
        error.value
    )
    assert "missing" not in str(error.value)
