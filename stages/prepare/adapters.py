"""Whether the adapters that params.yaml asks for can be built into the base: tried on a model without weights.

An adapter is made after fine-tuning and after reward models are trained; a wrong name among `policy.lora.targets` would
be told only then. What is tried here goes through the same code, on the meta device: no weight is read or drawn.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from stages.common import paths
from stages.common.adapter import new_adapter
from stages.common.journal import Journal
from stages.common.model_folder import how_to_load, load_config
from stages.common.params import Lora, Params, ParamsError
from stages.common.reward_model import head_of

Build = Callable[..., Any]


def check_adapters(params: Params, journal: Journal) -> None:
    """A PolicyError or ParamsError names the option that does not fit the model in `data/base`."""
    causal = params.policy.method == "lora" or (params.sft is not None and params.sft.method == "lora")
    if causal:
        model = without_weights(AutoModelForCausalLM.from_config, journal)
        if model is not None:
            adapt(model, params.policy.lora, "CAUSAL_LM")
    for option, adapted in headed(params).items():
        check_headed(option, params.policy.lora if adapted else None, journal)


def headed(params: Params) -> dict[str, bool]:
    """Models that get a head over the policy's architecture, by their option, and whether an adapter is trained."""
    trained = {name: model for name, model in params.reward_models.items() if model.preferences is not None}
    found = {f"reward_models.{name}": model.method == "lora" for name, model in trained.items()}
    if params.critic is not None and params.critic.initial == "policy":
        found["critic"] = params.critic.method == "lora"
    return found


def check_headed(option: str, lora: Lora | None, journal: Journal) -> None:
    """The architecture has a form with a head `score`, and takes the adapter, if there is to be one."""
    try:
        model = without_weights(AutoModelForSequenceClassification.from_config, journal)
    except ValueError:
        kind = type(load_config(paths.BASE)).__name__.removesuffix("Config")
        raise ParamsError(
            f"params.yaml: {option}: there is no sequence classification for the model of prepare.model ({kind}), "
            "neither in transformers nor in code that the model brings; remove it, or start from another model"
        ) from None
    if model is None:
        return
    if head_of(model) is None:
        raise ParamsError(
            f"params.yaml: {option}: {type(model).__name__} has no head `score` over its last hidden state"
        )
    if lora is not None:
        adapt(model, lora, None)


def without_weights(build: Build, journal: Journal) -> Any:
    """The base's architecture on the meta device; None: its own code cannot be run there. A ValueError if there is no
    such form of it.
    """
    trust = how_to_load(paths.BASE)["trust_remote_code"]
    try:
        with torch.device("meta"):
            return build(load_config(paths.BASE), trust_remote_code=trust)
    except ValueError:
        raise
    except Exception as error:
        if not trust:
            raise
        journal.say(f"adapters are not tried yet: the model's own code does not run without weights: {error}")
        return None


def adapt(model: Any, lora: Lora, task: str | None) -> None:
    """Build an adapter in, and leave the random numbers of this process as they were."""
    with torch.random.fork_rng(devices=[]):
        new_adapter(model, lora, seed=0, task=task, source=paths.BASE)
