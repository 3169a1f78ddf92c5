"""Policies as Hugging Face folders: loading, saving, and keeping them in memory between stages.

Full fine-tuning: `data/policies/<iteration>` is a model folder. LoRA: it is an adapter folder over
`data/reference`, and the reference policy is that model with the adapter off. Weights are safetensors, never pickle.
"""

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from stages.common.critic import Critic, critic_hash, described, load_critic
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.fingerprint import folder_hash
from stages.common.params import Lora
from stages.common.paths import REFERENCE
from stages.common.reward_model import load_reward_folder

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

transformers_logging.disable_progress_bar()
# peft 0.21 asks transformers for an attribute under its old name
warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)


class PolicyError(StageError):
    """A model folder that cannot be used; the message names it."""


def load_tokenizer(folder: Path = REFERENCE) -> Any:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def load_model(folder: Path, runtime: Runtime) -> Any:
    """A causal language model from a folder, in evaluation mode (no dropout) and without gradients."""
    if not (folder / "config.json").exists():
        raise PolicyError(f"{folder}: not a model folder (no config.json)")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=runtime.dtype, local_files_only=True, attn_implementation="sdpa"
    )
    return model.to(runtime.device).eval().requires_grad_(False)


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).exists()


class Models:
    """Models of this process by content: a stage asks for a folder and gets the weights that lie there now.

    A resident worker keeps one instance, so that the policy an update wrote is the one the next rollout uses. What is
    held is compared with the folder's content hash on each request.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._base: tuple[str, Any] | None = None
        self._policy: tuple[str, Any] | None = None
        self._config: bytes | None = None  # of the adapter that is built into the base
        self._rewards: dict[Path, tuple[str, tuple[Any, Any]]] = {}
        self._critic: tuple[str, Critic] | None = None

    def base(self) -> Any:
        """The model in `data/reference`."""
        found = folder_hash(REFERENCE)
        if self._base is None or self._base[0] != found:
            self._policy = self._config = None
            self._base = (found, load_model(REFERENCE, self.runtime))
        return self._base[1]

    def policy(self, folder: Path) -> Any:
        """The policy in a folder, its trainable parameters requiring gradients."""
        if is_adapter(folder):
            return self._adapted(folder)
        found = folder_hash(folder)
        if self._policy is None or self._policy[0] != found:
            self._drop()  # free the old weights before the new ones are read
            self._policy = (found, load_model(folder, self.runtime).requires_grad_(True))
        return self._policy[1]

    def _adapted(self, folder: Path) -> Any:
        """The base with the folder's adapter; a held one of the same config only gets the folder's weights."""
        found, config = folder_hash(folder), (folder / ADAPTER_CONFIG).read_bytes()
        if self._config != config:
            self._drop()
        base = self.base()
        if self._policy is None:
            self._policy = (found, _attach(base, folder))
            self._config = config
        elif self._policy[0] != found:
            _load_adapter(self._policy[1], folder)
            self._policy = (found, self._policy[1])
        return self._policy[1]

    def _drop(self) -> None:
        """Forget the policy, and the base with it if an adapter was built into it."""
        if self._config is not None:
            self._base = self._config = None
        self._policy = None

    def saved(self, folder: Path) -> None:
        """The held policy is now what lies in `folder`: an update has just written it there."""
        assert self._policy is not None
        self._policy = (folder_hash(folder), self._policy[1])

    def dirty(self) -> None:
        """The held policy no longer is any folder's: an update is changing it."""
        if self._policy is not None:
            self._policy = ("", self._policy[1])

    def reward_model(self, folder: Path) -> tuple[Any, Any]:
        """The reward model in a folder, and its tokenizer."""
        found = folder_hash(folder)
        if folder not in self._rewards or self._rewards[folder][0] != found:
            self._rewards.pop(folder, None)
            self._rewards[folder] = (found, load_reward_folder(folder, self.runtime))
        return self._rewards[folder][1]

    def critic(self, folder: Path) -> Critic | None:
        """The critic in a folder, a model of its own beside the policy; None: the run has none."""
        if described(folder) is None:
            self._critic = None
            return None
        found = critic_hash(folder)
        if self._critic is None or self._critic[0] != found:
            self._critic = None  # free the old weights before the new ones are read
            self._critic = (found, load_critic(folder, self.runtime))
        return self._critic[1]

    def critic_changed(self, folder: Path | None) -> None:
        """The held critic is being trained (None), or is now what lies in `folder`."""
        assert self._critic is not None
        self._critic = ("" if folder is None else critic_hash(folder), self._critic[1])

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The reference policy: the base, with any adapter off."""
        model = self.base()
        if self._policy is not None and self._config is not None:
            with self._policy[1].disable_adapter():
                yield self._policy[1]
        else:
            yield model


def _attach(base: Any, folder: Path) -> Any:
    return PeftModel.from_pretrained(base, folder, is_trainable=True).eval()


def _load_adapter(model: Any, folder: Path) -> None:
    result = set_peft_model_state_dict(model, load_file(folder / ADAPTER_WEIGHTS))
    if result.unexpected_keys:
        raise PolicyError(f"{folder}: adapter weights {result.unexpected_keys[:3]} do not fit the base model")


def new_adapter(base: Any, lora: Lora, seed: int, task: str | None = "CAUSAL_LM", source: Path = REFERENCE) -> Any:
    """A fresh LoRA adapter (B = 0: it changes nothing), A drawn from the seed, on a model that lies in `source`; `task`
    is peft's name for what it is for.
    """
    torch.manual_seed(seed)
    depth = base.config.get_text_config().num_hidden_layers
    if lora.last_layers is not None and lora.last_layers > depth:
        raise PolicyError(f"params.yaml: policy.lora.last_layers = {lora.last_layers}: the model has {depth} layers")
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=lora.targets,
        layers_to_transform=None if lora.last_layers is None else list(range(depth - lora.last_layers, depth)),
        task_type=task,
        base_model_name_or_path=str(source),
    )
    try:
        return get_peft_model(base, config).eval()
    except ValueError as error:
        raise PolicyError(f"params.yaml: policy.lora.targets = {lora.targets}: {error}") from None


def save_policy(model: Any, source: Path, target: Path) -> None:
    """Write the policy to the folder `target`, its other files (config, tokenizer) taken from the folder `source`."""
    target.mkdir(parents=True)
    if isinstance(model, PeftModel):
        shutil.copyfile(source / ADAPTER_CONFIG, target / ADAPTER_CONFIG)
        save_adapter_weights(model, target)
        return
    model.save_pretrained(target)
    for path in source.iterdir():
        written = (target / path.name).exists()  # the config among others, with the precision of these weights
        if not written and path.suffix != ".safetensors" and not path.name.endswith(".index.json"):
            shutil.copyfile(path, target / path.name)


def save_adapter_weights(model: Any, folder: Path) -> None:
    state = {name: tensor.contiguous().cpu() for name, tensor in sorted(get_peft_model_state_dict(model).items())}
    save_file(state, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def save_new_adapter(model: Any, folder: Path, base: Path = REFERENCE) -> None:
    """Write a fresh adapter over `base` with a config whose bytes do not depend on Python's set order."""
    folder.mkdir(parents=True)
    config = {
        key: sorted(value) if isinstance(value, (set, list)) else value
        for key, value in model.peft_config["default"].to_dict().items()
    }
    config |= {"base_model_name_or_path": str(base), "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    save_adapter_weights(model, folder)


def trainable(model: Any) -> dict[str, torch.nn.Parameter]:
    """Parameters that an update changes, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
