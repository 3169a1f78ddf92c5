"""Which prompts an iteration takes: an endless sequence of epochs, each a seeded shuffle of all training prompts.

Iteration i owns positions (i-1) * n to i * n - 1: its prompts, or, with dynamic sampling, those that it may take. So
every prompt occurs exactly once per epoch, whatever n is; with dynamic sampling, at most once. Where an iteration spans
two epochs a prompt may occur twice in it: it is then one group with twice the samples.
"""

from collections.abc import Sequence
from functools import lru_cache

from stages.common.seeds import seed_of


def epoch_order(prompt_ids: Sequence[str], run_seed: int, epoch: int) -> list[str]:
    """The prompts in the order of a hash of (run seed, epoch, prompt id): independent of the order given."""
    return sorted(prompt_ids, key=lambda prompt_id: (seed_of(run_seed, "epoch", epoch, prompt_id), prompt_id))


@lru_cache(maxsize=2)  # an iteration spans two epochs at most; a warm process asks for the same ones again and again
def _held(prompt_ids: tuple[str, ...], run_seed: int, epoch: int) -> list[str]:
    return epoch_order(prompt_ids, run_seed, epoch)


def prompts_of(prompt_ids: Sequence[str], run_seed: int, iteration: int, count: int) -> list[tuple[int, str]]:
    """(position, prompt id) of the prompts of one iteration; iterations count from 1."""
    first = (iteration - 1) * count
    positions = range(first, first + count)
    epochs = {position // len(prompt_ids) for position in positions}
    orders = {epoch: _held(tuple(prompt_ids), run_seed, epoch) for epoch in sorted(epochs)}
    return [(p, orders[p // len(prompt_ids)][p % len(prompt_ids)]) for p in positions]
