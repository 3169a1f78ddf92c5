"""Several chunks side by side: processes with one thread each, which stay warm from one iteration to the next.

This process waits while they work: two torch processes with several threads each slow each other down many times. What
a process samples does not depend on which one it is, or on how many there are.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any
from weakref import ReferenceType, ref

from stages.common.errors import StageError, TransientError
from stages.rollout.children import Child, close_child, how_it_ended, start_child, tell, told
from stages.rollout.samples import Request, Sample, SamplerSettings
from stages.rollout.shared import Arena, places_of
from stages.rollout.skeleton import taken_apart

Groups = list[list[Sample]]
Wanted = dict[int, list[Request]]


class Pool:
    """The processes, and the memory in which they find the weights. `version` counts what they have to be sent."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.arena: Arena | None = None
        self.skeleton = b""
        self.model: ReferenceType[Any] | None = None
        self.version = 0

    def start(self, count: int) -> None:
        """So many processes at least; those that have died are replaced."""
        self.drop_dead()
        self.children += [start_child() for _ in range(count - len(self.children))]

    def drop_dead(self) -> None:
        for child in [one for one in self.children if one.process.poll() is not None]:
            close_child(child)
            self.children.remove(child)

    def take_in(self, model: Any) -> None:
        """Have the model's tensors lie where the processes find them. Another model's memory is left to it."""
        skeleton, tensors = taken_apart(model)
        places = places_of(tensors)
        is_held = self.model is not None and self.model() is model
        if self.arena is None or not is_held or self.arena.places != places:
            self.arena = Arena(places)
            self.version += 1
        if skeleton != self.skeleton:
            self.version += 1
        self.arena.take_in(tensors)
        self.skeleton, self.model = skeleton, ref(model, self._gone)

    def _gone(self, model: ReferenceType[Any]) -> None:
        """Nobody has the model any more: its memory goes, too, before another one is read."""
        if self.model is model:
            self.forget()

    def bring_up_to_date(self, child: Child) -> None:
        assert self.arena is not None
        if child.holds != self.version:
            tell(child, {"weights": {"skeleton": self.skeleton, "places": self.arena.places}}, file=self.arena.file)
            child.holds = self.version

    def forget(self) -> None:
        """Let go of the model, here and in the processes. One that has died meanwhile is no loss: its work is done."""
        self.drop_dead()
        for child in self.children:
            with suppress(TransientError):
                tell(child, {"forget": {}})
            child.holds = 0
        self.arena = self.model = None

    def close(self) -> None:
        """End all processes, whatever they do."""
        for child in self.children:
            close_child(child)
        self.children = []
        self.arena = self.model = None


_pool = Pool()
atexit.register(_pool.close)


def forget_model() -> None:
    """Let go of the memory of the model that was sampled from last."""
    _pool.forget()


def side_by_side(
    model: Any, wanted: Wanted, settings: SamplerSettings, progress: Callable[[int], None]
) -> Iterator[tuple[int, Groups]]:
    """The samples of each chunk, by its number, as they come."""
    try:
        _pool.start(min(settings.processes, len(wanted)))
        _pool.take_in(model)
        yield from _shared_out(_pool, wanted, settings, progress)
    except BaseException:  # what is half done is of no use to anybody
        _pool.close()
        raise


def _shared_out(
    pool: Pool, wanted: Wanted, settings: SamplerSettings, progress: Callable[[int], None]
) -> Iterator[tuple[int, Groups]]:
    waiting = list(wanted.items())
    idle = pool.children[: settings.processes]
    busy: dict[Any, tuple[Child, int]] = {}
    while waiting or busy:
        while waiting and idle:
            child, (number, requests) = idle.pop(0), waiting.pop(0)
            pool.bring_up_to_date(child)
            tell(child, {"sample": {"requests": requests, "settings": settings}})
            busy[child.connection] = child, number
        for connection in wait(list(busy)):
            child, number = busy[connection]
            message = told(child)
            if message is None:
                raise TransientError(died(child, settings))
            if "ended" in message:
                progress(message["ended"])
                continue
            del busy[connection]
            idle.append(child)
            yield number, samples_of(message)


def samples_of(message: dict[str, Any]) -> Groups:
    """The answer's samples; what went wrong in the process is raised here."""
    if "error" in message:
        raise StageError(message["error"])
    if "broken" in message:
        raise RuntimeError(f"a sampling process failed:\n{message['broken']}")
    samples: Groups = message["samples"]
    return samples


def died(child: Child, settings: SamplerSettings) -> str:
    return (
        f"rollout: one of the {settings.processes} sampling processes (pid {child.process.pid}) {how_it_ended(child)}; "
        "if the system did that for want of memory, lower rollout.batch_tokens or rollout.processes"
    )


def _forget_in_fork() -> None:
    """The processes are the parent's: a fork must neither talk to them nor keep them from seeing the parent's end."""
    for child in _pool.children:
        child.connection.close()
        child.process.returncode = 0  # no child of this process: nothing to wait for
    _pool.children = []
    _pool.arena = _pool.model = None


os.register_at_fork(after_in_child=_forget_in_fork)
