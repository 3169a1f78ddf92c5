"""Flows that bring DVC stages up to date: one task per stage, followed on the screen, and an orderly end."""

import os
import signal
import sys
import threading
import time

import psutil
from prefect import flow, task

from pipeline import artifacts
from pipeline.door import Outcome, StageId, reproduce, use_this_python
from pipeline.screen import Screen
from stages.common.errors import StageError
from stages.common.journal import QUIET_VARIABLE

__all__ = ["flow", "get_ready", "reproduced", "task"]

EXIT_SECONDS = 10.0
TERMINATED = 128 + signal.SIGTERM


def reproduced(stage: StageId, number: int) -> Outcome:
    """Bring a stage up to date, followed on the screen and in Prefect; `number` is its place in the run."""
    with Screen.current().stage(stage, number), artifacts.progress(stage):
        try:
            return reproduce(stage)
        except StageError as error:
            leave_within(EXIT_SECONDS, str(error))
            raise
        except BaseException:  # Prefect has a handler of its own for SIGTERM, which raises
            leave_within(EXIT_SECONDS, "terminated", TERMINATED)
            raise


def leave_within(seconds: float, reason: str, status: int = 1) -> None:
    """End this process and its children if it has not ended by then.

    Ctrl-C ends the temporary Prefect server as well, and Prefect would then try for ever to report to it.
    """

    def leave() -> None:
        time.sleep(seconds)
        for child in psutil.Process().children(recursive=True):
            child.kill()
        print(f"rloo: {reason}", file=sys.stderr, flush=True)
        os._exit(status)

    threading.Thread(target=leave, daemon=True).start()


def terminate(*_: object) -> None:
    """SIGTERM: an orderly exit, which stops Prefect's temporary server, and soon: that may be gone already."""
    leave_within(EXIT_SECONDS, "terminated", TERMINATED)
    sys.exit(TERMINATED)


def interrupt(*_: object) -> None:
    """Ctrl-C: an orderly end, and soon."""
    leave_within(EXIT_SECONDS, "interrupted")
    raise KeyboardInterrupt


def get_ready() -> None:
    """What a flow that runs stages needs of this process."""
    use_this_python()
    os.environ[QUIET_VARIABLE] = "1"  # what a stage has to say is shown here
    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, interrupt)
