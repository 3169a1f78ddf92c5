"""Whom to kill: the command, its group, DVC, the worker, the server, or the stage's own process."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.kills.traces import processes
from tests.workspace import Workspace

SIGNALS = (signal.SIGTERM, signal.SIGKILL)
TARGETS = {"train": ("process", "group", "worker", "server", "stage"), "repro": ("process", "group", "stage")}


def strike(
    workspace: Workspace, command: subprocess.Popen[bytes], stage: str, target: str, number: signal.Signals
) -> bool:
    """Whether there was somebody to kill."""
    if target == "group":
        return _killed(lambda: os.killpg(command.pid, number))
    if target == "process":
        return _killed(lambda: os.kill(command.pid, number))
    victims = [process for process in processes(workspace) if _is(process, target, stage)]
    killed = [_killed(lambda process=process: os.kill(process.pid, number)) for process in victims]
    return any(killed)


def _killed(kill: Callable[[], None]) -> bool:
    with suppress(ProcessLookupError):
        kill()
        return True
    return False


def _is(process: psutil.Process, target: str, stage: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    if target == "stage":  # the client; its shell goes with it
        return words[1:3] == ["-m", "pipeline.stage"] and words[3:] == stage.split()
    if target == "worker":
        return words[1:3] == ["-m", "pipeline.worker"]
    return words[1:3] == ["-m", "pipeline.flows.server_process"]
