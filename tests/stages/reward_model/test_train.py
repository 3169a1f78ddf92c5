"""Training steps: one denominator, no order, what an adapter trains, and a preference that can be learnt."""

import polars as pl
import pytest
import torch

from stages.common.device import Runtime
from stages.common.optimizer import StoredAdamW
from stages.common.params import Lora, RewardModel
from stages.common.policy import trainable
from stages.common.reward_model import RewardModelError, scores
from stages.reward_model.initial import make_trainable, merged, new_reward_model
from stages.reward_model.pairs import check_readable, epoch_batches, micro_batches, pairs_of
from stages.reward_model.train import accumulate, train
from tests.silent import Silent
from tests.stages.reward_model.toy import PREFERRED, RUNTIME, table
from tests.tiny import save_tiny

LORA = Lora(rank=2, alpha=4, targets=["q_proj", "v_proj"])
PAIRS = pairs_of(table(), margin=False)


def settings(**more):
    return RewardModel(**{**PREFERRED, **more})


@pytest.fixture
def new_model(tmp_path):
    save_tiny(tmp_path / "reference")
    return lambda seed=0: new_reward_model(tmp_path / "reference", RUNTIME, seed, frozenset({0}))[0]


def gradient(model, pairs, **more):
    options = settings(**more)
    model.requires_grad_(True)
    optimizer = StoredAdamW(trainable(model), options)
    row = accumulate(model, pairs, options, optimizer)
    return torch.cat([p.grad.flatten() for p in model.parameters()]), row


@pytest.mark.parametrize("more", [{}, {"centring": 0.1}])
def test_gradient_depends_neither_on_the_order_of_pairs_nor_on_micro_batches(new_model, more):
    expected, row = gradient(new_model(), PAIRS[:6], **more)
    for pairs, tokens in ((PAIRS[5::-1], 1024), (PAIRS[:6], 40), (PAIRS[5::-1], 1)):
        found, other = gradient(new_model(), pairs, batch_tokens=tokens, **more)
        assert torch.allclose(found, expected, atol=1e-6)
        assert other == pytest.approx(row, abs=1e-6)


def test_loss_is_the_mean_over_pairs_by_hand(new_model):
    model = new_model()
    found = gradient(model, PAIRS[:3], centring=0.5)[1]
    chosen = torch.tensor(scores(model, [p.chosen_ids for p in PAIRS[:3]], 100))
    rejected = torch.tensor(scores(model, [p.rejected_ids for p in PAIRS[:3]], 100))
    expected = (1 + (rejected - chosen).exp()).log() + 0.5 * (chosen + rejected) ** 2
    assert found["loss"] == pytest.approx(expected.mean().item(), abs=1e-5)
    assert found["difference"] == pytest.approx((chosen - rejected).mean().item(), abs=1e-5)
    assert found["accuracy"] == pytest.approx((chosen > rejected).float().mean().item())
    assert found["tokens"] == sum(len(p.chosen_ids) + len(p.rejected_ids) for p in PAIRS[:3])


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_separable_preference_is_learnt(new_model, method):
    model, lora = new_model(), LORA if method == "lora" else None
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted = make_trainable(model, lora, 1)
    steps = train(model, PAIRS, settings(epochs=10), 3, Silent())
    model = merged(adapted, lora)
    chosen = scores(model, [p.chosen_ids for p in PAIRS], 200)
    rejected = scores(model, [p.rejected_ids for p in PAIRS], 200)
    assert all(c > r for c, r in zip(chosen, rejected, strict=True))
    assert steps[-1]["accuracy"] == 1.0
    assert steps[-1]["loss"] < 0.2 < steps[0]["loss"]
    after = model.state_dict()
    assert after.keys() == before.keys()  # an ordinary model again
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert "score.weight" in moved
    if lora is not None:
        assert moved == {"score.weight", *(n for n in before if "q_proj" in n or "v_proj" in n)}


def test_half_precision_learns_by_float32_masters(tmp_path):
    save_tiny(tmp_path / "reference")
    half = Runtime(torch.device("cpu"), torch.bfloat16)
    model = new_reward_model(tmp_path / "reference", half, 0, frozenset({0}))[0].requires_grad_(True)
    steps = train(model, PAIRS, settings(epochs=10), 3, Silent())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert steps[-1]["accuracy"] == 1.0


def test_the_new_head_depends_on_the_seed_alone(new_model):
    torch.manual_seed(5)
    first = new_model().score.weight
    assert torch.equal(new_model().score.weight, first)
    assert not torch.equal(new_model(1).score.weight, first)
    assert first.std().item() == pytest.approx(33**-0.5, rel=0.5)


def test_every_epoch_takes_every_pair_once_in_an_order_of_its_own():
    epochs = [list(epoch_batches(PAIRS, 5, 0, epoch)) for epoch in (1, 2)]
    assert [len(batch) for batch in epochs[0]] == [5, 5, 5, 1]
    orders = [[pair.pair_id for batch in epoch for pair in batch] for epoch in epochs]
    assert sorted(orders[0]) == sorted(orders[1]) == [pair.pair_id for pair in PAIRS]
    assert orders[0] != orders[1]
    assert list(epoch_batches(PAIRS[::-1], 5, 0, 1)) == epochs[0]


def test_micro_batches_count_both_answers_and_their_padding():
    for batch in micro_batches(PAIRS, 48):
        assert 2 * len(batch) * max(pair.longest for pair in batch) <= 48


def test_margins_are_taken_or_left():
    rows = table(2).with_columns(margin=pl.Series([1.5, 0.5]))
    assert [pair.margin for pair in pairs_of(rows, margin=True)] == [1.5, 0.5]
    assert [pair.margin for pair in pairs_of(rows, margin=False)] == [0.0, 0.0]


def test_a_missing_margin_names_the_pair():
    rows = table(2).with_columns(margin=pl.Series([1.5, None]))
    with pytest.raises(RewardModelError, match="pair p01 has no margin"):
        pairs_of(rows, margin=True)


def test_a_pair_that_is_too_long_is_named(new_model):
    rows = table(1).with_columns(chosen_ids=pl.Series([[7] * 600]))
    with pytest.raises(RewardModelError, match=r"pair p00: 60. tokens, and the reward model has 512 positions"):
        check_readable(new_model(), pairs_of(rows, margin=False))
