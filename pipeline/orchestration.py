"""Flows that bring DVC stages up to date: one task per stage, followed on the screen and in Prefect, an orderly end.

A stage that was found, and not computed, ends as `Cached`, with the reason. A run that is told to stop ends as
Cancelled, the stage that works too, whatever the signal makes of the library that it finds at work. Another try is made
only where it can help: after a process that was killed, or a server that was lost.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import prefect
from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.states import Cancelled, Completed

from pipeline import artifacts
from pipeline.door import Outcome, StageFailedError, StageId, reproduce, use_this_python
from pipeline.flows import stopping
from pipeline.flows.heard import Heard
from pipeline.flows.record import begin_record, cancelled_instead
from pipeline.follow import Record, followed
from pipeline.screen import Screen
from pipeline.worker import Worker
from stages.common.errors import TransientError
from stages.common.journal import QUIET_VARIABLE

__all__ = ["brought_up", "flow", "get_ready", "reproduced", "task", "working"]

P = ParamSpec("P")
R = TypeVar("R")

POLL_SECONDS = 0.5
RETRY_SECONDS = [5.0, 30.0]  # before the second try, and the third and last
FOUND = {"unchanged": "unchanged", "restored": "restored from the run cache"}

_worker: ContextVar[Worker | None] = ContextVar("worker", default=None)


def flow(**options: Any) -> Callable[[Callable[P, R]], "prefect.Flow[P, Any]"]:
    """A Prefect flow that ends as Cancelled when the run is told to stop. Nothing it returns is stored."""

    def made(body: Callable[P, R]) -> "prefect.Flow[P, Any]":
        @wraps(body)
        def run(*arguments: P.args, **named: P.kwargs) -> Any:
            try:
                begin_record()
                return body(*arguments, **named)
            except CancelledRun:  # a flow inside this one has ended so
                pass
            except BaseException as error:
                if not stopping.is_stopping(error):
                    raise
            return Cancelled(message=stopping.why())

        return prefect.flow(persist_result=False, on_crashed=[cancelled_instead], **options)(run)

    return made


def task(**options: Any) -> Callable[[Callable[P, Outcome]], "prefect.Task[P, Any]"]:
    """A Prefect task that brings a stage up to date; `brought_up` reads what it returns."""

    def made(body: Callable[P, Outcome]) -> "prefect.Task[P, Any]":
        @wraps(body)
        def run(*arguments: P.args, **named: P.kwargs) -> Any:
            try:
                outcome = body(*arguments, **named)
            except BaseException as error:
                if not stopping.is_stopping(error):
                    raise
                return Cancelled(message=stopping.why())
            if outcome == "computed":
                return outcome
            return Completed(name="Cached", message=FOUND[outcome], data=outcome)

        return prefect.task(  # type: ignore[no-any-return, call-overload]
            run,
            retries=len(RETRY_SECONDS),
            retry_delay_seconds=RETRY_SECONDS,
            retry_condition_fn=is_transient,
            persist_result=False,
            **options,
        )

    return made


def brought_up(returned: Any) -> Outcome:
    """What a task of a stage came to."""
    if not isinstance(returned, State):
        return returned  # type: ignore[no-any-return]
    if returned.is_cancelled():
        raise stopping.again()
    return returned.data.result  # type: ignore[no-any-return, union-attr]


def is_transient(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether another try can help; said on the screen, too."""
    error = getattr(state.data, "result", state.data)
    if not isinstance(error, TransientError):
        return False
    Screen.current().again(str(error))
    return True


@contextmanager
def working(worker: Worker) -> Iterator[None]:
    """The stages of the block are run by this worker, which is started anew if it has died."""
    before = _worker.set(worker)
    try:
        yield
    finally:
        _worker.reset(before)


def reproduced(stage: StageId, number: int) -> Outcome:
    """Bring a stage up to date, followed on the screen and in Prefect; `number` is its place in the run."""
    worker = _worker.get()
    if worker is not None and not worker.is_running:
        worker.ensure()
    heard = Heard()
    with Screen.current().stage(stage, number) as show, artifacts.progress(stage) as tell:

        def hear(records: list[Record]) -> None:
            for listener in (heard.hear, show, tell, artifacts.said):
                listener(records)

        with followed(stage, POLL_SECONDS, hear):
            try:
                return apart(partial(reproduce, stage))
            except StageFailedError as error:
                failure = error
    status = worker.process.poll() if worker is not None and worker.process is not None else None
    raise heard.judged(failure, status) from failure


def apart(work: Callable[[], R]) -> R:
    """Do the work in another thread, so that this one hears every signal: DVC has the main thread ignore Ctrl-C while
    a stage runs. When this thread is told to stop, the processes that the work waits for are killed.
    """
    done = threading.Event()
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    try:
        done.wait()
    except BaseException as error:
        if isinstance(error, TerminationSignal):  # a second one ends this process from here on
            stopping.stopping(error.signal)
        stopping.kill_until(done)
        raise
    if errors:
        raise errors[0]
    return results[0]


def get_ready() -> None:
    """What a flow that runs stages needs of this process."""
    use_this_python()
    os.environ[QUIET_VARIABLE] = "1"  # what a stage has to say is shown here
    stopping.listen()
    gc.freeze()  # libraries stay: each collection would go through all of their objects
