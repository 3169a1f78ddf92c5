"""Measurements on the initial policy that no stage makes: a batch of the run's true size for a few tokens, and the
trainer's log-probs of what was sampled.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.device import Runtime
from stages.common.logprobs import completion_logprobs, takes_block_mask
from stages.common.packing import groups_of, pack
from stages.common.params import Params
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, read_table
from stages.rollout.chunks import admitted
from stages.rollout.order import prompts_of
from stages.rollout.sampler import Request, SamplerSettings, sample

STEPS = 4
WITHOUT_BLOCK_MASK = "one completion per forward pass, as this model takes no block mask"


@dataclass(frozen=True)
class Rollout:
    """One batch: its seconds of prefill, of one further token for all of its sequences; how many batches there are."""

    prompts: int
    sequences: int
    batches: int
    prefill: float
    step: float


@dataclass(frozen=True)
class Passes:
    """Forward passes of the trainer over the dry run's completions."""

    tokens: int  # with prompts, as they are packed
    seconds: float
    difference: float  # largest, between its log-probs and the sampler's, nats
    packed: bool


def read_prompts(split: str) -> pl.DataFrame:
    return read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(split=split)


def rollout(policy: Any, params: Params) -> Rollout:
    """Time one batch of the first iteration. Nothing stops early, and no completion is kept."""
    options, prompts = params.rollout, read_prompts("train")
    ids = dict(prompts.select("prompt_id", "prompt_ids").iter_rows())
    chosen = prompts_of(list(ids), params.seed, 1, options.prompts_per_iteration)
    requests = [Request(ids[prompt_id], range(options.samples_per_prompt)) for _, prompt_id in chosen]
    whole = SamplerSettings(options.max_new_tokens, options.temperature, frozenset(), options.batch_tokens)
    planned = batches(requests, whole)
    batch = planned[len(planned) // 2]
    steps = min(STEPS, options.max_new_tokens - 1)
    prefill = seconds_of(policy, batch, replace(whole, max_new_tokens=1))
    further = seconds_of(policy, batch, replace(whole, max_new_tokens=steps + 1)) - prefill
    sequences = sum(len(request.seeds) for request in batch)
    return Rollout(len(batch), sequences, len(planned), prefill, max(0.0, further) / max(1, steps))


def seconds_of(policy: Any, batch: list[Request], settings: SamplerSettings) -> float:
    """That sampling the batch takes."""
    started = time.monotonic()
    sample(policy, batch, settings)
    return time.monotonic() - started


def batches(requests: list[Request], settings: SamplerSettings) -> list[list[Request]]:
    """What is alive together if no answer stops early, shortest prompts first."""
    waiting, found = sorted(requests, key=lambda request: len(request.prompt_ids)), list[list[Request]]()
    while waiting:
        count = admitted(waiting, 0, 0, settings, refill=False)
        found.append(waiting[:count])
        waiting = waiting[count:]
    return found


def passes(policy: Any, params: Params) -> Passes:
    """The trainer's log-probs of the dry run's completions, timed, against the sampler's."""
    rows = read_table(paths.rollouts("i0001"), ROLLOUTS, KEY)
    rows = rows.join(read_prompts("train"), on="prompt_id", maintain_order="left").with_row_index("index")
    groups, packed = groups_of(rows), takes_block_mask(policy)
    started = time.monotonic()
    options = params.rollout.temperature, params.score.pack_tokens
    found = completion_logprobs(policy, groups, *options, one_by_one=not packed)
    seconds = time.monotonic() - started
    differences = [
        abs(ours - theirs)
        for index, logprobs in rows.select("index", "sampler_logprobs").iter_rows()
        for ours, theirs in zip(found[index], logprobs, strict=True)
    ]
    tokens = sum(len(row.ids_L) for row in pack(groups, params.score.pack_tokens, one_by_one=not packed))
    return Passes(tokens, seconds, max(differences), packed)


def tolerance(runtime: Runtime) -> float:
    """Of the difference between sampler and trainer, nats: rounding, and nothing more."""
    return 1e-3 if str(runtime.dtype) == "torch.float32" else 0.2
