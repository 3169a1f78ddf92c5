"""What the run needs of the machine, and what the machine has: memory, disk, and who else computes here."""

import os
from pathlib import Path

import psutil
import torch

from pipeline.check.dry_run import FIRST, DryRun
from pipeline.check.findings import Finding
from stages.common import paths
from stages.common.cores import available_cores

GB = 1e9
BUSY = 0.5  # load of others, by core


def free_memory(device: str) -> int:
    """Bytes that are free for a model: of the GPU where there is one to be used."""
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def needed_memory(work: DryRun) -> dict[str, float]:
    """Bytes by purpose, by count: what an iteration holds at once."""
    size = torch.empty((), dtype=work.facts["runtime"].dtype).element_size()
    weights, trainable = work.facts["parameters"], work.facts["trainable"]
    master = 4 if size < 4 else 0
    config, options = work.facts["config"], work.params.rollout
    lora = work.params.policy.method == "lora"
    own = weights - trainable if lora else weights  # of the base alone
    beta = work.params.score.kl.beta
    wants = beta > 0 or work.params.evaluate.measures_kl(beta)
    apart = wants and not (lora and work.params.prepare.reference is None)
    vocabulary = int(config.vocab_size)
    return {
        "weights": weights * size,
        "reference": own * size if apart else 0,
        "gradients": trainable * (4 if master else size),
        "moments": trainable * (8 + master),
        "logits of a pass": 4.0 * vocabulary * work.params.update.pack_tokens * 3,  # logits, log-softmax, gradient
        "cache of a batch": _cache(config, size)
        * max(options.batch_tokens, options.samples_per_prompt * (work.facts["longest"] + options.max_new_tokens)),
        "critic": own * size if work.params.critic is not None else 0,
        "reward models": own * size * len({r.model for r in work.params.score.rewards.values() if r.model}),
    }


def _cache(config: object, size: int) -> float:
    """Bytes of the keys and values of one token."""
    heads = getattr(config, "num_attention_heads", 1)
    of_keys = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // heads
    return 2.0 * getattr(config, "num_hidden_layers", 1) * of_keys * width * size


def memory(work: DryRun, free: int) -> Finding:
    """Whether it fits, on paper."""
    needed = {what: count for what, count in needed_memory(work).items() if count}
    total = sum(needed.values())
    parts = ", ".join(f"{what} {count / GB:.2f}" for what, count in needed.items())
    text = f"about {total / GB:.2f} GB wanted ({parts}), {free / GB:.1f} GB free when the check began"
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
