"""Sampling one chunk of requests: rows that have ended leave the batch, waiting prompts take their places.

Each sample draws from its own seed, so what it says does not depend on its batch mates, beyond floating-point rounding
of the forward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stages.rollout.cache import can_join
from stages.rollout.choose import choose
from stages.rollout.chunks import admitted
from stages.rollout.live import Live, Row, go_on, keep_rows, merge, read_prompts
from stages.rollout.samples import Request, Sample, SamplerSettings


@torch.no_grad()
def sample_chunk(
    model: Any, requests: Sequence[Request], settings: SamplerSettings, progress: Callable[[int], None]
) -> list[list[Sample]]:
    """Samples for each request, in the order of its seeds. `progress` hears how many sequences have ended."""
    samples = [[Sample() for _ in request.seeds] for request in requests]
    refill, waiting = can_join(model), 0  # the first request that waits
    live: Live | None = None
    logits_BV = torch.empty(0)
    while live is not None or waiting < len(requests):
        alive, longest = (len(live.rows), live.longest) if live is not None else (0, 0)
        count = admitted(requests[waiting:], alive, longest, settings, refill=refill)
        if count:
            chosen = slice(waiting, waiting + count)
            new, new_BV = read_prompts(model, requests[chosen], samples[chosen], settings)
            live, logits_BV = (new, new_BV) if live is None else (merge(live, new), torch.cat([logits_BV, new_BV]))
            waiting += count
        assert live is not None
        token_B = choose(logits_BV, live.rows, settings)
        keep = [i for i, row in enumerate(live.rows) if not _ended(row, settings)]
        if len(keep) < len(live.rows):
            progress(len(live.rows) - len(keep))
        if not keep:
            live = None
            continue
        live = keep_rows(live, keep, trim=refill)
        logits_BV = go_on(model, live, token_B[keep])
    return samples


def _ended(row: Row, settings: SamplerSettings) -> bool:
    """Whether the row's newest token is its last."""
    sample = row.sample
    sample.stopped = sample.completion_ids[-1] in settings.stop_ids
    return sample.stopped or len(sample.completion_ids) == settings.max_new_tokens
