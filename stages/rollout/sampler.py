"""The sampler: one prefill per prompt, K continuations from the shared cache, finished rows leave the batch and waiting
prompts take their places.

The checkpoint's own generation_config is never read.

    chunks.py     which requests are sampled together, and when one may join
    chunk.py      sampling one chunk
    live.py       the batch that is alive, and its forward passes
    cache.py      its keys and values
    choose.py     a token for each row; draw.py: from the cumulative distribution
    processes.py  several chunks side by side
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from stages.common.errors import StageError
from stages.common.kept.keeping import current
from stages.common.kept.parts import Part, Work, in_any_order
from stages.common.params import ParamsError
from stages.rollout.cache import can_join
from stages.rollout.chunk import sample_chunk
from stages.rollout.chunks import SEQUENCES, chunks
from stages.rollout.processes import side_by_side
from stages.rollout.samples import Request, Sample, SamplerSettings, from_part, to_part

__all__ = ["Request", "Sample", "SamplerSettings", "sample"]

WITHOUT_REFILL = "this model's cache cannot be joined with another: batches are sampled one after the other"


def sample(
    model: Any,
    requests: Sequence[Request],
    settings: SamplerSettings,
    progress: Callable[[int], None] = lambda finished: None,
) -> list[list[Sample]]:
    """Samples for each request, in the order of its seeds. `progress` hears how many sequences have finished.

    Chunks that a killed run of the stage had finished are not sampled again.
    """
    check_lengths(model, requests, settings)
    on_cpu = next(model.parameters()).device.type == "cpu"
    check_processes(settings, on_cpu=on_cpu)
    planned = chunks(requests, settings, spread=on_cpu)
    say_how(model, len(planned), settings.processes)
    computed: set[int] = set()

    def compute(missing: Sequence[int]) -> Iterator[tuple[int, Part]]:
        wanted = {number: [requests[i] for i in planned[number]] for number in missing}
        found = side_by_side if settings.processes > 1 else one_by_one
        for number, groups in found(model, wanted, settings, progress):
            computed.add(number)
            yield number, to_part([one for group in groups for one in group])

    found: dict[int, list[Sample]] = {}
    for number, part in in_any_order(_work(model, requests, settings), len(planned), compute):
        samples = iter(from_part(part))
        found |= {i: [next(samples) for _ in requests[i].seeds] for i in planned[number]}
        if number not in computed:
            progress(len(part["length"]))
    return [found[i] for i in range(len(requests))]


def one_by_one(
    model: Any, wanted: dict[int, list[Request]], settings: SamplerSettings, progress: Callable[[int], None]
) -> Iterator[tuple[int, list[list[Sample]]]]:
    """The samples of each chunk, in this process."""
    for number, requests in wanted.items():
        yield number, sample_chunk(model, requests, settings, progress)


def _work(model: Any, requests: Sequence[Request], settings: SamplerSettings) -> Work:
    wanted = [[list(request.prompt_ids), list(request.seeds)] for request in requests]
    threads = 1 if settings.processes > 1 else torch.get_num_threads()
    how = vars(settings) | {"stop_ids": sorted(settings.stop_ids), "processes": None, "threads": threads}
    return Work("samples", "chunks", ("rollout",), model, {"requests": wanted, "settings": how})


def say_how(model: Any, pieces: int, processes: int) -> None:
    """Tell the journal of the stage that runs, once, what this model or this little work cannot have."""
    keeping = current()
    if keeping is not None and not can_join(model):
        keeping.tell(WITHOUT_REFILL)
    if keeping is not None and pieces < processes:
        text = f"rollout.processes: {pieces} of {processes} have work, as each is to have {SEQUENCES} sequences"
        keeping.tell(text, once="rollout.processes")


def check_lengths(model: Any, requests: Sequence[Request], settings: SamplerSettings) -> None:
    """Refuse prompts that leave no room for `max_new_tokens` within the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(len(request.prompt_ids) for request in requests)
    if limit is not None and longest + settings.max_new_tokens > limit:
        raise StageError(
            f"the longest prompt has {longest} tokens and rollout.max_new_tokens is {settings.max_new_tokens}, "
            f"but the model has {limit} positions"
        )


def check_processes(settings: SamplerSettings, *, on_cpu: bool) -> None:
    if settings.processes > 1 and not on_cpu:
        raise ParamsError(
            f"params.yaml: rollout.processes is {settings.processes}, but the model is on a GPU, which one process "
            "keeps busy; set it to 1 or auto, or compute.device to cpu"
        )
