"""Losses of pairs equal those of TRL's DPOTrainer and of its CPOTrainer with `loss_type` simpo.

The log-probs of answers are prepared, in float64; gradients of a model's weights, in float32, are TRL's own forward
pass against ours.
"""

from types import SimpleNamespace

import pytest
import torch

from stages.common.params import Dpo, Offline, Simpo
from stages.offline import dpo, simpo
from stages.offline.answers import Reading, answers_of, with_reference
from stages.offline.objective import terms_of
from stages.offline.pairs import Pair
from tests.tiny import llama, tiny_tokenizer
from tests.trl.trainers import datasets, masks_of, padded, trl

cpo = pytest.importorskip("trl.experimental.cpo")

EXACT = {"rtol": 0, "atol": 1e-10}
PAIRS = 6


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def trainer_of(folder, config, kind, models=(), **options):
    args = config(
        output_dir=str(folder), report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False, **options
    )
    data = datasets.Dataset.from_dict({"prompt": ["q"], "chosen": ["a"], "rejected": ["b"]})
    return kind(llama(), *models, args=args, train_dataset=data, processing_class=tiny_tokenizer())


def dpo_trainer(folder, **options):
    made = trainer_of(folder, trl.DPOConfig, trl.DPOTrainer, models=[llama()], **options)
    made.model.train()
    return made


def random_logp(seed):
    """Log-probs [P, 2] of answers under policy and reference, and their lengths."""
    generator = torch.Generator().manual_seed(seed)
    logp_P2 = -30 * torch.rand(PAIRS, 2, generator=generator)
    reference_P2 = logp_P2 + 8 * torch.randn(PAIRS, 2, generator=generator)
    return logp_P2, reference_P2, torch.randint(1, 20, (PAIRS, 2), generator=generator)


class Prepared(torch.nn.Module):
    """A model whose answers are one token each, with the log-probs it was given: all chosen ones, then all rejected."""

    def __init__(self, logp_P2):
        super().__init__()
        self.logp_P2 = logp_P2

    def forward(self, **_):
        logp = self.logp_P2.T.reshape(-1, 1)
        return SimpleNamespace(log_probs=logp, entropy=logp, mean_logits=logp, is_top1=logp > 0)


def dpo_loss(trainer, logp_P2, reference_P2):
    """TRL's loss of the pairs, alone or together."""
    count = len(logp_P2)
    inputs = {"input_ids": torch.ones(2 * count, 2, dtype=torch.long), "attention_mask": torch.ones(2 * count, 2)}
    inputs |= {"completion_mask": torch.tensor([[0, 1]] * (2 * count))}
    inputs |= dict(zip(("ref_chosen_logps", "ref_rejected_logps"), reference_P2.T, strict=True))
    trainer.precompute_ref_logps = True
    return trainer._compute_loss(Prepared(logp_P2), inputs, return_outputs=False)


def assert_equal(mine, theirs, logp_P2):
    torch.testing.assert_close(mine, theirs, **EXACT)
    gradients = [torch.autograd.grad(loss, logp_P2, retain_graph=True)[0] for loss in (mine, theirs)]
    torch.testing.assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("beta", [0.05, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_dpo(tmp_path, float64, beta, seed):
    logp_P2, reference_P2, _ = random_logp(seed)
    logp_P2.requires_grad_(True)
    options = Dpo(beta=beta)
    difference_P = dpo.differences(logp_P2, reference_P2, options)
    trainer = dpo_trainer(tmp_path, beta=beta)
    assert_equal(dpo.losses(difference_P, options).mean(), dpo_loss(trainer, logp_P2, reference_P2), logp_P2)
    metrics = trainer._metrics["train"]
    assert metrics["rewards/margins"] == [pytest.approx(difference_P.mean().item())]
    assert metrics["rewards/accuracies"] == [pytest.approx((difference_P > 0).double().mean().item())]


def test_label_smoothing(tmp_path, float64):
    """TRL's `sigmoid` takes none; its `aot` of a single pair, where there is nothing to sort, is conservative DPO."""
    logp_P2, reference_P2, _ = random_logp(0)
    logp_P2.requires_grad_(True)
    options = Dpo(beta=0.2, label_smoothing=0.15)
    trainer = dpo_trainer(tmp_path, beta=0.2, label_smoothing=0.15, loss_type="aot")
    for place in range(PAIRS):
        one = slice(place, place + 1)
        mine = dpo.losses(dpo.differences(logp_P2[one], reference_P2[one], options), options).mean()
        assert_equal(mine, dpo_loss(trainer, logp_P2[one], reference_P2[one]), logp_P2)


@pytest.mark.parametrize("margin", [0.0, 1.4])
@pytest.mark.parametrize("seed", [0, 1])
def test_simpo(tmp_path, float64, margin, seed):
    """TRL averages log-probs over tokens before its loss; its `simpo_gamma` is our margin."""
    logp_P2, _, length_P2 = random_logp(seed)
    logp_P2.requires_grad_(True)
    options = Simpo(beta=2.5, margin=margin)
    choices = {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": 2.5, "simpo_gamma": margin}
    trainer = trainer_of(tmp_path, cpo.CPOConfig, cpo.CPOTrainer, **choices)
    mine_P = simpo.losses(simpo.differences(logp_P2, length_P2, options), options)
    theirs_P, chosen_P, rejected_P = trainer.cpo_loss(*(logp_P2 / length_P2).T)
    torch.testing.assert_close(mine_P, theirs_P, **EXACT)
    assert_equal(mine_P.mean(), theirs_P.mean(), logp_P2)
    torch.testing.assert_close(simpo.differences(logp_P2, length_P2, options), chosen_P - rejected_P, **EXACT)


def random_pairs():
    generator = torch.Generator().manual_seed(0)

    def ids(length):
        return torch.randint(5, 300, (length,), generator=generator).tolist()

    return [Pair(f"p{n}", ids(2 + n), ids(3 + n % 3), ids(6 - n % 4)) for n in range(PAIRS)]


def moved():
    """A policy that is not its reference any more."""
    model, generator = llama().requires_grad_(True), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model


def flat(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_gradients_of_the_weights(tmp_path):
    """Our packed pairs against TRL's padded batch, reference and all, each with its own forward pass."""
    settings, reading = Offline(objective="dpo", pairs="toy", learning_rate=1e-3), Reading(1.0, 1000, one_by_one=False)
    pairs, policy = with_reference(llama(), random_pairs(), reading, lambda *_: None), moved()
    mine = terms_of(answers_of(policy, pairs, reading), settings).loss_P.mean()
    torch.autograd.backward(mine)
    trainer = dpo_trainer(tmp_path, beta=0.1)
    trainer.model.load_state_dict(moved().state_dict())
    answers = [(p.prompt_ids, p.chosen_ids) for p in pairs] + [(p.prompt_ids, p.rejected_ids) for p in pairs]
    whole = [[*prompt, *answer] for prompt, answer in answers]
    inputs = {
        "input_ids": padded(whole, 0),
        "attention_mask": masks_of(whole),
        "completion_mask": padded([[0] * len(prompt) + [1] * len(answer) for prompt, answer in answers], 0),
    }
    theirs = trainer._compute_loss(trainer.model, inputs, return_outputs=False)
    torch.autograd.backward(theirs)
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-6)
    found, expected = flat(policy), flat(trainer.model)
    torch.testing.assert_close(found / found.norm(), expected / expected.norm(), rtol=0, atol=1e-6)
