"""Gradients that `diagnose` and `rloo compare` report, against plain forward passes over the run's own tables."""

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from stages.common.tables import KEY
from tests.pipeline.test_methods import table


@pytest.fixture(scope="module")
def run(new_workspace):
    """One iteration of full fine-tuning, with response_mean, and estimators compared on it."""
    made = new_workspace()
    for key, value in {
        "policy.method": "full",
        "update.reduction": "response_mean",
    }.items():
        made.change(key, value)
    made.plan(1, 1)
    with made.warm():
        made.run("dvc", "repro", "diagnose@i0001", "update@i0001")
    made.run("rloo", "compare", "i0001", "--estimators", "rloo,reinforce,raft")
    return made


@pytest.fixture(scope="module")
def rows(run):
    prompts = pl.read_parquet(run.folder / "data/prompts.parquet").select("prompt_id", "prompt_ids")
    advantages = table(run, "advantages").select(*KEY, "advantage", "in_loss")
    joined = table(run, "rollouts").join(advantages, on=KEY).join(prompts, on="prompt_id")
    return joined.filter("in_loss").sort("length", *KEY)


def gradient(run, rows, weights):
    """Of minus the weighted log-probs of the rows, each token with its row's weight."""
    model = AutoModelForCausalLM.from_pretrained(run.folder / "data/policies/i0000").eval()
    loss = 0.0
    for row, weight in zip(rows.iter_rows(named=True), weights, strict=True):
        prompt, completion = row["prompt_ids"], row["completion_ids"]
        logp = model(torch.tensor([[*prompt, *completion]])).logits[0].log_softmax(dim=-1)
        loss = loss - weight * sum(logp[len(prompt) + t - 1, token] for t, token in enumerate(completion))
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_each_quartile_s_norm_is_that_of_its_rows_alone(run, rows):
    shares = table(run, "gradient_shares")
    place = torch.arange(rows.height) * 4 // rows.height + 1
    advantage, length = rows["advantage"].to_torch(), rows["length"].to_torch()
    assert advantage.abs().max() > 0.1
    for reduction, scale in (("sequence_sum", 1.0), ("response_mean", 1.0 / length), ("token_mean", 1.0)):
        norms = [gradient(run, rows, advantage * scale * (place == q)).norm().item() for q in (1, 2, 3, 4)]
        found = shares.filter(reduction=reduction).sort("quartile")
        assert found["gradient_norm"].to_list() == pytest.approx(norms, rel=1e-3, abs=1e-5)
        assert found["share"].to_list() == pytest.approx([n / sum(norms) for n in norms], abs=1e-3)


def test_cosines_are_those_of_the_gradients_under_the_reduction(run, rows):
    frame = pl.read_parquet(run.folder / "data/compare/i0001.parquet")
    joined = rows.join(frame.drop("task_reward", "score"), on=KEY, maintain_order="left")
    scale = 1.0 / joined["length"].to_torch()
    names = ["rloo", "reinforce", "raft"]
    weights = [joined[f"advantage/{name}"].fill_null(0.0).to_torch() * scale for name in names]
    gradients = torch.stack([gradient(run, joined, weight) for weight in weights])
    unit = gradients / gradients.norm(dim=1, keepdim=True)
    found = pl.read_csv(run.folder / "data/compare/i0001.cosines.csv")
    assert found["estimator"].to_list() == names
    for name, row in zip(names, (unit @ unit.T).tolist(), strict=True):
        assert found[name].to_list() == pytest.approx(row, abs=1e-3)
    assert abs(found["reinforce"][0]) < 0.99


def test_scores_of_another_penalty_are_not_compared(run):
    run.change("score.kl", {"beta": 0.04, "placement": "loss", "estimator": "k3", "importance_weighted": False})
    output = run.fail("rloo", "compare", "i0001", "--estimators", "rloo,raft")
    assert "was made with another penalty than score.kl in params.yaml" in output
