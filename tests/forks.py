"""Stages in processes of their own at the price of a fork: one process has paid for the imports of libraries.

The code of `stages` is imported by each child anew, so that it may change in between. Children can be killed for real.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any


def serve() -> None:
    """For each line on the standard input: fork, run the stage in children, tell their ids and how they ended."""
    import peft  # noqa: F401
    import polars  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    tell({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        children = [child_of(request) for _ in range(request["count"])]
        for child in children:
            tell({"pid": child})
        for child in children:
            tell({"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})


def child_of(request: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        from stages.entry import main

        os.dup2(os.open("stage.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        os.dup2(1, 2)
        os._exit(main(request["stage"], [request["name"]]))
    return child


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Forks:
    """Runs stages in a project's folder."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder = folder
        self.process = process

    def _ask(self, stage: str, name: str, count: int = 1) -> list[int]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"stage": stage, "name": name, "count": count}) + "\n")
        self.process.stdin.flush()
        return [self._heard("pid") for _ in range(count)]

    def _heard(self, what: str) -> int:
        assert self.process.stdout is not None
        return int(json.loads(self.process.stdout.readline())[what])

    def run(self, stage: str, name: str, count: int = 1) -> None:
        """The stage, in so many processes at once."""
        (self.folder / "stage.log").write_text("")
        self._ask(stage, name, count)
        statuses = [self._heard("status") for _ in range(count)]
        assert statuses == [0] * count, f"{stage} {name}: {statuses}\n{self.said()}"

    def killed(self, stage: str, name: str, when: Callable[[], bool]) -> bool:
        """Start the stage and kill it, -9, once the condition holds. False: it had ended before."""
        (pid,) = self._ask(stage, name)
        while not when() and is_running(pid):
            time.sleep(0.0005)
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
        return self._heard("status") == -SIGKILL

    def said(self) -> str:
        return (self.folder / "stage.log").read_text()


def is_running(pid: int) -> bool:
    """Also of a child that has ended and that its parent has not asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = Forks(folder, process)
        found._heard("ready")
        yield found
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve()
