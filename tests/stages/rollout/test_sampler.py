"""The sampler: exact log-probs, exact distribution, masks from lengths, nothing from generation_config."""

import numpy as np
import pytest
import torch

from stages.common.logprobs import completion_logprobs
from stages.common.packing import Group
from stages.common.seeds import seed_of
from stages.rollout.choose import choose
from stages.rollout.live import Row
from stages.rollout.sampler import sample
from stages.rollout.samples import Request, Sample, SamplerSettings
from tests.tiny import gpt2, llama, sliding

PROMPTS = [[11, 12, 13], [14], [15, 16, 17, 18, 19, 20, 21, 22], [11, 12, 13]]


def requests(k=4):
    return [Request(p, [seed_of("test", i, s) for s in range(k)]) for i, p in enumerate(PROMPTS)]


def settings(stop=(0, 5), temperature=1.0, new=12, budget=8192, greedy=False):
    return SamplerSettings(new, temperature, frozenset(stop), budget, greedy)


@pytest.fixture(params=[llama, gpt2, sliding], ids=["rotary", "absolute", "sliding"])
def model(request):
    return request.param()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_logprobs_agree_whatever_generation_config_says(model, temperature):
    model.generation_config.update(temperature=0.01, top_k=1, top_p=0.1, eos_token_id=[1, 2, 3], max_new_tokens=2)
    groups = sample(model, requests(), settings(temperature=temperature))
    trained = completion_logprobs(
        model,
        [
            Group(p, [one.completion_ids for one in g], range(4 * i, 4 * i + 4))
            for i, (p, g) in enumerate(zip(PROMPTS, groups, strict=True))
        ],
        temperature,
        10**6,
        one_by_one=True,
    )
    flat = [one for group in groups for one in group]
    assert any(len(one.completion_ids) > 3 for one in flat)
    for row, one in enumerate(flat):
        np.testing.assert_allclose(one.logprobs, trained[row], atol=1e-4)


def test_siblings_differ_and_the_same_seeds_repeat(model):
    first, second = (sample(model, requests(), settings()) for _ in range(2))
    assert [one.completion_ids for g in first for one in g] == [one.completion_ids for g in second for one in g]
    assert len({tuple(one.completion_ids) for one in first[0]}) > 1


def test_a_sample_does_not_depend_on_its_batch_mates(model):
    together = sample(model, requests(), settings())
    apart = sample(model, requests(), settings(budget=1))
    alone = sample(model, requests()[2:3], settings())
    assert [o.completion_ids for g in together for o in g] == [o.completion_ids for g in apart for o in g]
    assert [o.completion_ids for o in together[2]] == [o.completion_ids for o in alone[0]]


def test_stop_ids_end_a_completion_and_are_part_of_it(model):
    found = [one for g in sample(model, requests(16), settings(stop=range(0, 300, 4))) for one in g]
    assert {one.finish_reason for one in found} == {"stop", "empty", "length"} or {
        one.finish_reason for one in found
    } == {"stop", "empty"}
    for one in found:
        stops = [token for token in one.completion_ids if token % 4 == 0]
        assert len(stops) == (1 if one.stopped else 0)
        assert not one.stopped or one.completion_ids[-1] == stops[0]
        assert (one.finish_reason == "empty") == (one.stopped and len(one.completion_ids) == 1)
        assert len(one.logprobs) == len(one.entropies) == len(one.completion_ids) <= 12


def test_without_a_stop_token_every_completion_has_the_full_length(model):
    found = [one for g in sample(model, requests(), settings(stop=())) for one in g]
    assert {len(one.completion_ids) for one in found} == {12}
    assert {one.finish_reason for one in found} == {"length"}


def test_a_stop_token_inside_the_prompt_is_no_end():
    """Pad equal to EOS: masks come from lengths, so an EOS id in a prompt is an ordinary token."""
    model = llama()
    prompt = [0, 11, 0, 12, 0]
    (group,) = sample(model, [Request(prompt, [1, 2])], settings())
    trained = completion_logprobs(model, [Group(prompt, [o.completion_ids for o in group], [0, 1])], 1.0, 100)
    for row, one in enumerate(group):
        np.testing.assert_allclose(one.logprobs, trained[row], atol=1e-4)


def test_greedy_takes_the_most_likely_token_and_notes_log_probs_at_the_temperature(model):
    (group,) = sample(model, [Request(PROMPTS[0], [1, 2])], settings(temperature=0.5, stop=(), greedy=True))
    ids = list(PROMPTS[0])
    for token, logp in zip(group[0].completion_ids, group[0].logprobs, strict=True):
        logits = model(torch.tensor([ids])).logits[0, -1]
        assert token == logits.argmax().item()
        assert logp == pytest.approx((logits / 0.5).log_softmax(-1)[token].item(), abs=1e-4)
        ids.append(token)
    assert group[0].completion_ids == group[1].completion_ids


def test_drawing_inverts_the_cumulative_distribution_exactly():
    probability = torch.tensor([0.1, 0.0, 0.25, 0.65], dtype=torch.float64)
    rows = [Row(Sample(), np.array([(i + 0.5) / 1000]), 1) for i in range(1000)]
    tokens = choose(probability.log().float().expand(1000, 4), rows, settings())
    assert torch.bincount(tokens, minlength=4).tolist() == [100, 0, 250, 650]
    assert rows[0].sample.logprobs[0] == pytest.approx(np.log(0.1), abs=1e-6)
