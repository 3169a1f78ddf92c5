"""What the run needs of the machine, and what the machine has: memory, disk, and who else computes here."""

import os
from pathlib import Path

import psutil
import torch

from pipeline.check.dry_run import FIRST, DryRun
from pipeline.check.findings import Finding
from stages.common import paths
from stages.common.cores import available_cores
from stages.common.head import LOGITS_MB
from stages.update.recipe import recipe_of

GB = 1e9
BUSY = 0.5  # load of others, by core


def free_memory(device: str) -> int:
    """Bytes that are free for a model: of the GPU where there is one to be used."""
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def needed_memory(work: DryRun) -> dict[str, dict[str, float]]:
    """Bytes by purpose, by count, of what each part of an iteration holds at once."""
    size = torch.empty((), dtype=work.facts["runtime"].dtype).element_size()
    master = 4 if size < 4 else 0
    trainable, pack = work.facts["trainable"], work.params.update.pack_tokens
    weights = {"weights": float(work.facts["parameters"] * size)}
    logits = min(4.0 * int(work.facts["config"].vocab_size) * pack, LOGITS_MB * 2.0**20)
    beside = _other_models(work, size)
    stays = beside if work.params.policy.method == "lora" else {}  # an update of all weights frees them first
    kept = recipe_of(work.params).steps > 1  # else moments pass from file to file, a parameter's at a time
    states = {
        "gradients": trainable * (4.0 if master else size),
        "masters": trainable * float(master),
        "moments": 8.0 * (trainable if kept else min(trainable, 2.0 * work.facts["largest"])),
    }
    return {
        "rollout": {**weights, **beside, "cache of a batch": _batch(work, size)},
        "score": {**weights, **beside, "logits of a pass": logits},
        "diagnose": {**weights, **beside, "gradients": 3 * 4.0 * trainable, "logits of a pass": 2 * logits},
        "update": {**weights, **stays, **states, "logits of a pass": 2 * logits},
    }


def _other_models(work: DryRun, size: int) -> dict[str, float]:
    """The reference, the critic and reward models."""
    trainable = work.facts["trainable"] if work.params.policy.method == "lora" else 0
    own = float((work.facts["parameters"] - trainable) * size)  # of the base alone
    beta = work.params.score.kl.beta
    wants = beta > 0 or work.params.evaluate.measures_kl(beta)
    apart = wants and not (work.params.policy.method == "lora" and work.params.prepare.reference is None)
    rewards = {reward.model for reward in work.params.score.rewards.values() if reward.model}
    return {
        "reference": own if apart else 0.0,
        "critic": own if work.params.critic is not None else 0.0,
        "reward models": own * len(rewards),
    }


def _batch(work: DryRun, size: int) -> float:
    """Bytes of the sampler's cache."""
    options = work.params.rollout
    one_prompt = options.samples_per_prompt * (work.facts["longest"] + options.max_new_tokens)
    return _cache(work.facts["config"], size) * float(max(options.batch_tokens, one_prompt))


def _cache(config: object, size: int) -> float:
    """Bytes of the keys and values of one token."""
    heads = getattr(config, "num_attention_heads", 1)
    of_keys = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // heads
    return 2.0 * getattr(config, "num_hidden_layers", 1) * of_keys * width * size


def memory(work: DryRun, free: int) -> Finding:
    """Whether it fits, on paper."""
    parts = needed_memory(work)
    part = max(parts, key=lambda one: sum(parts[one].values()))
    needed = {what: count for what, count in parts[part].items() if count}
    total = sum(needed.values())
    told = ", ".join(f"{what} {count / GB:.2f}" for what, count in needed.items())
    text = f"about {total / GB:.2f} GB wanted, by {part} ({told}), {free / GB:.1f} GB free when the check began"
    if total <= free:
        return Finding("ok", "memory", text)
    remedy = "; lower update.pack_tokens and rollout.batch_tokens, or take policy.method lora or dtype bfloat16"
    return Finding("warning", "memory", text + remedy)


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files)


def disk(work: DryRun, iterations: int, free: int) -> Finding:
    """What an iteration leaves, and the whole run."""
    share = work.params.rollout.prompts_per_iteration / work.used.rollout.prompts_per_iteration
    state = sum(map(size_of, (paths.policy(FIRST), paths.optimizer(FIRST), paths.critic(FIRST))))
    tables = size_of(paths.iteration(FIRST)) * share
    total = (state + tables) * iterations
    text = (
        f"{(state + tables) / 1e6:.1f} MB an iteration (policy, optimizer{' and critic' if work.params.critic else ''} "
        f"{state / 1e6:.1f}, tables {tables / 1e6:.2f}), {total / GB:.2f} GB in {iterations} iterations, "
        f"{free / GB:.1f} GB free"
    )
    if total <= free:
        return Finding("ok", "disk", text)
    return Finding("warning", "disk", f"{text}; make room, plan fewer iterations, or take policy.method lora")


def load(threads: int) -> Finding:
    """Whether others compute here: what was measured is then no measure of the run."""
    cores, busy = available_cores(), os.getloadavg()[0]
    text = f"{cores} cores, load {busy:.1f} in the minute before the check, torch uses {threads} threads"
    if busy > BUSY * cores:
        return Finding("warning", "load", f"{text}: other work slows this down, and the estimate is too high")
    return Finding("ok", "load", text)
