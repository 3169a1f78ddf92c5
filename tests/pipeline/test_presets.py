"""`rloo preset`: the methods of presets.yaml, written into a params.yaml whose other bytes stay as they are."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline import yaml_text
from pipeline.cli import app, main
from pipeline.preset_table import TITLES, markdown, row
from pipeline.presets import OVERLONG, read_presets
from pipeline.yaml_text import ABSENT, get, parse
from stages.common.errors import StageError
from stages.common.params_file import load_params

ROOT = Path(__file__).parents[2]
REPOSITORY = (ROOT / "params.yaml").read_bytes()
PRESETS = read_presets()
METHOD_SECTIONS = {"rollout": ["greedy", "dynamic_sampling"], "score": ["kl"], "advantage": None, "update": None}
NO_METHOD = {  # options of `advantage` and `update` that a preset never touches
    "correct_reward", "wrong_reward", "learning_rate", "schedule", "betas", "eps", "weight_decay", "max_grad_norm",
    "pack_tokens", "gradient_checkpointing",
}  # fmt: skip
CONSTRAINTS = next(
    line for line in REPOSITORY.decode().splitlines(keepends=True) if line.startswith("    constraints: ")
)
FILLED_IN = (OVERLONG, ("rollout", "dynamic_sampling"), ("advantage", "outcome_reward"))


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    return tmp_path / "params.yaml"


def preset(*arguments):
    result = CliRunner().invoke(app, ["preset", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output or result.exception
    return result.output


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["preset", *arguments])
    assert exit_.value.code == 1
    return capsys.readouterr().err


def edit(path, *replacements):
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return text


def content(path):
    return parse(path.read_text(), "params.yaml")


@pytest.mark.parametrize("name", PRESETS)
def test_is_valid_and_sets_what_it_says(params, name):
    preset(name)
    load_params(params)  # as every stage reads it
    raw = content(params)
    for key, value in PRESETS[name].settings.items():
        if name != "dapo" or key not in FILLED_IN:
            assert get(raw, key) == (ABSENT if key == OVERLONG else value), key


@pytest.mark.parametrize("first", PRESETS)
def test_back_to_rloo_is_the_same_file_byte_for_byte(params, first):
    preset(first)
    assert (params.read_bytes() == REPOSITORY) == (first == "rloo")
    preset("rloo")
    assert params.read_bytes() == REPOSITORY


def test_way_from_preset_to_preset_leaves_no_trace(params):
    direct = {}
    for name in PRESETS:
        params.write_bytes(REPOSITORY)
        preset(name)
        direct[name] = params.read_bytes()
    for name in [*PRESETS, *reversed(PRESETS)]:
        preset(name)
        assert params.read_bytes() == direct[name]


def test_base_is_the_params_of_the_repository_and_names_every_option_of_a_method():
    raw = parse(REPOSITORY.decode(), "params.yaml")
    base = PRESETS["rloo"].settings
    assert {key: get(raw, key) for key in base if key != OVERLONG} == {k: v for k, v in base.items() if k != OVERLONG}
    for section, names in METHOD_SECTIONS.items():
        wanted = set(raw[section]) - NO_METHOD if names is None else set(names)
        assert {key[1] for key in base if key[0] == section and key != OVERLONG} == wanted
    for above in ("advantage", "update"):
        for name, options in raw[above].items():
            if isinstance(options, dict) and name not in NO_METHOD:
                assert {key[2] for key in base if key[:2] == (above, name)} == set(options)


def test_key_that_base_lacks_is_an_error(tmp_path):
    path = tmp_path / "presets.yaml"
    path.write_text("base: {update: {epochs: 1}}\npresets: {one: {summary: s, paper: p, update: {epoch: 2}}}\n")
    with pytest.raises(StageError, match=r"one: not in base: \['update\.epoch'\]"):
        read_presets(path)


def test_dapo_takes_its_sizes_from_the_file(params):
    edit(
        params,
        ("prompts_per_iteration: 16", "prompts_per_iteration: 6"),
        ("max_new_tokens: 40", "max_new_tokens: 64"),
        (CONSTRAINTS, "    first: {function: 'm:f'}\n" + CONSTRAINTS),
    )
    shown = preset("dapo")
    raw = content(params)
    assert raw["rollout"]["dynamic_sampling"] == {"max_prompts": 24, "reward": "first"}
    assert get(raw, OVERLONG) == {
        "function": "stages.score.overlong:soft_overlong",
        "weight": 1.0,
        "arguments": {"max_length": 64, "cache": 12},
    }
    assert list(raw["score"]["rewards"]) == ["first", "constraints", "overlong"]
    assert "rollout.dynamic_sampling: null -> {max_prompts: 24, reward: first}\n" in shown
    assert "update.minibatches: 1 -> 4\n" in shown
    assert "takes 4 optimizer steps" in shown


def test_cache_of_a_very_short_answer_is_one_token(params):
    edit(params, ("max_new_tokens: 40", "max_new_tokens: 3"))
    preset("dapo")
    assert get(content(params), (*OVERLONG, "arguments")) == {"max_length": 3, "cache": 1}


def test_penalty_is_never_the_reward_that_decides(params):
    penalty = "    overlong: {function: 'stages.score.overlong:soft_overlong', arguments: {max_length: 9, cache: 2}}\n"
    edit(params, (CONSTRAINTS, penalty + CONSTRAINTS))
    preset("dapo")
    assert content(params)["rollout"]["dynamic_sampling"]["reward"] == "constraints"


def test_overlong_of_the_users_own_stays_or_is_in_the_way(params, capsys):
    edit(params, (CONSTRAINTS, "    overlong: {function: 'my.rewards:short'}\n" + CONSTRAINTS))
    preset("grpo")
    assert get(content(params), (*OVERLONG, "function")) == "my.rewards:short"
    before = params.read_bytes()
    assert "rename yours" in refused(capsys, "dapo")
    assert params.read_bytes() == before


def test_what_the_user_changed_elsewhere_stays(params):
    changed = edit(
        params,
        ("seed: 0\n", "seed: 7   # lucky\n\n# a remark\n"),
        ("learning_rate: 1.4e-3", "learning_rate: 5E-4"),
        ("system: Follow every instruction exactly.", 'system: "Be: brief # or not."'),
        ("correct_reward: 1.0 ", "correct_reward: 2.50"),
        ("betas: [0.9, 0.95]", "betas:\n    - 0.9\n    - 0.95"),
    )
    preset("dapo")
    preset("rloo")
    assert params.read_text() == changed


def test_options_of_a_method_are_reset(params):
    edit(
        params,
        ("\n  clip: null", "\n  clip: 5.0 "),
        ("gspo: {clip_low: 3.0e-4, ", "gspo: {clip_low: 0.1, "),
        ("dual_clip: null", "dual_clip: 3.00"),
        ("entropy_bonus: 0.0 ", "entropy_bonus: 0.01"),
    )
    assert preset("rloo").splitlines()[1:] == [
        "advantage.clip: 5.0 -> null",
        "update.ppo.dual_clip: 3.0 -> null",
        "update.gspo.clip_low: 0.1 -> 0.0003",
        "update.entropy_bonus: 0.01 -> 0.0",
    ]
    assert params.read_text() == REPOSITORY.decode().replace("clip_low: 3.0e-4", "clip_low: 0.0003")


def test_missing_keys_and_sections_are_added(params):
    text = re.sub(r"(?ms)^advantage:\n.*?^update:\n", "update:\n", params.read_text())
    text = re.sub(r"(?m)^  kl:\n(    .*\n)+", "  kl: {}\n", text)
    params.write_text(re.sub(r"(?m)^  sapo: .*\n", "", text))
    shown = preset("grpo")
    assert "advantage.grpo.std: absent -> sample\n" in shown
    load_params(params)
    raw = content(params)
    assert {key: get(raw, key) for key in PRESETS["grpo"].settings if key != OVERLONG} == {
        key: value for key, value in PRESETS["grpo"].settings.items() if key != OVERLONG
    }


def test_dry_run_and_nothing_to_change(params):
    assert "update.objective: reinforce -> ppo\n" in preset("grpo", "--dry-run")
    assert params.read_bytes() == REPOSITORY
    assert preset("rloo").splitlines()[1:] == ["nothing to change"]


@pytest.mark.parametrize(
    ("old", "new", "name", "message"),
    [
        ("prompts_per_iteration: 16", "prompts_per_iteration: 3", "gspo", "params.yaml: update.minibatches (4)"),
        ("seed: 0", "seed: -1", "grpo", "params.yaml: seed = -1"),
        ("seed: 0", "sed: 0", "grpo", "params.yaml: sed: no such option"),
        ("  prompts_per_iteration: 16\n", "", "dapo", "params.yaml: rollout.prompts_per_iteration: missing"),
        ("seed: 0", "seed: 0\nseed: 1", "grpo", 'line 4: not valid YAML: found duplicate key "seed"'),
        ("    beta: 0.04", "    beta: 0.1\n    beta: 0.04", "grpo", 'found duplicate key "beta"'),
        ("seed: 0", "seed: [0", "grpo", "params.yaml: line "),
        ("advantage:\n", "advantage: 3\nold:\n", "grpo", "params.yaml: advantage = 3: expected a section"),
        ("  minibatches: 1 ", "  minibatches: *one\n#", "gspo", "not written plainly enough"),
    ],
)
def test_refusal_leaves_the_file_as_it_is(params, capsys, old, new, name, message):
    edit(params, (old, new))
    if "*one" in new:
        edit(params, ("  epochs: 1 ", "  epochs: &one 1 "))
    before = params.read_bytes()
    assert message in refused(capsys, name)
    assert params.read_bytes() == before


def test_names_files_and_flags_that_are_not_there(params, capsys):
    error = refused(capsys, "gropo")
    assert "no preset 'gropo'; there are: rloo, rloo_clip, reinforce, " in error
    assert "of which preset?" in refused(capsys, "--dry-run")
    params.write_text("")
    assert "expected sections" in refused(capsys, "grpo")
    params.unlink()
    assert "params.yaml does not exist" in refused(capsys, "grpo")


def test_table_lists_every_preset(params):
    shown = preset()
    assert all(len(line) <= 80 for line in shown.splitlines())
    for name, entry in PRESETS.items():
        assert name in shown
        assert entry.paper in shown
    assert dict(zip(TITLES, row(PRESETS["dapo"]), strict=True)) == {
        "preset": "dapo",
        "estimator": "grpo sample",
        "objective and clip": "ppo token 0.2/0.28",
        "reduction": "token_mean",
        "KL": "none",
        "steps": "1 x 4",
        "beside": "dynamic sampling, soft overlong penalty",
        "paper": "2503.14476",
    }
    assert params.read_bytes() == REPOSITORY


def test_table_of_the_documentation_is_that_of_the_file():
    assert markdown(PRESETS) in (ROOT / "docs" / "presets.md").read_text(), (
        f"docs/presets.md needs:\n{markdown(PRESETS)}"
    )


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        # a comment in the usual column stays there, is pushed, and comes back
        ("a: 1     # x\nb: 22    # y\n", {"a": "long_word"}, "a: long_word   # x\nb: 22    # y\n"),
        ("a: long_word   # x\nb: 22    # y\nc: 3     # z\n", {"a": 1}, "a: 1     # x\nb: 22    # y\nc: 3     # z\n"),
        # another comment stays as far from its value
        ("a: 1 # x\nb: 22    # y\nc: 3     # z\n", {"a": 333}, "a: 333 # x\nb: 22    # y\nc: 3     # z\n"),
        # values of every form
        ("a:\n", {"a": 1}, "a: 1\n"),
        ("a:   # x\n  b: 1  # y\n\n  c: 2\n# z\nd: 3", {"a": None}, "a: null   # x\n# z\nd: 3"),
        ("a:\n- 1\n- 2\nd: 3\n", {"a": True}, "a: true\nd: 3\n"),
        ("a: {b: 1,\n  c: 2}\nd: 3\n", {"a": None}, "a: null\nd: 3\n"),
        ("a: |\n  text\n\nd: 3\n", {"a": "x"}, "a: x\n\nd: 3\n"),
        ("a: 'it''s'\n", {"a": "yes"}, "a: 'yes'\n"),
        # in flow
        ("{a: {b: 1, c: 2}}\n", {"a.b": 10, "a.d": 3}, "{a: {b: 10, c: 2, d: 3}}\n"),
        ("a: {}\n", {"a.b.c": 1}, "a: {b: {c: 1}}\n"),
        ("a: {b: 1, c: 2}\n", {"a.b": ABSENT}, "a: {c: 2}\n"),
        ("a: {b: 1, c: 2}\n", {"a.c": ABSENT}, "a: {b: 1}\n"),
        ("a: {b: 1}\n", {"a.b": ABSENT}, "a: {}\n"),
        # added behind the last of its section, as it is indented
        (
            "a:\n    b: 1   # x\n\n# y\nc: 2",
            {"a.d": 3, "e.f": 4},
            "a:\n    b: 1   # x\n    d: 3\n\n# y\nc: 2\ne:\n  f: 4",
        ),
        ("a:\nc: 2\n", {"a.d": 3}, "a: {d: 3}\nc: 2\n"),
        ("a:\n  b: {c: 1}\n  d: {e: 2}\n", {"a.d": ABSENT}, "a:\n  b: {c: 1}\n"),
        # line ends
        ("a: 1 # x\r\nb:\r\n  c: 2\r\n", {"a": 2, "b.d": 3}, "a: 2 # x\r\nb:\r\n  c: 2\r\n  d: 3\r\n"),
    ],
)
def test_values_change_in_place(before, changes, after):
    keys = {tuple(key.split(".")): value for key, value in changes.items()}
    assert yaml_text.apply(before, keys, "file") == after


@pytest.mark.parametrize(
    ("text", "key"), [("a: &x 1\nb: *x\n", "b"), ("a: &x 1\nb: *x\n", "a"), ("d: &x {a: 1}\nb: {<<: *x}\n", "b.a")]
)
def test_aliases_and_merges_are_refused(text, key):
    with pytest.raises(StageError, match=f"not written plainly enough to change {key} in place"):
        yaml_text.apply(text, {tuple(key.split(".")): ABSENT if "." in key else 2}, "file")
