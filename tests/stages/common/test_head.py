"""Log-probs and entropies from logits, whole and in chunks, against autograd and by hand."""

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from stages.common.head import by_logits, chosen_tokens
from stages.common.logprobs import has_plain_head, row_logprobs
from stages.common.packing import Group, pack
from tests.tiny import gpt2, llama

TARGETS = torch.tensor([2, 0, 4, 4, 1])
TWO_AT_A_TIME = 2**24  # a vocabulary of which the logits of two tokens fill a chunk


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)


def by_autograd(logits, temperature):
    logp = (logits / temperature).log_softmax(dim=-1)
    return logp.gather(-1, TARGETS[:, None])[:, 0], -(logp.exp() * logp).sum(dim=-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_autograd(temperature):
    logits = random(5, 7)
    found, wanted = by_logits(logits, TARGETS, temperature, with_entropy=True), by_autograd(logits, temperature)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    weight = torch.arange(5.0, dtype=torch.float64)
    for use in ((1.0, 0.0), (0.0, 1.0), (1.0, -0.3)):
        gradients = [
            torch.autograd.grad((use[0] * weight * logp + use[1] * entropy).sum(), logits, retain_graph=True)[0]
            for logp, entropy in (found, wanted)
        ]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_entropy_of_uniform_and_of_certain():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0]])
    _, entropy = by_logits(logits, torch.tensor([0, 0]), 1.0, with_entropy=True)
    torch.testing.assert_close(entropy, torch.tensor([4.0, 1.0]).log(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_few_rows_at_a_time_are_all_rows(monkeypatch, requires_grad):
    def found():
        logits = random(5, 7).detach().requires_grad_(requires_grad)
        logp, entropy = by_logits(logits, TARGETS, 0.7, with_entropy=True)
        if requires_grad:
            (logp * TARGETS + 0.1 * entropy).sum().backward()
        return logp, entropy, logits.grad

    whole = found()
    monkeypatch.setattr("stages.common.head.rows_at_once", lambda logits: 2)
    for one, other in zip(found(), whole, strict=True):
        assert (one is other is None) or torch.equal(one, other)


def test_of_no_tokens_there_are_none():
    logp, entropy = by_logits(random(0, 7), TARGETS[:0], 1.0, with_entropy=True)
    assert logp.shape == entropy.shape == (0,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_kept_and_what_comes_back_are_as_precise_as_they_must_be(dtype):
    logits = random(5, 7).detach().to(dtype).requires_grad_(True)
    logp, entropy = by_logits(logits, TARGETS, 1.0, with_entropy=True)
    assert logp.dtype == entropy.dtype == torch.float32
    (logp + entropy).sum().backward()
    assert logits.grad.dtype == dtype


def test_a_token_that_cannot_be_drawn_adds_nothing():
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    logp, entropy = by_logits(logits, torch.tensor([0]), 1.0, with_entropy=True)
    (logp + entropy).sum().backward()
    assert logp.item() == pytest.approx(-0.693147, abs=1e-6)
    assert entropy.item() == pytest.approx(0.693147, abs=1e-6)
    assert logits.grad.tolist() == [[0.5, -0.5, 0.0]]


def test_chunks_change_nothing_and_bound_the_logits():
    hidden, weight, seen = random(5, 3), torch.nn.Parameter(random(7, 3).detach()), []

    def head(part):
        seen.append(len(part))
        return part @ weight.T

    def gradients(vocabulary):
        logp, entropy = chosen_tokens(head, hidden, TARGETS, 0.7, vocabulary=vocabulary, with_entropy=True)
        return torch.autograd.grad((logp * TARGETS + 0.1 * entropy).sum(), (hidden, weight))

    whole = gradients(7)
    assert seen == [5]
    for one, other in zip(gradients(TWO_AT_A_TIME), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert seen[1:4] == [2, 2, 1]
    assert sorted(seen[4:]) == [1, 2, 2]  # once more, in the backward pass


def soft_capped():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 16, "vocab_size": 300}
    torch.manual_seed(4)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.5}
    return Gemma2ForCausalLM(Gemma2Config(**sizes, **heads, final_logit_softcapping=0.5)).eval()


def test_logits_that_a_model_bounds_are_its_own():
    assert has_plain_head(llama())
    assert has_plain_head(gpt2())
    model = soft_capped()
    assert not has_plain_head(model)
    with torch.no_grad():
        whole = model(torch.tensor([[11, 12, 13, 14]])).logits[0].log_softmax(dim=-1)
        found = row_logprobs(model, pack([Group([11, 12], [[13, 14]], [0])], 9)[0], 1.0)
    torch.testing.assert_close(found, torch.stack([whole[1, 13], whole[2, 14]]), rtol=0, atol=1e-5)
