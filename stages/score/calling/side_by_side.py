"""Several functions at the same time, each in its executor: as many as there are cores, with results in their order."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from threading import Event
from typing import TypeVar

from stages.score.calling.worker import STOP, UnwantedError

Result = TypeVar("Result")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    tasks: Sequence[Callable[[], Result]], meanwhile: Callable[[], None] = lambda: None, *, patient: bool = False
) -> list[Result]:
    """The results of all tasks in order, while this thread does something else.

    The first error ends the calls that are under way, so that nothing more is paid for; of several that are there by
    then the first in the order of the tasks is raised. `patient`: wait for the tasks before one that failed, so that
    it is always the same that is told. An interruption ends all calls, too.
    """
    if len(tasks) == 1:
        meanwhile()
        return [tasks[0]()]
    stop, context = Event(), copy_context()
    context.run(STOP.set, stop)
    with ThreadPoolExecutor(max(1, min(len(tasks), cores())), thread_name_prefix="reward") as pool:
        try:
            futures = [pool.submit(context.copy().run, task) for task in tasks]
            for future in futures if not patient else []:
                future.add_done_callback(partial(_stop_if_failed, stop))
            meanwhile()
            if not patient:
                _raise_first(futures)
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _stop_if_failed(stop: Event, future: Future[Result]) -> None:
    if not future.cancelled() and future.exception() is not None:
        stop.set()


def _raise_first(futures: Sequence[Future[Result]]) -> None:
    """The error that ended it, and not what became of the others by it."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    errors = [future.exception() for future in futures if future in done]
    told = [error for error in errors if error is not None]
    of_its_own = [error for error in told if not isinstance(error, UnwantedError)]
    for error in of_its_own or told:
        raise error
