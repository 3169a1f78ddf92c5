"""Which requests are sampled together: a function of the requests and the settings alone, so that the bits are, too.

A chunk is what one process samples from its first prefill to its last token, and what a run that is killed need not
repeat. Inside of it waiting prompts take the places of rows that have ended; at its end the batch runs empty, which
costs the more the shorter chunks are: hence four budgets. Work of fewer chunks is cut further on a CPU, so that several
processes find some to do, as long as each piece keeps 64 sequences: with fewer, a row costs more (SmolLM2-135M, one
thread: 298 tokens/s with 64 rows, 201 with 16).
"""

from collections.abc import Sequence

from stages.rollout.samples import Request, SamplerSettings

BUDGETS = 4
PIECES = 16
SEQUENCES = 64
REFILL = 4  # waiting prompts are read once a quarter of the budget is free


def places(sequences: int, longest: int, settings: SamplerSettings) -> int:
    """Places in the key-value cache of so many sequences, the longest prompt of which has so many tokens."""
    return sequences * (longest + settings.max_new_tokens)


def chunks(requests: Sequence[Request], settings: SamplerSettings, *, spread: bool) -> list[list[int]]:
    """Indices of requests, shortest prompts first, so that a batch pads little. `spread`: cut small work, too."""
    order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt_ids), i))
    wanted = [places(len(requests[i].seeds), len(requests[i].prompt_ids), settings) for i in order]
    pieces = -(-sum(wanted) // (BUDGETS * settings.batch_tokens))
    if spread:
        pieces = max(pieces, min(PIECES, sum(len(request.seeds) for request in requests) // SEQUENCES))
    found: dict[int, list[int]] = {}
    before = 0
    for index, own in zip(order, wanted, strict=True):
        found.setdefault(before * pieces // max(1, sum(wanted)), []).append(index)
        before += own
    return list(found.values())


def admitted(waiting: Sequence[Request], live: int, longest: int, settings: SamplerSettings, *, refill: bool) -> int:
    """How many of the waiting requests join `live` sequences, whose longest prompt has `longest` tokens.

    All that the budget has places for, but at least one where nothing is alive. A prompt is not read for the sake of a
    few places, as each time the caches are joined they are copied.
    """
    if not waiting:
        return 0
    free = settings.batch_tokens - places(live, longest, settings)
    if live and not (refill and REFILL * free >= settings.batch_tokens):
        return 0
    count, sequences = 0, live
    for request in waiting:
        sequences, longest = sequences + len(request.seeds), max(longest, len(request.prompt_ids))
        if places(sequences, longest, settings) > settings.batch_tokens:
            break
        count += 1
    return count if live else max(1, count)
