"""From tables to optimizer steps: which rows count in which denominator, over minibatches and epochs."""

from types import SimpleNamespace

import polars as pl
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from stages.common.optimizer import StoredAdamW
from stages.common.params_file import parse_params
from stages.common.policy import trainable
from stages.update.run import run_steps
from tests.silent import Silent
from tests.stages.update.test_step import rows_for
from tests.tiny import llama, sliding
from tests.workspace import ROOT


def params(**options):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["rollout"] |= {"temperature": 1.0}
    raw["update"] |= {"learning_rate": 0.01, "max_grad_norm": 100.0} | options
    return parse_params(raw, "params.yaml")


def take(rows, save_to=None, **options):
    """All steps over rows with the columns of the advantage table; the gradient's norms are in the steps."""
    model, journal = llama().requires_grad_(True), Silent()
    settings = params(**options)
    optimizer = StoredAdamW(trainable(model), settings.update)
    steps = run_steps(model, optimizer, rows, 1, settings, journal, save_to=save_to)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return SimpleNamespace(
        steps=steps, weights=weights, said=journal.said, count=optimizer.step_count, optimizer=optimizer
    )


@pytest.fixture
def rows():
    return rows_for(llama()).with_columns(in_loss=pl.lit(True), accepted=pl.lit(True))


def outside(rows, prompt_id):
    """The same rows with one group outside of the loss."""
    out = pl.col("prompt_id") == prompt_id
    return rows.with_columns(in_loss=~out, advantage=pl.when(~out).then(pl.col("advantage")))


@pytest.mark.parametrize("reduction", ["sequence_sum", "response_mean", "token_mean", "constant_length"])
def test_a_row_outside_the_loss_is_in_no_denominator(rows, reduction):
    found = take(outside(rows, "b"), reduction=reduction).steps[0]
    without = take(rows.filter(pl.col("prompt_id") != "b"), reduction=reduction).steps[0]
    assert found["loss"] == pytest.approx(without["loss"], abs=1e-7)
    assert found["grad_norm"] == pytest.approx(without["grad_norm"], rel=1e-6)
    assert (found["rows"], found["rows_in_loss"], without["rows_in_loss"]) == (9, 6, 6)


@pytest.mark.parametrize("reduction", ["sequence_sum", "response_mean", "token_mean"])
def test_a_row_whose_advantage_is_zero_is(rows, reduction):
    """Group b has advantages of 0: inside the loss it takes up its part of the denominator."""
    inside, without = (take(r, reduction=reduction).steps[0] for r in (rows, outside(rows, "b")))
    lengths = rows.group_by("prompt_id").agg(pl.col("completion_ids").list.len().sum())
    tokens = dict(lengths.rows())
    share = (tokens["a"] + tokens["c"]) / sum(tokens.values()) if reduction == "token_mean" else 6 / 9
    assert inside["loss"] == pytest.approx(without["loss"] * share, abs=1e-6)
    assert inside["rows_with_gradient"] == without["rows_with_gradient"] == 6


def test_epochs_and_minibatches_take_every_group_once_per_epoch(rows):
    found = take(rows, epochs=2, minibatches=3, objective="ppo")
    assert [step["epoch"] for step in found.steps] == [1, 1, 1, 2, 2, 2]
    assert [step["rows"] for step in found.steps] == [3] * 6
    assert found.count == 4  # group b has no gradient, twice
    assert sum("no row has a gradient" in text for text in found.said) == 2
    assert [step["learning_rate"] is None for step in found.steps].count(True) == 2
    drift = [step["approx_kl"] for step in found.steps if step["approx_kl"] is not None]
    assert drift[0] == pytest.approx(0, abs=1e-6)
    assert drift[-1] > 1e-5


def test_a_correction_over_several_steps_keeps_the_mismatch_apart_from_the_drift(rows):
    """The sampler is off by .1 nats a token; the ratios of the objective start at 1 all the same."""
    off = rows.with_columns(pl.col("sampler_logprobs").list.eval(pl.element() - 0.1))
    correction = {"form": "truncate", "cap": 5.0}
    first, *_, last = take(off, epochs=3, objective="ppo", importance_correction=correction).steps
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert first["importance_mean"] == pytest.approx(torch.tensor(0.1).exp().item(), rel=1e-4)
    assert last["importance_mean"] == pytest.approx(first["importance_mean"], rel=1e-4)  # that of the start, throughout
    assert abs(last["ratio_mean"] - 1.0) > 1e-4
    assert take(off, epochs=3, objective="ppo").steps[0]["ratio_mean"] > 1.1


