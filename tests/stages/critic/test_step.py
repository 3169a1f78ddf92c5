"""The critic's optimizer step: one denominator, whatever the micro-batches; and what its row of the table says."""

import polars as pl
import pytest
import torch

from stages.common.optimizer import StoredAdamW
from stages.common.params import Critic as Options
from stages.common.policy import trainable
from stages.critic.step import critic_step, described, micro_batches
from stages.critic.train import batches_of, train
from stages.critic.values import completion_values
from tests.silent import Silent
from tests.stages.critic.toy import GROUPS, critic_over, rows_to_learn
from tests.tiny import gpt2, llama

OPTIONS = Options(learning_rate=0.01, max_grad_norm=100.0)


def step(folder, make=llama, max_tokens=1000, one_by_one=False, clip=None, rows=None):
    critic = critic_over(make(), folder)
    model = critic.model.double()  # rounding must not be what is compared
    optimizer = StoredAdamW(trainable(model), OPTIONS)
    rows = (rows_to_learn() if rows is None else rows).with_row_index("index")
    packed = micro_batches(rows, max_tokens, one_by_one=one_by_one)
    row = critic_step(model, optimizer, rows, packed, clip)
    return row, torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_micro_batches_and_the_order_of_rows_change_nothing(make, clip, tmp_path):
    row, weights = step(tmp_path, make, clip=clip)
    others = [
        step(tmp_path, make, max_tokens=1, clip=clip),
        step(tmp_path, make, one_by_one=True, clip=clip),
        step(tmp_path, make, max_tokens=14, clip=clip, rows=rows_to_learn().reverse()),
    ]
    for other, moved in others:
        assert other.pop("value_clip") == row["value_clip"]
        assert other == pytest.approx({name: x for name, x in row.items() if name != "value_clip"}, rel=1e-6)
        torch.testing.assert_close(moved, weights, rtol=0, atol=1e-6)  # the masters are float32


def test_the_row_says_what_the_values_were_before_the_step(tmp_path):
    rows = rows_to_learn()
    row, _ = step(tmp_path, clip=0.05)
    model = critic_over(llama(), tmp_path).model
    found = completion_values(model, GROUPS, 1000)
    value = torch.tensor([v for number in range(rows.height) for v in found[number]]).double()
    old, returns = (torch.tensor(rows[name].explode().to_list()).double() for name in ("values", "returns"))
    plain, held = (value - returns).square(), (value.clamp(old - 0.05, old + 0.05) - returns).square()
    assert row["value_loss"] == pytest.approx(0.5 * torch.maximum(plain, held).mean().item(), rel=1e-4)
    assert row["value_clip"] == pytest.approx((held > plain).double().mean().item())
    assert row["value_mean"] == pytest.approx(value.mean().item(), abs=1e-5)
    assert row["return_mean"] == pytest.approx(returns.mean().item(), abs=1e-5)
    explained = 1 - (returns - value).var() / returns.var()
    assert row["explained_variance"] == pytest.approx(explained.item(), rel=1e-4)
    assert (row["rows"], row["tokens"], row["optimizer_step"]) == (6, 15, 1)


def test_equal_returns_have_no_variance_to_explain():
    values, returns = torch.tensor([0.1, 0.2]), torch.tensor([1.0, 1.0])
    assert described([(values, returns)])["explained_variance"] is None
    assert described([(returns, returns), (values, values)])["explained_variance"] == pytest.approx(1.0)


def test_epochs_take_every_group_once_in_orders_of_their_own():
    found = [
        (epoch, tuple(batch["prompt_id"].unique().sort())) for epoch, batch in batches_of(rows_to_learn(), 8, 3, 1)
    ]
    assert [epoch for epoch, _ in found] == [n for n in range(1, 9) for _ in range(3)]
    orders = [tuple(found[3 * n : 3 * n + 3][i][1] for i in range(3)) for n in range(8)]
    assert all(sorted(order) == [("p1",), ("p4",), ("p7",)] for order in orders)
    assert len(set(orders)) > 1


def test_rows_without_returns_are_left_out_and_without_any_nothing_moves(tmp_path):
    critic, journal = critic_over(llama(), tmp_path), Silent()
    weights = [p.detach().clone() for p in critic.model.parameters()]
    optimizer = StoredAdamW(trainable(critic.model), OPTIONS)
    options = {
        "epochs": 1,
        "steps": 1,
        "clip": 0.2,
        "pack_tokens": 64,
        "checkpointed": False,
        "iteration": 1,
        "seed": 0,
        "journal": journal,
    }
    none = rows_to_learn().with_columns(returns=pl.lit(None, dtype=pl.List(pl.Float32)))
    (row,) = train(critic, optimizer, none, **options)
    assert (row["value_loss"], row["learning_rate"], row["rows"]) == (None, None, 0)
    assert all(torch.equal(a, b) for a, b in zip(weights, critic.model.parameters(), strict=True))
    assert "nothing has a gradient" in journal.said[0]
    some = rows_to_learn().with_columns(returns=pl.when(pl.col("prompt_id") != "p4").then(pl.col("returns")))
    (row,) = train(critic, optimizer, some, **options)
    assert (row["rows"], row["tokens"]) == (3, 6)


def test_training_brings_values_to_the_returns(tmp_path):
    critic = critic_over(llama(), tmp_path)
    optimizer = StoredAdamW(trainable(critic.model), OPTIONS)
    options = {
        "epochs": 40,
        "steps": 1,
        "clip": None,
        "pack_tokens": 64,
        "checkpointed": False,
        "iteration": 1,
        "seed": 0,
    }
    steps = train(critic, optimizer, rows_to_learn(), **options, journal=Silent())
    assert steps[-1]["value_loss"] < 0.05 * steps[0]["value_loss"]
    assert steps[0]["explained_variance"] < 0 < 0.3 < steps[-1]["explained_variance"]
