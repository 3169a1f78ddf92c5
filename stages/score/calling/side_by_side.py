"""Several functions at the same time, each in its executor: as many as there are cores, with results in their order."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event
from typing import TypeVar

from stages.score.calling.worker import STOP

Result = TypeVar("Result")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(tasks: Sequence[Callable[[], Result]], meanwhile: Callable[[], None] = lambda: None) -> list[Result]:
    """The results of all tasks in order, while this thread does something else; the first error in order is raised.

    With an error, or an interruption, calls that are under way are ended rather than waited for.
    """
    if len(tasks) == 1:
        meanwhile()
        return [tasks[0]()]
    stop, context = Event(), copy_context()
    context.run(STOP.set, stop)
    with ThreadPoolExecutor(max(1, min(len(tasks), cores())), thread_name_prefix="reward") as pool:
        try:
            futures = [pool.submit(context.copy().run, task) for task in tasks]
            meanwhile()
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
