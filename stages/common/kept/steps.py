"""Training that goes on where it was: weights, optimizer state and the table's rows after a step, or inside one.

Only the newest state is kept, as it takes as much room as a checkpoint: the one before goes when it is whole, and so do
those of other keys, which are states of a training that nobody asks for any more. Inside a step it holds the gradients
of the micro-batches so far: with one optimizer step per iteration there is nothing else to go on from.

No random numbers are drawn in a step: orders come from seeds, and models are in evaluation mode, without dropout.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from stages.common.kept.keeping import Keeping, current
from stages.common.kept.parts import Work
from stages.common.kept.shard import SUFFIX, read_shard, write_shard
from stages.common.optimizer import StoredAdamW

OWN = "own/"  # what a step keeps beside the optimizer's tensors


@dataclass
class Inside:
    """How far a step is: micro-batches done, and the step's own numbers and tensors so far."""

    done: int = 0
    numbers: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class KeptSteps:
    """The rows of the steps taken, and how far the next one is."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    inside: Inside = field(default_factory=Inside)
    state: "State | None" = None  # None: nothing is kept

    def due(self) -> bool:
        return self.state is not None and self.state.keeping.due()

    def taken(self, row: dict[str, Any], *, last: bool = False) -> None:
        """Add the row of a step that has been taken, and keep it if that is due. `last`: nothing but publishing
        follows, which is soon done.
        """
        self.rows.append(row)
        self.inside = Inside()
        if self.state is not None and self.due() and not last:
            self.state.keep(self)

    def within(self, done: int, numbers: dict[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Keep a step that has done so many of its micro-batches, and the next of which has not begun."""
        self.inside = Inside(done, numbers, dict(tensors or {}))
        if self.state is not None:
            self.state.keep(self)


@dataclass(frozen=True)
class State:
    """Where a training keeps its newest state."""

    folder: Path
    key: str
    rooms: tuple[str, ...]
    keeping: Keeping
    optimizer: StoredAdamW

    def keep(self, steps: KeptSteps) -> None:
        self.keeping.attempt(self.rooms, lambda: self._write(steps))
        self.keeping.flush()

    def _write(self, steps: KeptSteps) -> None:
        tensors, counts = self.optimizer.snapshot(moved=bool(steps.rows))
        own = {OWN + name: tensor for name, tensor in steps.inside.tensors.items()}
        notes = {"rows": steps.rows, "done": steps.inside.done, "numbers": steps.inside.numbers}
        notes |= {"counts": counts, "step_count": self.optimizer.step_count}
        path = self.folder / f"{len(steps.rows):06d}-{steps.inside.done:06d}{SUFFIX}"
        write_shard(path, self.key, notes, tensors | own)
        self._remove_others(path)

    def _remove_others(self, newest: Path) -> None:
        kind = self.folder.name.partition(".")[0]
        for folder in self.keeping.folder.glob(f"{kind}.*"):
            if folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name < newest.name:
                path.unlink(missing_ok=True)

    def read(self) -> KeptSteps | None:
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True):
            shard = read_shard(path, self.key)
            if shard is None:
                self.keeping.tell(f"{path} was damaged: the steps that it held are taken again")
                continue
            notes, tensors = shard
            self.optimizer.restore(tensors, notes["counts"], notes["step_count"])
            own = {name.removeprefix(OWN): tensor for name, tensor in tensors.items() if name.startswith(OWN)}
            return KeptSteps(notes["rows"], Inside(notes["done"], notes["numbers"], own), self)
        return None


def state_of(work: Work, optimizer: StoredAdamW) -> State | None:
    """Where a training keeps its state; None where no stage runs. To be asked before any weight has changed."""
    keeping = current()
    if keeping is None:
        return None
    key = work.key(keeping)
    return State(work.folder(keeping, key), key, work.at_work, keeping, optimizer)


def resumed(state: State | None, total: int, unit: str, *, before: int = 0) -> KeptSteps:
    """Weights and optimizer as the newest kept state has them, and its rows; or as they are, and none.

    `before`: rows of the table that stand before its first step.
    """
    found = state.read() if state is not None else None
    if state is None or found is None:
        return KeptSteps(state=state)
    state.keeping.journal.resumed(max(0, len(found.rows) - before), total, unit)
    if found.inside.done:
        state.keeping.journal.say(f"resumed: {found.inside.done} micro-batches of the next step are there")
    return found
