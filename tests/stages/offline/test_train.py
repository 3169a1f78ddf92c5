"""Training steps: the gradient of an unpacked computation, one denominator, no order, what can be learnt."""

import pytest
import torch

from stages.common.optimizer import StoredAdamW
from stages.common.params import Offline
from stages.common.policy import trainable
from stages.offline.answers import Reading, answers_of, with_reference
from stages.offline.pairs import Splits, epoch_batches, micro_batches, packed_rows, pairs_of
from stages.offline.train import accumulate, measure, train
from tests.silent import Silent
from tests.stages.reward_model.toy import table
from tests.tiny import gpt2, llama, sliding

TEMPERATURE = 0.7
PAIRS = pairs_of(table())
OBJECTIVES = ("dpo", "simpo")


def settings(objective, **more):
    return Offline(**({"objective": objective, "pairs": "toy", "learning_rate": 1e-2, "batch_pairs": 4} | more))


def reading(max_tokens=512, one_by_one=False):
    return Reading(TEMPERATURE, max_tokens, one_by_one)


def moved(make=llama):
    """A policy that is not its reference any more."""
    model = make().requires_grad_(True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model


def referenced(pairs=PAIRS, make=llama, **how):
    return with_reference(make(), pairs, reading(**how), lambda *_: None)


def gradient(model, pairs, options, how):
    optimizer = StoredAdamW(trainable(model), options)
    row = accumulate(model, pairs, options, how, optimizer)
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), row


def straight_logp(model, prompt, completion):
    """Log-prob of one completion by an ordinary forward pass of its own."""
    ids = torch.tensor([[*prompt, *completion]])
    logp = (model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(dim=-1)
    return logp.gather(-1, ids[0, len(prompt) :, None]).sum()


def straight_loss(model, reference, pairs, objective):
    """Formulas of the papers, pair by pair."""
    losses = []
    for pair in pairs:
        chosen, rejected = (straight_logp(model, pair.prompt_ids, ids) for ids in (pair.chosen_ids, pair.rejected_ids))
        if objective == "dpo":
            with torch.no_grad():
                ref = [straight_logp(reference, pair.prompt_ids, ids) for ids in (pair.chosen_ids, pair.rejected_ids)]
            odds = 0.1 * ((chosen - ref[0]) - (rejected - ref[1]))
        else:
            odds = 2.0 * (chosen / len(pair.chosen_ids) - rejected / len(pair.rejected_ids)) - 1.0
        losses.append((1 + (-odds).exp()).log())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("make", [llama, gpt2, sliding])
def test_loss_and_gradient_are_those_of_a_straightforward_computation(objective, make):
    how = reading(one_by_one=make is sliding)
    found, row = gradient(moved(make), referenced(PAIRS[:5], make, one_by_one=how.one_by_one), settings(objective), how)
    model = moved(make)
    loss = straight_loss(model, make(), PAIRS[:5], objective)
    torch.autograd.backward(loss)
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert row["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert expected.norm() > 1e-3
    assert (found - expected).abs().max() < 1e-5 * max(1.0, expected.norm().item())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("how", [{"max_tokens": 40}, {"max_tokens": 1}, {"one_by_one": True}])
def test_micro_batches_and_order_change_nothing(objective, how):
    pairs = referenced()[:7]
    expected, row = gradient(moved(), pairs, settings(objective), reading())
    found, other = gradient(moved(), pairs[::-1], settings(objective), reading(**how))
    assert other == pytest.approx(row, abs=1e-5)
    assert (found - expected).abs().max() < 1e-5 * max(1.0, expected.norm().item())


def test_a_step_counts_its_pairs_and_the_tokens_of_both_answers():
    row = gradient(moved(), PAIRS[:3], settings("simpo"), reading(max_tokens=1))[1]
    assert row["pairs"] == 3
    assert row["tokens"] == sum(len(pair.chosen_ids) + len(pair.rejected_ids) for pair in PAIRS[:3])


def test_the_reference_is_that_of_each_pair_in_any_packing():
    expected = [pair.reference for pair in referenced()]
    for how in ({"max_tokens": 30}, {"max_tokens": 1}, {"one_by_one": True}):
        found = referenced(**how)
        assert [pair.pair_id for pair in found] == [pair.pair_id for pair in PAIRS]
        for pair, both in zip(found, expected, strict=True):
            assert pair.reference == pytest.approx(both, abs=1e-4)
    chosen = straight_logp(llama(), PAIRS[3].prompt_ids, PAIRS[3].chosen_ids).item()
    assert expected[3][0] == pytest.approx(chosen, abs=1e-4)


def test_micro_batches_keep_a_pair_together_and_within_the_budget():
    for one_by_one in (False, True):
        batches = list(micro_batches(PAIRS, 60, one_by_one=one_by_one))
        assert sorted(pair.pair_id for batch in batches for pair in batch) == [pair.pair_id for pair in PAIRS]
        assert len(batches) > 2
        for batch in batches:
            rows = packed_rows(batch, 60, one_by_one=one_by_one)
            assert sum(len(row.ids_L) for row in rows) <= 60
            assert {answer for row in rows for answer in row.row_T} == set(range(2 * len(batch)))
            assert one_by_one or len(rows) == 1


def test_a_pair_over_the_budget_is_read_in_two_passes_and_lost_in_none():
    rows = packed_rows(PAIRS[3:4], 10, one_by_one=False)
    assert [set(row.row_T) for row in rows] == [{1}, {0}]  # the longer first
    answers = answers_of(llama(), PAIRS[3:4], reading(max_tokens=10))
    assert answers.length_P2.tolist() == [[len(PAIRS[3].chosen_ids), len(PAIRS[3].rejected_ids)]]
    assert answers.reference_P2 is None


def test_every_epoch_takes_every_pair_once_in_an_order_of_its_own():
    epochs = [list(epoch_batches(PAIRS, 5, 0, epoch)) for epoch in (1, 2)]
    assert [len(batch) for batch in epochs[0]] == [5, 5, 5, 1]
    orders = [[pair.pair_id for batch in epoch for pair in batch] for epoch in epochs]
    assert sorted(orders[0]) == sorted(orders[1]) == [pair.pair_id for pair in PAIRS]
    assert orders[0] != orders[1]
    assert list(epoch_batches(PAIRS[::-1], 5, 0, 1)) == epochs[0]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_separable_preference_is_learnt_and_generalises(objective):
    pairs, options = referenced(), settings(objective, epochs=8)
    splits = Splits([p for n, p in enumerate(pairs) if n % 4 != 3], [p for n, p in enumerate(pairs) if n % 4 == 3])
    model = llama().requires_grad_(True)
    steps = train(model, StoredAdamW(trainable(model), options), splits, options, reading(), 0, Silent())
    assert len(steps) == 1 + 8 * 3
    assert steps[-1]["accuracy"] == steps[-1]["heldout_accuracy"] == 1.0
    assert steps[-1]["heldout_loss"] < 0.3 < steps[0]["heldout_loss"]
    assert steps[-1]["difference"] > steps[1]["difference"]
    measured = [step["step"] for step in steps if "heldout_loss" in step]
    assert measured == [3 * epoch for epoch in range(9)]


def test_the_first_step_of_dpo_is_at_log_2_and_undecided():
    measured = measure(llama(), referenced(), settings("dpo"), reading())
    assert measured["heldout_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert measured["heldout_accuracy"] == 0.5  # the same passes of the same weights: the same bits


def test_without_held_out_pairs_nothing_is_measured():
    assert measure(llama(), [], settings("simpo"), reading()) == {"heldout_loss": None, "heldout_accuracy": None}
