"""One sampling process, as the stage's process sees it: started, talked to, ended.

Spawned and not forked, as a fork of a process with threads may hang. It keeps no file of the stage's open, a lock among
them.
"""

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from stages.common.errors import TransientError

ROOT = Path(__file__).resolve().parents[2]  # where a process, which has no other path, finds `stages`
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from stages.rollout.process import main; main(*sys.argv[2:])"
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class Child:
    """`holds`: the version of the weights that it was sent last; 0: none."""

    process: "subprocess.Popen[bytes]"
    connection: Any
    holds: int = 0


def start_child() -> Child:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(ROOT), str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | dict.fromkeys(ONE_THREAD, "1"),
        )
    return Child(process, ours)


def tell(child: Child, message: dict[str, Any], file: int | None = None) -> None:
    """Send a message, and an open file after it. Where its code is imported from goes along."""
    path = [os.path.abspath(entry) for entry in sys.path]
    try:
        child.connection.send_bytes(pickle.dumps({"path": path} | message))
        if file is not None:
            send_handle(child.connection, file, child.process.pid)
    except OSError:
        raise TransientError(f"rollout: a sampling process (pid {child.process.pid}) {how_it_ended(child)}") from None


def told(child: Child) -> dict[str, Any] | None:
    """The next message; None if the process is gone."""
    try:
        message: dict[str, Any] = pickle.loads(child.connection.recv_bytes())  # of this room's own process
    except (EOFError, OSError):
        return None
    return message


def how_it_ended(child: Child) -> str:
    status = child.process.wait()
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def close_child(child: Child) -> None:
    child.connection.close()
    child.process.kill()
    child.process.wait()
