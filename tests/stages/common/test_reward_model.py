"""Scores at the last attended position: the same wherever padding is, and whatever shares the batch."""

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
)

from stages.common.reward_model import (
    RewardModelError,
    length_batches,
    load_reward_model,
    padded,
    score_batch,
    scores,
    unreadable,
)
from tests.tiny import gpt2, llama, sliding

SEQUENCES = [[5, 9, 11, 0], [7, 0], [3], [21, 22, 23, 24, 25, 26, 27, 28, 29, 0, 0], [8, 4, 100, 7, 6, 0]]


def headed(model, folder):
    """The causal model under a random head, as a folder and loaded."""
    model.save_pretrained(folder / "causal")
    torch.manual_seed(0)
    made = AutoModelForSequenceClassification.from_pretrained(folder / "causal", num_labels=1)
    with torch.no_grad():
        made.score.weight.normal_()
    made.save_pretrained(folder / "reward")
    return load_reward_model(folder / "reward", torch.float32)


@pytest.fixture(params=[llama, gpt2, sliding], ids=lambda make: make.__name__)
def model(request, tmp_path):
    return headed(request.param(), tmp_path)


def one_by_one(model, sequences):
    return [score_batch(model, *padded([ids])).item() for ids in sequences]


@torch.no_grad()
def test_the_score_does_not_depend_on_padding(model):
    plain = one_by_one(model, SEQUENCES)
    assert len({round(score, 3) for score in plain}) == len(plain)
    for left in (False, True):
        assert score_batch(model, *padded(SEQUENCES, left=left)).tolist() == pytest.approx(plain, abs=1e-5)


@torch.no_grad()
def test_the_score_is_the_heads_value_at_the_last_token(model):
    """Transformers' own forward reads a single sequence at its end where no pad token is named."""
    model.config.pad_token_id = None
    theirs = [model(input_ids=torch.tensor([ids])).logits.item() for ids in SEQUENCES]
    assert one_by_one(model, SEQUENCES) == pytest.approx(theirs, abs=1e-5)


@torch.no_grad()
def test_a_pad_token_that_ends_sequences_is_read(tmp_path):
    """Token 0 is end and padding here: transformers reads the token before it, we do not."""
    model = headed(llama(), tmp_path)
    ours = score_batch(model, *padded([[5, 9, 0]])).item()
    assert ours != pytest.approx(model(input_ids=torch.tensor([[5, 9, 0]])).logits.item(), abs=1e-4)
    assert ours != pytest.approx(score_batch(model, *padded([[5, 9]])).item(), abs=1e-4)


@pytest.mark.parametrize("max_tokens", [1, 8, 24, 1000])
def test_the_score_does_not_depend_on_the_batch(model, max_tokens):
    with torch.no_grad():
        plain = one_by_one(model, SEQUENCES)
    assert scores(model, SEQUENCES, max_tokens) == pytest.approx(plain, abs=1e-5)
    assert scores(model, SEQUENCES[::-1], max_tokens) == pytest.approx(plain[::-1], abs=1e-5)


def test_no_sequences_have_no_scores(model):
    assert scores(model, [], 100) == []


def test_batches_keep_to_the_budget_with_padding():
    lengths = [4, 2, 1, 11, 6]
    batches = list(length_batches(lengths, 12))
    assert batches == [[3], [4, 0], [1, 2]]
    assert list(length_batches([50], 12)) == [[0]]


def test_too_long_and_empty_sequences_are_told(model):
    limit = model.config.max_position_embeddings
    assert unreadable(model, [1] * limit) is None
    assert unreadable(model, [1] * (limit + 1)) == f"{limit + 1} tokens, and the reward model has {limit} positions"
    assert unreadable(model, []) == "no tokens"
    for bad in ([1] * (limit + 1), []):
        with pytest.raises(RewardModelError):
            scores(model, [[1, 2], bad], 64)


def test_scores_of_a_bfloat16_model_are_not_rounded_to_it(model):
    found = torch.tensor(scores(model.to(torch.bfloat16), SEQUENCES, 100))
    assert (found != found.bfloat16().float()).any()


SMALL = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "made",
    [
        lambda: BertForSequenceClassification(BertConfig(**SMALL, num_attention_heads=4, num_labels=1)),
        lambda: DebertaV2ForSequenceClassification(DebertaV2Config(**SMALL, num_attention_heads=4, num_labels=1)),
    ],
    ids=["bert", "deberta"],
)
def test_an_encoder_scores_by_its_own_forward(made, tmp_path):
    torch.manual_seed(0)
    made().save_pretrained(tmp_path / "encoder")
    model = load_reward_model(tmp_path / "encoder", torch.float32)
    with torch.no_grad():
        theirs = [model(input_ids=torch.tensor([ids])).logits.item() for ids in SEQUENCES]
    assert scores(model, SEQUENCES, 20) == pytest.approx(theirs, abs=1e-5)


def test_two_labels_are_refused(tmp_path):
    AutoModelForSequenceClassification.from_config(llama().config).save_pretrained(tmp_path / "two")
    with pytest.raises(RewardModelError, match=r"^\S*two: a reward model gives one number, this one has 2 labels"):
        load_reward_model(tmp_path / "two", "auto")


def test_a_language_model_is_refused(tmp_path):
    llama().save_pretrained(tmp_path / "causal")
    with pytest.raises(RewardModelError, match="2 labels"):
        load_reward_model(tmp_path / "causal", "auto")


def test_one_label_without_a_head_is_refused(tmp_path):
    model = llama()
    model.config.num_labels = 1
    model.save_pretrained(tmp_path / "headless")
    with pytest.raises(RewardModelError, match=r"score\.weight.*untrained"):
        load_reward_model(tmp_path / "headless", "auto")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RewardModelError, match="nowhere"):
        load_reward_model(tmp_path / "nowhere", "auto")
