"""What is asked of the sampler, and what it gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from stages.common.kept.parts import Part


@dataclass(frozen=True)
class Request:
    """A prompt and the seeds of the samples wanted for it."""

    prompt_ids: Sequence[int]
    seeds: Sequence[int]


@dataclass(frozen=True)
class SamplerSettings:
    """`greedy` takes the most likely token; its log-probs are at the temperature all the same. `batch_tokens` bounds
    the places in the key-value cache. `processes` side by side change no result but for one thing: of several, each
    has one thread.
    """

    max_new_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    batch_tokens: int
    greedy: bool = False
    processes: int = 1


@dataclass
class Sample:
    """Sampled ids (with the stop token, if one came), their log-probs and entropies in nats, at the temperature."""

    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stopped: bool = False

    @property
    def finish_reason(self) -> str:
        if not self.stopped:
            return "length"
        return "empty" if len(self.completion_ids) == 1 else "stop"


def to_part(samples: Sequence[Sample]) -> Part:
    """The samples of a chunk as tensors, token after token; a Python float is a float64."""
    return {
        "length": torch.tensor([len(one.completion_ids) for one in samples]),
        "stopped": torch.tensor([one.stopped for one in samples]),
        "ids": torch.tensor([token for one in samples for token in one.completion_ids]),
        "logprobs": torch.tensor([x for one in samples for x in one.logprobs], dtype=torch.float64),
        "entropies": torch.tensor([x for one in samples for x in one.entropies], dtype=torch.float64),
    }


def from_part(part: Part) -> list[Sample]:
    """What `to_part` was given."""
    lengths = part["length"].tolist()
    columns = [[row.tolist() for row in torch.split(part[name], lengths)] for name in ("ids", "logprobs", "entropies")]
    return [Sample(*values) for values in zip(*columns, part["stopped"].tolist(), strict=True)]
