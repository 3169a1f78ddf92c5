"""How a run ends before its time: Ctrl-C, SIGTERM, SIGHUP, or a cancellation in Prefect. All of them come to the same.

The main thread raises Prefect's TerminationSignal, whatever it is doing; what the run started is killed, which loses
nothing, as files appear by rename alone; tasks and flows end as Cancelled; the process exits with 128 + the signal. A
second signal, or too long a wait (for a server that is gone, say), ends it at once. The time runs from the signal's
arrival, which a thread hears of: the main thread may be inside a library, and be told late.
"""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

import psutil
from prefect.exceptions import TerminationSignal

from stages.common.errors import StageError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUNNER_VARIABLE = "PREFECT__FLOW_RUN_ID"  # there where `rloo serve` or a Prefect worker has started this process
EXIT_SECONDS = 6.0  # for all of it: within ten, nothing is left, also on a machine that has much else to do
WORK_SECONDS = 3.0  # of them, for DVC to put its files and locks in order once its stage is gone
LOOK_SECONDS = 0.05
GOES_ON = "what is finished stays, and the same command goes on from here"

_reasons: list[str] = []  # why this run is being stopped; the first counts
_statuses: list[int] = []  # with which it exits, if that is not the signal's
_stopping: list[int] = []  # the signals that it is being stopped by
_ears: list[socket.socket] = []  # where a signal is heard at once, and where the interpreter tells of it
_spared: list[int] = []  # processes that outlive the work: the server that is told how the run ended


class RunStoppedError(StageError):
    """A run that was told to stop; `status` is the exit status of the command."""

    def __init__(self) -> None:
        super().__init__(f"{why()}; {GOES_ON}")
        self.status = _status(_stopping[0] if _stopping else signal.SIGTERM)


def listen() -> None:
    """Take the signals that end a run; one that the shell had this process ignore (nohup, &) stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hear)
    if not _ears:
        _ears.extend(socket.socketpair())
        _ears[1].setblocking(False)
        threading.Thread(target=_hear_at_once, args=(_ears[0],), daemon=True).start()
    signal.set_wakeup_fd(_ears[1].fileno(), warn_on_full_buffer=False)


def _hear_at_once(ear: socket.socket) -> None:
    """The number of each signal comes here from the interpreter itself, whatever the main thread does."""
    while number := ear.recv(1):
        if number[0] in SIGNALS:
            leave_within(EXIT_SECONDS, number[0])
            return


def _hear(number: int, frame: FrameType | None) -> None:
    if _stopping:
        if RUNNER_VARIABLE in os.environ:  # Ctrl-C in its terminal comes here twice: once by way of the runner
            return
        _leave(number)
    stopping(number)
    raise TerminationSignal(signal=number)


def stopping(number: int) -> None:
    """A signal to stop has come; Prefect takes SIGTERM itself while a flow runs. From here on the time runs."""
    if _stopping:
        return
    _stopping.append(number)
    _reasons.append(f"stopped by {signal.Signals(number).name}")
    signal.signal(signal.SIGTERM, _hear)
    leave_within(EXIT_SECONDS, number)


def is_stopping(error: BaseException | None = None) -> bool:
    """Whether the run was told to stop. A signal that finds a library at work may come out as an error of the library's
    own, such as `error`, which was raised while the signal was on its way.
    """
    while error is not None and not _stopping:
        if isinstance(error, TerminationSignal):
            stopping(error.signal)
        error = error.__context__
    return bool(_stopping)


def cancel(reason: str, status: int | None = None) -> None:
    """Stop the run from another thread; `status`: with which the command exits, that of SIGTERM if not given. One
    that stops already is let be: the signal would count as the second one.
    """
    if _stopping:
        return
    _reasons.append(reason)
    if status is not None:
        _statuses.append(status)
    os.kill(os.getpid(), signal.SIGTERM)


def why() -> str:
    """The reason of the stop, for Prefect and for the screen."""
    return _reasons[0] if _reasons else "cancelled"


def again() -> TerminationSignal:
    """What goes on to stop the run where a task or a flow has ended as Cancelled."""
    return TerminationSignal(signal=_stopping[0] if _stopping else signal.SIGTERM)


def leave_within(seconds: float, number: int) -> None:
    """End this process and its children if it has not ended by then; `number`: of the signal to stop."""

    def leave() -> None:
        time.sleep(seconds)
        _leave(number)

    threading.Thread(target=leave, daemon=True).start()


def _leave(number: int) -> None:
    _spared.clear()
    kill_children()
    reason = _reasons[0] if _reasons else f"stopped by {signal.Signals(number).name}"
    print(f"rloo: {reason}; {GOES_ON}", file=sys.stderr, flush=True)
    os._exit(_status(number))


def _status(number: int) -> int:
    return _statuses[0] if _statuses else 128 + number


def spare(pid: int) -> None:
    """Leave a process be while the run is stopped: it ends with this one."""
    _spared.append(pid)


def kill_children() -> None:
    """Everything that this process started, and what that has started: stages, the worker, reward functions."""
    for child in psutil.Process().children(recursive=True):
        if child.pid not in _spared:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def kill_until(done: threading.Event) -> None:
    """Kill the children until the work that waits for them has ended; one may be just about to start."""
    deadline = time.monotonic() + WORK_SECONDS
    while time.monotonic() < deadline:
        kill_children()
        if done.wait(LOOK_SECONDS):
            return
