"""Following a stage's journal while it runs, for whatever shows its progress."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from pipeline.door import StageId
from stages.common.journal import read_journal


@contextmanager
def followed(stage: StageId, seconds: float, hear: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """While the block runs, call `hear` with the newest progress record every so many seconds, if there is a new one.

    It is called in another thread, in this one's context, so that Prefect knows which task it belongs to.
    """
    done = threading.Event()

    def follow() -> None:
        last = read_journal(stage.stage, stage.name)[-1:]  # of an earlier run
        while not done.wait(seconds):
            newest = read_journal(stage.stage, stage.name)[-1:]
            if newest != last and newest and newest[0]["event"] == "progress":
                hear(newest[0])
            last = newest

    follower = threading.Thread(target=copy_context().run, args=(follow,), daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
