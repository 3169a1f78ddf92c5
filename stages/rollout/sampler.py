"""The sampler: one prefill per prompt, K continuations from the shared cache, finished rows leave the batch.

Each sample draws from its own seed by inverting the cumulative distribution, so what a sample says does not depend on
its batch mates (beyond floating-point rounding of the forward pass). The checkpoint's own generation_config is
never read.

Dimension suffixes: P prompts, B live sequences of the batch, L prompt length, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from stages.common.errors import StageError
from stages.common.kept.parts import Part, Work, in_parts
from stages.common.logprobs import entropy_of_logprobs
from stages.common.seeds import uniforms
from stages.rollout.draw import invert_cumulative


@dataclass(frozen=True)
class Request:
    """A prompt and the seeds of the samples wanted for it."""

    prompt_ids: Sequence[int]
    seeds: Sequence[int]


@dataclass(frozen=True)
class SamplerSettings:
    """`greedy` takes the most likely token; its log-probs are at the temperature all the same. `batch_sequences` bounds
    how many sequences are alive at once.
    """

    max_new_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    batch_sequences: int
    greedy: bool = False


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


@torch.no_grad()
def sample(
    model: Any,
    requests: Sequence[Request],
    settings: SamplerSettings,
    progress: Callable[[int], None] = lambda finished: None,
) -> list[list[Sample]]:
    """Samples for each request, in the order of its seeds. `progress` hears how many sequences have finished.

    Batches that a killed run of the stage had finished are not sampled again.
    """
    check_lengths(model, requests, settings)
    planned = list(batches(requests, settings.batch_sequences))
    computed: set[int] = set()

    def one_batch(number: int) -> Part:
        computed.add(number)
        mine = [requests[i] for i in planned[number]]
        samples = [[Sample() for _ in request.seeds] for request in mine]
        _sample_batch(model, mine, samples, settings, progress)
        return to_part([one for group in samples for one in group])

    found: dict[int, list[Sample]] = {}
    for number, part in enumerate(in_parts(_work(model, requests, settings), len(planned), one_batch)):
        samples = iter(from_part(part))
        found |= {i: [next(samples) for _ in requests[i].seeds] for i in planned[number]}
        if number not in computed:
            progress(len(part["length"]))
    return [found[i] for i in range(len(requests))]


def _work(model: Any, requests: Sequence[Request], settings: SamplerSettings) -> Work:
    wanted = [[list(request.prompt_ids), list(request.seeds)] for request in requests]
    how = vars(settings) | {"stop_ids": sorted(settings.stop_ids)}
    return Work("samples", "batches", ("rollout",), model, {"requests": wanted, "settings": how})


def to_part(samples: Sequence[Sample]) -> Part:
    """The samples of a batch as tensors, token after token; a Python float is a float64."""
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


def check_lengths(model: Any, requests: Sequence[Request], settings: SamplerSettings) -> None:
    """Refuse prompts that leave no room for `max_new_tokens` within the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(len(request.prompt_ids) for request in requests)
    if limit is not None and longest + settings.max_new_tokens > limit:
        raise StageError(
            f"the longest prompt has {longest} tokens and rollout.max_new_tokens is {settings.max_new_tokens}, "
            f"but the model has {limit} positions"
        )


def batches(requests: Sequence[Request], sequences: int) -> Iterator[list[int]]:
    """Indices of requests, shortest prompts first, so that a batch pads little; at least one request a batch."""
    batch: list[int] = []
    size = 0
    for index in sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt_ids), i)):
        if batch and size + len(requests[index].seeds) > sequences:
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += len(requests[index].seeds)
    if batch:
        yield batch


def _sample_batch(
    model: Any,
    requests: list[Request],
    samples: list[list[Sample]],
    settings: SamplerSettings,
    progress: Callable[[int], None],
) -> None:
    live = [one for group in samples for one in group]
    uniform_BT = np.stack([uniforms(s, settings.max_new_tokens) for request in requests for s in request.seeds])
    logits_BV, cache, mask_BL, position_B = _prefill(model, requests)
    for step in range(settings.max_new_tokens):
        token_B = _choose(logits_BV, uniform_BT[:, step], settings, live)
        keep = [i for i, token in enumerate(token_B.tolist()) if not _finish(live[i], token, settings.stop_ids)]
        progress(len(live) - len(keep))
        if not keep or step + 1 == settings.max_new_tokens:
            break
        if len(keep) < len(live):
            live = [live[i] for i in keep]
            uniform_BT = uniform_BT[keep]
            index_B = torch.tensor(keep, device=mask_BL.device)
            cache.batch_select_indices(index_B)
            mask_BL, position_B, token_B = mask_BL[index_B], position_B[index_B], token_B[index_B]
        mask_BL = torch.cat([mask_BL, mask_BL.new_ones(len(live), 1)], dim=1)
        logits_BV = _forward(model, token_B[:, None], mask_BL, position_B[:, None], cache)
        position_B = position_B + 1


def _prefill(model: Any, requests: list[Request]) -> tuple[Tensor, DynamicCache, Tensor, Tensor]:
    """Read each prompt once (left-padded), then repeat its last logits and its cache for every sample."""
    device = next(model.parameters()).device
    longest = max(len(request.prompt_ids) for request in requests)
    ids_PL = torch.zeros(len(requests), longest, dtype=torch.long)
    mask_PL = torch.zeros(len(requests), longest, dtype=torch.long)
    for p, request in enumerate(requests):
        ids_PL[p, longest - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
        mask_PL[p, longest - len(request.prompt_ids) :] = 1
    position_PL = (mask_PL.cumsum(dim=1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    logits_PV = _forward(model, ids_PL.to(device), mask_PL.to(device), position_PL.to(device), cache)
    if cache.get_seq_length() != longest:
        raise StageError(
            "this model does not fill the key-value cache that it is given; it cannot be sampled from here"
        )
    owner_B = torch.tensor([p for p, request in enumerate(requests) for _ in request.seeds], device=device)
    cache.batch_select_indices(owner_B)
    return logits_PV[owner_B], cache, mask_PL.to(device)[owner_B], position_PL.to(device)[owner_B, -1] + 1


def _forward(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache) -> Tensor:
    """Logits [B, V] in float32 of the last position."""
    output = model(
        input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
    )
    logits_BV: Tensor = output.logits[:, -1].float()
    return logits_BV


def _choose(logits_BV: Tensor, uniform_B: np.ndarray, settings: SamplerSettings, live: list[Sample]) -> Tensor:
    """Draw one token per sequence and note its log-prob and the distribution's entropy."""
    logp_BV = (logits_BV / settings.temperature).log_softmax(dim=-1)
    if settings.greedy:
        token_B = logits_BV.argmax(dim=-1)
    else:
        token_B = invert_cumulative(logp_BV.exp(), torch.from_numpy(uniform_B))
    logp_B = logp_BV.gather(-1, token_B[:, None])[:, 0]
    if not logp_B.isfinite().all():
        raise StageError("the policy's log-probs are not finite: its weights are broken, or the precision too low")
    entropy_B = entropy_of_logprobs(logp_BV)
    for one, token, logp, nats in zip(live, token_B.tolist(), logp_B.tolist(), entropy_B.tolist(), strict=True):
        one.completion_ids.append(token)
        one.logprobs.append(logp)
        one.entropies.append(nats)
    return token_B


def _finish(one: Sample, token: int, stop_ids: frozenset[int]) -> bool:
    one.stopped = token in stop_ids
    return one.stopped
