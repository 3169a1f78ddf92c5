"""A server of a run's own: a child in its own session, which ends with the process that started it, whatever ends that.

Ctrl-C in the terminal does not reach it, so that the run can still say how it ended. The socket is opened here and
handed over: the port is free, and the first request waits until the server has come up. It stays open here, too: where
a server is lost in the middle of a run, another takes its place at the same socket, with the same database, and what
is asked meanwhile waits. Training needs no server, and goes on.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from pipeline.flows import stopping
from stages.common.paths import LOGS

HOST = "127.0.0.1"
END_SECONDS = 2.0
STARTS = 4  # a server that is lost more often than that is not started again


def log_file() -> Path:
    return LOGS / "prefect_server.log"


class OwnServer:
    """Starts with the object; ends with this process, after Prefect has sent what it still has."""

    def __init__(self) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        log_file().unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.bind((HOST, 0))
        self.socket.listen()
        self.url = f"http://{HOST}:{self.socket.getsockname()[1]}/api"
        self.ending = threading.Lock()  # held by who ends it
        self.process = self._start()
        threading.Thread(target=self._replace, daemon=True).start()
        atexit.register(self.stop)

    def _start(self) -> "subprocess.Popen[bytes]":
        with log_file().open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.flows.server_process", str(self.socket.fileno()), str(os.getpid())],
                pass_fds=[self.socket.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        stopping.spare(process.pid)
        return process

    def _replace(self) -> None:
        """Another one each time that it is lost. The kernel ends it with this thread, which lasts as long as all."""
        for _ in range(1, STARTS):
            status = self.process.wait()
            if not self.ending.acquire(blocking=False):
                return
            print(f"rloo: the temporary Prefect server was lost (status {status}); another one starts", file=sys.stderr)
            self.process = self._start()
            self.ending.release()
        self.process.wait()
        self.socket.close()  # from here on it is refused what is asked

    def stop(self) -> None:
        self.ending.acquire()
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
