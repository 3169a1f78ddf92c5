"""Stage `rollout`: policy of the previous iteration -> rollouts.parquet, K samples for each prompt of the iteration."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.gate import check_rollouts
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError
from stages.common.policy import Models, load_tokenizer
from stages.common.seeds import seed_of
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, read_table, write_table
from stages.rollout.order import prompts_of
from stages.rollout.sampler import Request, Sample, SamplerSettings, sample
from stages.rollout.stopping import stop_ids


@dataclass(frozen=True)
class Slot:
    """One completion to sample: its key, its place in the epochs, its seed."""

    prompt_id: str
    sample: int
    position: int
    seed: int


def slots_of(chosen: Iterable[tuple[int, str]], samples: int, run_seed: int, iteration: int) -> dict[str, list[Slot]]:
    """The completions wanted, by prompt. A prompt that occurs twice goes on numbering its samples."""
    slots: dict[str, list[Slot]] = {}
    for position, prompt_id in chosen:
        group = slots.setdefault(prompt_id, [])
        for number in range(len(group), len(group) + samples):
            group.append(Slot(prompt_id, number, position, seed_of(run_seed, iteration, prompt_id, number)))
    return slots


def settings_of(params: Params, tokenizer: Any, temperature: float) -> SamplerSettings:
    return SamplerSettings(
        max_new_tokens=params.rollout.max_new_tokens,
        temperature=temperature,
        stop_ids=stop_ids(tokenizer, params.rollout),
        batch_sequences=params.rollout.batch_sequences,
    )


def text_of(tokenizer: Any, one: Sample) -> str:
    """The completion without its end-of-sequence token; other special tokens stay, as they are part of the answer."""
    ids = one.completion_ids[:-1] if one.stopped else one.completion_ids
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def completion_columns(tokenizer: Any, one: Sample) -> dict[str, Any]:
    return {
        "completion": text_of(tokenizer, one),
        "completion_ids": one.completion_ids,
        "sampler_logprobs": one.logprobs,
        "entropy": sum(one.entropies) / len(one.entropies),
        "finish_reason": one.finish_reason,
        "length": len(one.completion_ids),
    }


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    iteration = paths.iteration_number(name)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(pl.col("split") == "train")
    if prompts.is_empty():
        raise ParamsError(f"{paths.PROMPTS} has no training prompts; see prepare.prompts.train in params.yaml")
    chosen = prompts_of(prompts["prompt_id"].to_list(), params.seed, iteration, params.rollout.prompts_per_iteration)
    slots = slots_of(chosen, params.rollout.samples_per_prompt, params.seed, iteration)
    ids = dict(prompts.select("prompt_id", "prompt_ids").iter_rows())
    requests = [Request(ids[prompt_id], [slot.seed for slot in group]) for prompt_id, group in slots.items()]
    tokenizer = load_tokenizer()
    total = sum(len(group) for group in slots.values())
    finished = 0

    def progress(more: int) -> None:
        nonlocal finished
        finished += more
        journal.progress(finished, total, "completions ended")

    policy = models.policy(paths.policy(paths.previous(name)))
    samples = sample(policy, requests, settings_of(params, tokenizer, params.rollout.temperature), progress)
    rows = [
        {"iteration": iteration, "kind": "sample", **vars(slot), **completion_columns(tokenizer, one)}
        for group, ones in zip(slots.values(), samples, strict=True)
        for slot, one in zip(group, ones, strict=True)
    ]
    table = pl.DataFrame(rows, schema=ROLLOUTS)
    check_rollouts(table, params.rollout.samples_per_prompt)
    write_table(table, ROLLOUTS, KEY, paths.rollouts(name))
    tokens = int(table["length"].sum())
    journal.say(f"{total} completions, {tokens} tokens, {tokens / journal.seconds:.0f} tokens/s")
