"""What the critic starts as: the initial policy under a head of zeros, or a reward model with the head that it has.

The initial policy is the reference: with `policy.method: lora` its adapter changes nothing yet.
"""

from pathlib import Path
from typing import Any

from stages.common.critic import Critic, CriticError, headed
from stages.common.device import Runtime
from stages.common.params import Params
from stages.common.paths import REFERENCE, reward_model
from stages.common.policy import load_tokenizer, new_adapter
from stages.common.reward_text import same_reading
from stages.common.seeds import seed_of


def source_of(initial: str) -> Path:
    """The folder that the critic is a copy of."""
    return REFERENCE if initial == "policy" else reward_model(initial)


def checked_tokenizer(source: Path) -> Any:
    """The tokenizer of the model below the critic, which has to read the policy's tokens as they are."""
    if not (source / "config.json").exists():
        raise CriticError(f"{source} does not exist; run the stage that makes it (`dvc repro` or `rloo train`)")
    tokenizer = load_tokenizer(source)
    if source != REFERENCE and not same_reading(tokenizer, load_tokenizer()):
        raise CriticError(
            f"params.yaml: critic.initial: {source} has a tokenizer or template of its own, but a critic reads the "
            "policy's tokens one by one: take `policy`, or a reward model that was trained here"
        )
    return tokenizer


def new_critic(params: Params, runtime: Runtime) -> Critic:
    """A copy of its own, so that models which this process holds for other stages stay as they are."""
    assert params.critic is not None
    source = source_of(params.critic.initial)
    model = headed(source, runtime)
    if params.critic.method == "full":
        return Critic(model.requires_grad_(True), None)
    seed = seed_of(params.seed, "critic lora") % 2**63
    adapter = new_adapter(model, params.policy.lora, seed, task=None, source=source)
    model.score.requires_grad_(True)
    return Critic(model, adapter)
