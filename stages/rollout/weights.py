"""The weights that sample: the policy's own, or a copy of them in `rollout.dtype`.

A copy is made when sampling begins and is gone when it ends, before an update: it can neither be behind the policy nor
take up room beside the optimizer, and the policy itself is never rounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from stages.common.journal import Journal
from stages.common.kept.key import identify, identity_of
from stages.common.memory import release
from stages.common.params import Rollout
from stages.rollout.processes import forget_model
from stages.rollout.skeleton import copied

SLOW = (
    "this processor has no instructions for bfloat16 (avx512_bf16): rollout.dtype bfloat16 is slower than float32 on it"
)


@contextmanager
def sampling_weights(policy: Any, rollout: Rollout, journal: Journal) -> Iterator[Any]:
    """The model to sample from, for the duration of the block."""
    if rollout.dtype is None:
        yield policy
        return
    dtype = getattr(torch, rollout.dtype)
    if all(parameter.dtype == dtype for parameter in policy.parameters()):
        journal.say(f"the policy is in {rollout.dtype} already: rollout.dtype has no effect")
        yield policy
        return
    if next(policy.parameters()).device.type == "cpu" and not is_fast(dtype):
        journal.say(SLOW)
    try:
        yield _copy(policy, dtype)
    finally:
        forget_model()
        release()


def _copy(policy: Any, dtype: torch.dtype) -> Any:
    """It is known by the policy's content hash: whatever is kept of it is found under that, and its precision."""
    model = copied(policy, dtype)
    identify(model, identity_of(policy))
    return model


def is_fast(dtype: torch.dtype) -> bool:
    """Whether the processor computes with numbers of this type, or has to convert them first."""
    return dtype == torch.float32 or bool(torch.cpu.get_capabilities().get("avx512_bf16", False))
