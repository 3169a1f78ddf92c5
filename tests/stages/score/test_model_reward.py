"""Rewards by models: which tokens they read, normalised, weighted with functions, and what cannot be scored."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from stages.common import paths
from stages.common.critic import write_marker
from stages.common.policy import Models, load_tokenizer
from stages.common.reward_model import RewardModelError, load_reward_model, scores
from stages.common.reward_text import foreign_ids, same_reading, sequences_of
from stages.common.tables import KEY, ROLLOUTS, write_table
from stages.evaluate import run as evaluate
from stages.prepare import reference
from stages.reward_model.initial import choose_padding
from stages.reward_model.reference import reference_answers
from stages.reward_model.run import run
from stages.rollout.source import Source
from stages.score import run as score
from stages.score.model_reward import all_rewards, model_verdicts
from stages.score.rewards import RewardError, check_functions, reward_columns, reward_inputs
from tests.silent import Silent
from tests.stages.reward_model.toy import RUNTIME, lay_out, params
from tests.tiny import gpt2, llama, tiny_tokenizer

TURNS = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {% endfor %}"


def word_tokenizer(template=TURNS):
    """Another vocabulary than the reference's: whole words."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["[unk]"])
    tokenizer.train_from_iterator(["question 0 1 2 3 4 5 [user] [assistant] Yes."], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[unk]")
    fast.chat_template = template
    return fast


def save_reward_model(tokenizer, make=llama, seed=0):
    """A random reward model named `rm`, of which no stage has been run."""
    folder = paths.reward_model("rm")
    make().save_pretrained("causal")
    made = AutoModelForSequenceClassification.from_pretrained("causal", num_labels=1)
    with torch.no_grad():
        made.score.weight.normal_(generator=torch.Generator().manual_seed(seed))
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "normalisation.json").write_text(json.dumps({"mean": 1.5, "std": 2.0, "samples": 8}))
    return load_reward_model(folder, torch.float32)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Completions joined with their prompts, as the score stage has them."""
    monkeypatch.chdir(tmp_path)
    lay_out()
    prompts = pl.read_parquet(paths.PROMPTS).filter(split="train")
    ids = [[40 + i, 50, 60 + i, 0][: 2 + i % 3] for i in range(prompts.height)]
    return prompts.with_columns(
        completion=pl.Series(["Yes." for _ in ids]), completion_ids=pl.Series(ids, dtype=pl.List(pl.Int32))
    )


def values(verdicts):
    return [value for value, _, _ in verdicts]


def test_the_sampled_tokens_are_read_where_the_tokenizer_is_the_references(rows):
    model = save_reward_model(tiny_tokenizer())
    sequences = [list(p) + list(c) for p, c in rows.select("prompt_ids", "completion_ids").iter_rows()]
    found = model_verdicts(rows, "rm", Models(RUNTIME), 64)
    assert values(found) == pytest.approx(scores(model, sequences, 1000), abs=1e-5)
    assert {status for _, status, _ in found} == {"ok"}


def test_a_pad_token_of_its_own_leaves_a_tokenizer_the_same(rows):
    model, tokenizer = save_reward_model(tiny_tokenizer()), tiny_tokenizer()
    tokenizer.add_special_tokens({"unk_token": "<|system|>"})
    choose_padding(model, tokenizer, frozenset({0}))
    assert (tokenizer.pad_token, model.config.pad_token_id) == ("<|system|>", tokenizer.unk_token_id)
    tokenizer.save_pretrained("padded")
    assert same_reading(load_tokenizer(paths.DATA.parent / "padded"), load_tokenizer())
    assert not same_reading(tiny_tokenizer(chat=False), load_tokenizer())
    assert not same_reading(word_tokenizer(), load_tokenizer())


def test_without_a_token_that_ends_nothing_the_config_names_no_padding(rows):
    model = save_reward_model(tiny_tokenizer())
    choose_padding(model, tiny_tokenizer(), frozenset({0}))
    assert model.config.pad_token_id is None


def test_a_foreign_tokenizer_reads_turns_in_its_own_template(rows):
    tokenizer = word_tokenizer()
    model = save_reward_model(tokenizer, gpt2)
    texts = [f"[user] {prompt} [assistant] Yes. " for prompt in rows["prompt"]]
    expected = [tokenizer(text)["input_ids"] for text in texts]
    assert sequences_of(rows, tokenizer, load_tokenizer()) == expected
    found = values(model_verdicts(rows, "rm", Models(RUNTIME), 64))
    assert found == pytest.approx(scores(model, expected, 1000), abs=1e-5)
    assert np.std(found) > 0


def test_a_tokenizer_without_a_template_reads_the_text(rows):
    tokenizer = word_tokenizer(None)
    ids = foreign_ids(tokenizer, "not read", "question 1 ", "Yes.")
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer("question 1 Yes.")["input_ids"])


def test_normalisation_is_applied_as_it_was_stored(rows):
    save_reward_model(tiny_tokenizer())
    held = Models(RUNTIME)
    raw = values(model_verdicts(rows, "rm", held, 64))
    found = values(model_verdicts(rows, "rm", held, 64, normalise=True))
    assert found == pytest.approx([(value - 1.5) / 2.0 for value in raw])


def test_normalisation_gives_mean_0_and_std_1_on_the_answers_of_the_reference(rows):
    save_reward_model(tiny_tokenizer())
    paths.reward_model("rm").rename("given")
    options, held = params({"rm": {"preferences": None, "source": "given", "reference_samples": 20}}), Models(RUNTIME)
    run("rm", options, held, Silent())
    answers = reference_answers(20, options, held, Silent())
    assert answers["prompt_id"].unique_counts().to_list() == [4] * 5
    found = values(model_verdicts(answers, "rm", held, 64, normalise=True))
    assert np.mean(found) == pytest.approx(0.0, abs=1e-5)
    assert np.std(found) == pytest.approx(1.0, abs=1e-5)


def test_scores_that_are_all_the_same_cannot_be_normalised(rows):
    save_reward_model(tiny_tokenizer())
    (paths.reward_model("rm") / "normalisation.json").write_text('{"mean": 1.0, "std": 0.0, "samples": 8}')
    with pytest.raises(RewardModelError, match="all the same"):
        model_verdicts(rows, "rm", Models(RUNTIME), 64, normalise=True)


def mixed(**rm):
    rewards = {
        "rm": {"model": "rm", "weight": 2.0, **rm},
        "varied": {"function": "rloo_test_mixed:f", "weight": 0.5},
    }
    return params({"rm": {"preferences": None, "source": "given"}}, rewards)


@pytest.fixture
def function(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "rloo_test_mixed.py").write_text(
        "def f(completion_ids, **columns): return [float(len(ids)) for ids in completion_ids]\n"
    )
    monkeypatch.syspath_prepend(installed)


def test_a_function_and_a_model_are_summed_with_their_weights(rows, function):
    model = save_reward_model(tiny_tokenizer())
    found = all_rewards(mixed().score.rewards, rows, Models(RUNTIME), 64)
    assert found.columns[:3] == ["reward/rm", "status/rm", "message/rm"]
    sequences = [list(p) + list(c) for p, c in rows.select("prompt_ids", "completion_ids").iter_rows()]
    expected = [
        2.0 * score + 0.5 * len(ids)
        for score, ids in zip(scores(model, sequences, 512), rows["completion_ids"], strict=True)
    ]
    assert found["task_reward"].to_list() == pytest.approx(expected, abs=1e-4)


def test_the_stages_score_and_evaluate_take_both(rows, function):
    model, options, held = save_reward_model(tiny_tokenizer()), mixed(normalise=True), Models(RUNTIME)
    prompts = pl.read_parquet(paths.PROMPTS).filter(split="train")
    source = Source(held, held.base(), load_tokenizer(), prompts, options, 1, Silent())
    rollouts = source.samples([(0, "q1"), (1, "q2")])
    write_table(rollouts, ROLLOUTS, KEY, paths.rollouts("i0001"))
    write_marker(paths.critic("i0000"), None)
    reference.run(options, Silent())
    score.run("i0001", options, held, Silent())
    table = pl.read_parquet(paths.scores("i0001"))
    joined = table.select(KEY).join(rollouts, on=KEY).join(prompts, on="prompt_id")
    sequences = [list(p) + list(c) for p, c in joined.select("prompt_ids", "completion_ids").iter_rows()]
    raw = pl.Series(scores(model, sequences, 512))
    assert table["reward/rm"].to_list() == pytest.approx(((raw - 1.5) / 2).to_list(), abs=1e-5)
    total = table["reward/rm"] * 2 + table["reward/varied"] * 0.5
    assert table["task_reward"].to_list() == pytest.approx(total.to_list())
    shutil.copytree(paths.REFERENCE, paths.policy("i0000"))
    evaluate.run("i0000", options, held, Silent())
    assert "rewards/rm/mean" in json.loads(paths.evaluation("i0000").read_text())
    assert pl.read_parquet(paths.generations("i0000"))["status/rm"].to_list() == ["ok"]


def test_a_row_that_is_too_long_has_no_reward(rows, function):
    save_reward_model(tiny_tokenizer())
    long = rows.with_columns(
        completion_ids=pl.when(pl.col("prompt_id") == "q2").then(pl.lit([7] * 600)).otherwise("completion_ids")
    )
    found = all_rewards(mixed().score.rewards, long.cast({"completion_ids": pl.List(pl.Int32)}), Models(RUNTIME), 64)
    assert found["status/rm"].to_list() == ["ok", "invalid", "ok", "ok", "ok"]
    assert found["message/rm"][1].endswith("and the reward model has 512 positions")
    assert found["task_reward"].is_null().to_list() == [False, True, False, False, False]


def test_functions_are_checked_and_models_are_not_taken_for_them(rows, function):
    check_functions(mixed())


def test_where_no_models_are_to_be_had_a_model_is_refused(rows, function):
    with pytest.raises(RewardError, match="the reward model 'rm' cannot be had here"):
        reward_columns(mixed().score.rewards, reward_inputs(rows))


def test_a_process_holds_a_model_until_its_folder_changes(rows):
    save_reward_model(tiny_tokenizer())
    held = Models(RUNTIME)
    first = held.reward_model(paths.reward_model("rm"))
    assert held.reward_model(paths.reward_model("rm")) is first
    before = values(model_verdicts(rows, "rm", held, 64))
    save_reward_model(tiny_tokenizer(), seed=1)
    assert held.reward_model(paths.reward_model("rm")) is not first
    assert values(model_verdicts(rows, "rm", held, 64)) != pytest.approx(before, abs=1e-3)


def test_a_model_that_was_not_made_is_told(rows):
    with pytest.raises(RewardModelError, match="run the stage that makes it"):
        model_verdicts(rows, "rm", Models(RUNTIME), 64)
