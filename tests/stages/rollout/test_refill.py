"""Rows that join a batch that is alive: the same samples as alone, within the budget, and the same bytes each time."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from stages.common.journal import Journal
from stages.common.kept.keeping import keeping
from stages.common.seeds import seed_of
from stages.rollout.cache import can_join, new_cache
from stages.rollout.chunk import sample_chunk
from stages.rollout.live import keep_rows, merge, read_prompts
from stages.rollout.sampler import WITHOUT_REFILL, sample
from stages.rollout.samples import Request, Sample, SamplerSettings, to_part
from tests.tiny import gpt2, llama, sliding

STOP = frozenset(range(0, 300, 12))
NEW = 14


def requests():
    lengths = [3, 9, 1, 6, 12, 2, 7, 5, 4, 8]
    return [
        Request([(7 * i + j) % 280 for j in range(n)], [seed_of(i, s) for s in range(3)]) for i, n in enumerate(lengths)
    ]


def settings(budget, **more):
    return SamplerSettings(NEW, 1.0, STOP, budget, **more)


def flat(groups):
    return [one for group in groups for one in group]


@pytest.fixture(params=[llama, gpt2], ids=["rotary", "absolute"])
def model(request):
    return request.param()


class Watched:
    """A model that notes the places that each of its forward passes has in the cache."""

    def __init__(self, model):
        self.model, self.config, self.parameters = model, model.config, model.parameters
        self.shapes = []

    def __call__(self, **inputs):
        self.shapes.append((tuple(inputs["input_ids"].shape), tuple(inputs["attention_mask"].shape)))
        return self.model(**inputs)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_sample_is_the_same_alone_and_among_rows_that_come_and_go(model, greedy):
    alone = [
        one
        for request in requests()
        for one in sample_chunk(model, [request], settings(1, greedy=greedy), lambda more: None)[0]
    ]
    together = flat(sample(model, requests(), settings(10_000, greedy=greedy)))
    refilled = flat(sample_chunk(model, requests(), settings(160, greedy=greedy), lambda more: None))
    assert len({len(one.completion_ids) for one in alone}) >= 3
    for others in (together, refilled):
        assert [one.completion_ids for one in others] == [one.completion_ids for one in alone]
        assert [one.finish_reason for one in others] == [one.finish_reason for one in alone]
        for one, other in zip(alone, others, strict=True):
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
            np.testing.assert_allclose(one.entropies, other.entropies, atol=1e-4)


def test_waiting_prompts_join_while_others_go_on_and_the_budget_holds():
    watched = Watched(llama())
    sample_chunk(watched, requests(), settings(160), lambda more: None)
    reading = [n for n, (ids, mask) in enumerate(watched.shapes) if ids == mask]
    steps = [mask for ids, mask in watched.shapes if ids != mask]
    assert len(reading) > 2
    assert max(rows * columns for rows, columns in steps) <= 160
    grew = [before < after for (before, _), (after, _) in pairwise(steps)]
    assert any(grew)  # rows joined some that had not ended
    assert len(watched.shapes) < len(reading) * NEW  # which is what batches one after the other would take


def test_the_same_settings_give_the_same_bytes(model):
    parts = [to_part(flat(sample(model, requests(), settings(160)))) for _ in range(2)]
    assert all(torch.equal(parts[0][name], parts[1][name]) for name in parts[0])


def test_every_sequence_is_heard_of_once(model):
    heard = []
    found = sample(model, requests(), settings(160), heard.append)
    assert sum(heard) == len(flat(found)) == 30


def test_a_batch_has_no_column_that_is_padding_in_all_rows(model):
    samples = [[Sample() for _ in request.seeds] for request in requests()]
    live, _ = read_prompts(model, requests()[:5], samples[:5], settings(1))
    other, _ = read_prompts(model, requests()[5:], samples[5:], settings(1))
    both = merge(live, other)
    assert (both.width, both.padding_B.min().item()) == (12, 0)
    assert [row.prompt + p for row, p in zip(both.rows, both.padding_B.tolist(), strict=True)] == [12] * 30
    kept = keep_rows(both, [0, 8, 20], trim=True)
    assert kept.width == max(row.prompt for row in kept.rows) == kept.cache.get_seq_length()
    assert kept.padding_B.min() == 0


def test_a_layer_with_room_holds_what_a_plain_one_does(model):
    torch.manual_seed(0)
    roomy = new_cache(model).layers[0]
    held, states = [], [torch.randn(2, 3, n, 4) for n in (5, *[1] * 70, 3)]
    for number, one in enumerate(states):
        keys, values = roomy.update(one, one + 1)
        held.append(one)
        if number == 40:
            roomy.batch_select_indices(torch.tensor([1, 0, 1]))
            held, states[number + 1 :] = [h[[1, 0, 1]] for h in held], [s[[1, 0, 1]] for s in states[number + 1 :]]
            keys, values = roomy.keys, roomy.values
        assert torch.equal(keys, torch.cat(held, dim=2))
        assert torch.equal(values, keys + 1)


def test_a_model_whose_caches_cannot_be_joined_is_sampled_in_batches_and_the_journal_says_so_once(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = sliding()
    assert not can_join(model)
    journal = Journal("rollout", "i0001")
    with keeping("rollout", "i0001", 1000, journal):
        found, _ = (sample(model, requests(), settings(160)) for _ in range(2))
    assert journal.path.read_text().count(WITHOUT_REFILL) == 1
    assert [one.completion_ids for one in flat(found)] == [
        one.completion_ids for request in requests() for one in sample(model, [request], settings(1))[0]
    ]
