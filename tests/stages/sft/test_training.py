"""The loss of fine-tuning by hand, and what must not change it."""

import polars as pl
import pytest
import torch

from stages.common.optimizer import StoredAdamW
from stages.common.params import Sft
from stages.common.policy import trainable
from stages.common.tables import DEMONSTRATIONS
from stages.sft.training import epoch_batches, mean_loss, micro_batches, optimizer_step, train
from tests.silent import Silent
from tests.tiny import gpt2, llama, sliding

PAIRS = [([11, 12, 13], [20, 21, 0]), ([14], [22, 0]), ([15, 16, 17, 18, 19], [23, 24, 25, 26, 0]), ([30, 31], [5, 0])]
SFT = Sft(file="d.jsonl", learning_rate=0.01, batch_sequences=2, max_grad_norm=100.0, epochs=3)


@pytest.fixture(params=[llama, gpt2], ids=["rotary", "absolute"])
def make(request):
    return request.param


def table(pairs=PAIRS, heldout=0):
    rows = [
        {"prompt_id": f"row-{n}", "split": "heldout" if n < heldout else "train", "prompt_ids": p, "completion_ids": c}
        for n, (p, c) in enumerate(pairs)
    ]
    blank = dict.fromkeys(DEMONSTRATIONS)
    return pl.DataFrame([blank | row for row in rows], schema=DEMONSTRATIONS)


def nats_by_hand(model, pairs):
    """One plain forward pass per row: sum of -log pi over the completions, with gradient."""
    total = 0.0
    for prompt, completion in pairs:
        logp = model(torch.tensor([prompt + completion])).logits[0].log_softmax(dim=-1)
        total = total - sum(logp[len(prompt) + t - 1, token] for t, token in enumerate(completion))
    return total


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


class Recorded(StoredAdamW):
    """Keeps the gradient of the step it takes."""

    def step(self):
        self.gradient = torch.cat([m.grad.flatten().clone() for m in self.masters.values() if m.grad is not None])
        return super().step()


def step(make, max_tokens=10**6, one_by_one=False, pairs=PAIRS):
    model = make().double().requires_grad_(True)  # rounding must not be what is compared
    optimizer = Recorded(trainable(model), SFT)
    packed = micro_batches(table(pairs), max_tokens, one_by_one=one_by_one)
    return optimizer_step(model, optimizer, packed), optimizer.gradient


def test_loss_and_gradient_are_the_mean_over_all_completion_tokens(make):
    row, found = step(make)
    model = make().double().requires_grad_(True)
    expected = nats_by_hand(model, PAIRS) / 12
    expected.backward()
    assert row["tokens"] == 12
    assert row["loss"] == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(found, gradient(model).float(), atol=1e-6)
    assert row["grad_norm"] == pytest.approx(gradient(model).norm().item(), rel=1e-5)
    assert row["learning_rate"] == 0.01


@pytest.mark.parametrize("limits", [{"max_tokens": 1}, {"max_tokens": 9}, {"one_by_one": True}])
def test_micro_batches_change_nothing(make, limits):
    (row, found), (other, same) = step(make), step(make, **limits)
    assert other["loss"] == pytest.approx(row["loss"], abs=1e-6)
    assert torch.allclose(found, same, atol=1e-6)


def test_a_token_of_the_prompt_is_never_a_target():
    packed = micro_batches(table(), 10**6, one_by_one=False)
    targets = sorted(token for row in packed for token in row.target_T)
    assert targets == sorted(token for _, completion in PAIRS for token in completion)


def test_rows_do_not_see_each_other(make):
    model = make()
    alone = [mean_loss(model, table([pair]), 512, one_by_one=False) for pair in PAIRS]
    together = mean_loss(model, table(), 512, one_by_one=False)
    lengths = [len(completion) for _, completion in PAIRS]
    assert together == pytest.approx(sum(a * n for a, n in zip(alone, lengths, strict=True)) / 12, abs=1e-5)
    assert together == pytest.approx(nats_by_hand(model, PAIRS).item() / 12, abs=1e-5)


def test_an_epoch_takes_each_row_once_in_an_order_of_its_own():
    rows = table(PAIRS * 5).with_columns(prompt_id=pl.format("row-{}", pl.int_range(20)))
    orders = []
    for seed, epoch in ((0, 1), (0, 2), (1, 1)):
        batches = list(epoch_batches(rows, 6, seed, epoch))
        assert [batch.height for batch in batches] == [6, 6, 6, 2]
        orders.append([prompt_id for batch in batches for prompt_id in batch["prompt_id"]])
        assert sorted(orders[-1]) == sorted(rows["prompt_id"])
    assert orders[0] != orders[1] != orders[2] != orders[0]
    again = epoch_batches(rows.reverse(), 6, 0, 1)
    assert [prompt_id for batch in again for prompt_id in batch["prompt_id"]] == orders[0]


def learnable(count=24):
    """What the answer is is told by the last token of the prompt; every other prompt repeats another one's ending."""
    return [([40 + n, 60 + n % 4], [100 + n % 4, 110 + n % 4, 0]) for n in range(count)]


@pytest.mark.parametrize("make", [llama, sliding], ids=["packed", "one by one"])
def test_heldout_loss_falls_on_what_can_be_learned(make):
    model, journal = make().requires_grad_(True), Silent()
    steps = train(model, StoredAdamW(trainable(model), SFT), table(learnable(), heldout=4), SFT, 0, journal)
    assert [row["step"] for row in steps] == list(range(31))
    assert [row["epoch"] for row in steps] == [0] + [1] * 10 + [2] * 10 + [3] * 10
    heldout = {row["step"]: row["heldout_loss"] for row in steps if row["heldout_loss"] is not None}
    assert list(heldout) == [0, 10, 20, 30]
    assert heldout[30] < 0.2 * heldout[0]
    assert steps[0]["loss"] is None
    assert sum(row["tokens"] for row in steps) == 3 * 20 * 3
    assert journal.said[-1].startswith("epoch 3 of 3: held-out loss ")
