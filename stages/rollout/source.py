"""Where the rows of an iteration come from: the policy, its prompts and tokenizer, and the sampler between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.tables import ROLLOUTS
from stages.rollout.completions import completion_columns, settings_of
from stages.rollout.sampler import Request, sample
from stages.rollout.slots import slots_of


@dataclass(frozen=True)
class Source:
    """Samples rows of the rollouts table for prompts of one iteration."""

    models: Models
    policy: Any
    tokenizer: Any
    prompts: pl.DataFrame  # the training prompts
    params: Params
    iteration: int
    journal: Journal

    def samples(self, chosen: Sequence[tuple[int, str]]) -> pl.DataFrame:
        """K samples for each (position, prompt id)."""
        rollout = self.params.rollout
        slots = slots_of(chosen, rollout.samples_per_prompt, self.params.seed, self.iteration)
        keys = [vars(slot) for group in slots.values() for slot in group]
        return self._rows({p: [s.seed for s in group] for p, group in slots.items()}, keys, "sample")

    def greedy(self, samples: pl.DataFrame) -> pl.DataFrame:
        """The greedy completion of each accepted prompt; sampled apart, so that it changes no sample."""
        first = (
            samples.filter("accepted")
            .group_by("prompt_id", maintain_order=True)
            .agg(pl.col("position", "accepted").first())
        )
        keys = [{"sample": 0, "seed": None, **row} for row in first.to_dicts()]
        return self._rows({row["prompt_id"]: [0] for row in keys}, keys, "greedy")

    def _rows(self, seeds: dict[str, list[int]], keys: list[dict[str, Any]], kind: str) -> pl.DataFrame:
        """Sample, and put a row's key and what it says together."""
        settings = settings_of(self.params, self.tokenizer, self.params.rollout.temperature)
        ids = dict(self.prompts.select("prompt_id", "prompt_ids").iter_rows())
        requests = [Request(ids[prompt_id], group) for prompt_id, group in seeds.items()]
        finished = 0

        def progress(more: int) -> None:
            nonlocal finished
            finished += more
            self.journal.progress(finished, len(keys), "completions ended" if kind == "sample" else "greedy ones ended")

        groups = sample(self.policy, requests, replace(settings, greedy=kind == "greedy"), progress)
        rows = [
            {"iteration": self.iteration, "kind": kind, "accepted": True, **key}
            | completion_columns(self.tokenizer, one)
            for key, one in zip(keys, [one for group in groups for one in group], strict=True)
        ]
        return pl.DataFrame(rows, schema=ROLLOUTS)
