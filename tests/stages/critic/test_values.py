"""Values stand before each token, and are the same packed, one by one, and by a plain forward pass."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from stages.common.critic import CriticError, headed
from stages.common.reward_model import load_reward_model, padded, score_batch
from stages.critic.values import completion_values, takes_block_mask
from tests.stages.critic.toy import CPU, GROUPS, ROWS, critic_over
from tests.tiny import gpt2, llama, sliding


@pytest.fixture(params=[llama, gpt2], ids=["rotary", "absolute"])
def model(request, tmp_path):
    return critic_over(request.param(), tmp_path / "model").model


@torch.no_grad()
def by_hand(model):
    found = []
    for prompt, completion in ROWS:
        hidden = model.base_model(torch.tensor([[*prompt, *completion]])).last_hidden_state[0]
        value = (hidden @ model.score.weight.T)[:, 0]
        found.append(value[len(prompt) - 1 : -1].tolist())
    return found


@pytest.mark.parametrize("max_tokens", [1, 16, 100])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_packed_rows_give_the_values_of_plain_ones(model, max_tokens, one_by_one):
    assert takes_block_mask(model)
    found = completion_values(model, GROUPS, max_tokens, one_by_one=one_by_one)
    for row, expected in enumerate(by_hand(model)):
        assert found[row] == pytest.approx(expected, abs=1e-5)


def test_a_model_that_takes_no_block_mask_is_found_out_even_under_a_head_of_zeros(tmp_path):
    critic = critic_over(sliding(), tmp_path / "model").model
    assert not takes_block_mask(critic)
    critic.config.sliding_window = None  # says nothing of it
    critic.config.layer_types = None
    torch.nn.init.zeros_(critic.score.weight)
    critic.base_model.layers[0].self_attn.register_forward_pre_hook(
        lambda module, args, kwargs: (args, kwargs | {"attention_mask": None}), with_kwargs=True
    )
    assert not takes_block_mask(critic)


def test_a_reward_model_keeps_its_head_and_its_score_is_the_value_after_the_last_token(tmp_path):
    llama().save_pretrained(tmp_path / "causal")
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "causal", num_labels=1).save_pretrained(
        tmp_path / "r"
    )
    reward_model = load_reward_model(tmp_path / "r", torch.float32)
    found = completion_values(headed(tmp_path / "r", CPU), GROUPS, 100)
    for row, (prompt, completion) in enumerate(ROWS):
        with torch.no_grad():
            scores = [
                score_batch(reward_model, *padded([[*prompt, *completion[:t]]])).item() for t in range(len(completion))
            ]
        assert found[row] == pytest.approx(scores, abs=1e-5)
        assert any(scores)


def test_a_new_head_expects_nothing(tmp_path):
    llama().save_pretrained(tmp_path / "causal")
    found = completion_values(headed(tmp_path / "causal", CPU), GROUPS, 100)
    assert {value for values in found.values() for value in values} == {0.0}


def test_values_of_a_bfloat16_model_are_not_rounded_to_it(tmp_path):
    model = critic_over(llama(), tmp_path / "model").model.to(torch.bfloat16)
    found = torch.tensor(completion_values(model, GROUPS, 100)[2])
    assert (found != found.bfloat16().float()).any()


def test_a_model_without_a_linear_head_over_every_position_is_refused(tmp_path):
    small = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    BertForSequenceClassification(BertConfig(**small, num_attention_heads=4, num_labels=1)).save_pretrained(tmp_path)
    with pytest.raises(CriticError, match="has no linear head `score`"):
        headed(tmp_path, CPU)