def test_without_any_row_in_the_loss_nothing_moves(rows):
    nothing = rows.with_columns(in_loss=pl.lit(False), advantage=pl.lit(None, dtype=pl.Float64))
    for one in (nothing, nothing.clear()):
        found = take(one)
        assert torch.equal(found.weights, torch.cat([p.detach().flatten() for p in llama().parameters()]))
        assert found.count == 0
        assert "step 1: no row has a gradient" in found.said[-1]


def test_an_update_of_an_adapter_computes_no_gradient_of_the_base(rows):
    """The layers below the first adapter are not even part of the backward pass."""
    lora = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], layers_to_transform=[1])
    model, settings = get_peft_model(llama(), lora).eval(), params()
    own = trainable(model)
    with torch.no_grad():
        for parameter in own.values():
            parameter.fill_(0.05)
    with_graph, seen = [], []
    layers = model.get_base_model().model.layers
    for layer in layers:
        layer.register_forward_hook(lambda _, __, out: with_graph.append(out.requires_grad))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    run_steps(model, StoredAdamW(own, settings.update), rows, 1, settings, Silent())
    assert set(seen) == set(own)
    assert all("lora" in name for name in own)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert with_graph[-2:] == [False, True]


@pytest.mark.parametrize("options", [{}, {"epochs": 2}, {"minibatches": 3}])
def test_the_last_step_leaves_the_state_on_the_way(rows, tmp_path, options):
    plain, other = take(rows, **options), take(rows, tmp_path / "other", **options)
    assert torch.equal(other.weights, plain.weights)
    assert other.steps == plain.steps
    plain.optimizer.save(tmp_path / "plain")
    skipped = not plain.steps[-1]["grad_norm"]  # where only group b, without advantages, is left to the last step
    assert (tmp_path / "other").exists() is not skipped
    if skipped:
        other.optimizer.save(tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "plain").read_bytes()


def test_a_last_step_without_a_gradient_leaves_the_state_to_be_saved(rows, tmp_path):
    """Whichever of three steps has group b alone: some seed puts it last."""
    for seed in range(20):
        found = take(rows.with_columns(prompt_id=pl.col("prompt_id") + str(seed)), tmp_path / str(seed), minibatches=3)
        if not found.steps[-1]["grad_norm"]:
            assert not (tmp_path / str(seed)).exists()
            assert found.count == 2
            found.optimizer.save(tmp_path / str(seed))
            assert len(load_file(tmp_path / str(seed))) == 2 * len(found.optimizer.masters)
            return
    pytest.fail("no seed puts it last")


def assert_same_columns(found, wanted):
    for name, value in wanted.items():
        same = found[name] is None if value is None else found[name] == pytest.approx(value, rel=1e-4, abs=1e-6)
        assert same, (name, found[name], value)


def test_checkpointing_changes_no_step(rows):
    plain, checkpointed = take(rows), take(rows, gradient_checkpointing=True)
    assert torch.allclose(checkpointed.weights, plain.weights, rtol=0, atol=1e-6)
    assert_same_columns(checkpointed.steps[0], plain.steps[0])


@pytest.mark.parametrize("keep_zero", [False, True])
def test_packing_changes_no_column_of_the_steps_table(rows, keep_zero):
    """Small rows and one large row: sums of micro-batches; only rows that are skipped are not described."""
    entropy = {"entropy_bonus": 1e-9} if keep_zero else {}
    one, many = (take(rows, pack_tokens=tokens, **entropy) for tokens in (1000, 14))
    assert_same_columns(many.steps[0], one.steps[0])
    assert one.steps[0]["rows_with_gradient"] == (9 if keep_zero else 6)


def test_a_model_without_block_mask_is_told_of_once():
    model, settings, journal = sliding().requires_grad_(True), params(epochs=2, objective="ppo"), Silent()
    rows = rows_for(model).with_columns(in_loss=pl.lit(True), accepted=pl.lit(True))
    run_steps(model, StoredAdamW(trainable(model), settings.update), rows, 1, settings, journal)
    assert [text for text in journal.said if "block mask" in text] == [
        "this model does not take a block mask: one completion per forward pass"
    ]
