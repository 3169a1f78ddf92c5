"""The completions that an iteration wants: the key, the place in the epochs and the seed of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from stages.common.seeds import seed_of


@dataclass(frozen=True)
class Slot:
    """One completion to sample."""

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
