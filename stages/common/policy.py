"""Policies as Hugging Face folders: loading, saving, and keeping them in memory between stages.

Full fine-tuning: `data/policies/<iteration>` is a model folder. LoRA: it is an adapter folder over
`data/reference`, and the reference policy is that model with the adapter off. Weights are safetensors, never pickle.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from stages.common.adapter import (
    ADAPTER_CONFIG,
    attach,
    load_adapter,
    new_adapter,
    save_adapter_weights,
    save_new_adapter,
)
from stages.common.checked import check_folder, checked, reading
from stages.common.critic import Critic, critic_hash, described, load_critic
from stages.common.device import Runtime
from stages.common.durable import drop_pages
from stages.common.fingerprint import folder_hash
from stages.common.kept.key import identify
from stages.common.memory import collect
from stages.common.model_folder import PolicyError, load_config, load_model, load_tokenizer
from stages.common.paths import KL_REFERENCE, REFERENCE
from stages.common.reward_model import load_reward_folder

__all__ = [
    "Models",
    "PolicyError",
    "is_adapter",
    "load_config",
    "load_model",
    "load_tokenizer",
    "new_adapter",
    "save_adapter_weights",
    "save_new_adapter",
    "save_policy",
    "trainable",
]


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
        self._kl_reference: tuple[str, Any] | None = None

    def base(self) -> Any:
        """The model in `data/reference`."""
        found = check_folder(REFERENCE)
        if self._base is None or self._base[0] != found:
            if self._config is not None:  # the policy is an adapter inside the base that goes
                self._policy = self._config = None
            self._base = (found, load_model(REFERENCE, self.runtime))
        return self._base[1]

    def policy(self, folder: Path) -> Any:
        """The policy in a folder, its trainable parameters requiring gradients."""
        if is_adapter(folder):
            return self._adapted(folder)
        found = check_folder(folder)
        if self._policy is None or self._policy[0] != found:
            self._drop()  # free the old weights before the new ones are read
            self._policy = (found, load_model(folder, self.runtime).requires_grad_(True))
        identify(self._policy[1], found)
        return self._policy[1]

    def _adapted(self, folder: Path) -> Any:
        """The base with the folder's adapter; a held one of the same config only gets the folder's weights."""
        found, config = check_folder(folder), (folder / ADAPTER_CONFIG).read_bytes()
        if self._config != config:
            self._drop()
        base = self.base()
        if self._policy is None:
            with reading(folder):
                self._policy = (found, attach(base, folder))
            self._config = config
        elif self._policy[0] != found:
            self.dirty()
            with reading(folder):
                load_adapter(self._policy[1], folder)
            self._policy = (found, self._policy[1])
        identify(self._policy[1], self._adapted_hash())
        return self._policy[1]

    def _adapted_hash(self) -> str | None:
        """Of the held adapter and the base below it; None while an update is changing the adapter."""
        assert self._policy is not None
        assert self._base is not None
        return f"{self._base[0]} {self._policy[0]}" if self._policy[0] else None

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
            identify(self._policy[1], None)
            self._policy = ("", self._policy[1])

    def keep_policy_alone(self) -> None:
        """Free all other models before a policy is trained with all its weights, whose gradients and moments take up to
        three times their memory. The next stage that asks for one reads it again. What an adapter is built into stays.
        """
        if self._config is None:
            self._base = self._kl_reference = self._critic = None
            self._rewards.clear()
            collect()  # what it had serves the gradients

    def reward_model(self, folder: Path) -> tuple[Any, Any]:
        """The reward model in a folder, and its tokenizer."""
        found = check_folder(folder)
        if folder not in self._rewards or self._rewards[folder][0] != found:
            self._rewards.pop(folder, None)
            self._rewards[folder] = (found, load_reward_folder(folder, self.runtime))
            identify(self._rewards[folder][1][0], found)
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
        identify(self._critic[1].model, found)
        return self._critic[1]

    def critic_changed(self, folder: Path | None) -> None:
        """The held critic is being trained (None), or is now what lies in `folder`."""
        assert self._critic is not None
        identify(self._critic[1].model, None)
        self._critic = ("" if folder is None else critic_hash(folder), self._critic[1])

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The reference policy: the base, with any adapter off."""
        model = self.base()
        assert self._base is not None
        if self._policy is not None and self._config is not None:
            policy = self._policy[1]
            with policy.disable_adapter():
                identify(policy, self._base[0])
                try:
                    yield policy
                finally:
                    identify(policy, self._adapted_hash())
        else:
            identify(model, self._base[0])
            yield model

    @contextmanager
    def kl_reference(self) -> Iterator[Any]:
        """What the KL is measured to: the model of `prepare.reference`, else the reference policy."""
        if kl_reference_folder() == REFERENCE:
            self._kl_reference = None
            with self.reference() as model:
                yield model
            return
        found = check_folder(KL_REFERENCE)
        if self._kl_reference is None or self._kl_reference[0] != found:
            self._kl_reference = None  # free the old weights before the new ones are read
            self._kl_reference = (found, load_model(KL_REFERENCE, self.runtime))
            identify(self._kl_reference[1], found)
        yield self._kl_reference[1]


def kl_reference_folder() -> Path:
    """Where the reference of the KL lies, as `prepare reference` has written down."""
    path = KL_REFERENCE / "reference.json"
    if not path.exists():
        raise PolicyError(f"{path} does not exist; run the stage that makes it (`dvc repro` or `rloo train`)")
    return Path(json.loads(checked(path).read_text(encoding="utf-8"))["reference"])


def save_policy(model: Any, source: Path, target: Path) -> None:
    """Write the policy to the folder `target`, its other files (config, tokenizer) taken from the folder `source`."""
    target.mkdir(parents=True, exist_ok=True)
    if isinstance(model, PeftModel):
        shutil.copyfile(source / ADAPTER_CONFIG, target / ADAPTER_CONFIG)
        save_adapter_weights(model, target)
        return
    for path in source.glob("*.safetensors"):
        with path.open("rb") as file:
            drop_pages(file)
    model.save_pretrained(target)
    for path in source.iterdir():
        written = (target / path.name).exists()  # the config among others, with the precision of these weights
        if written or path.suffix == ".safetensors" or path.name.endswith(".index.json"):
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(path, target / path.name)


def trainable(model: Any) -> dict[str, torch.nn.Parameter]:
    """Parameters that an update changes, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
