"""What a function prints: read all the time, so that it never blocks, and kept in bounds in a file."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT = 64 * 1024  # bytes of one call
FILE_LIMIT = 4 * 2**20  # beyond which the file becomes `.1` and a new one begins
AT_ONCE = 64  # reads before other things have their turn


@dataclass
class Log:
    """Of one call: the file, what its lines are headed by, and how many bytes came."""

    path: str
    title: str
    came: int = 0

    def take(self, content: bytes) -> None:
        kept = content[: max(0, KEPT - self.came)]
        if kept:
            self._append(self._head() * (self.came == 0) + kept)
        self.came += len(content)

    def finish(self) -> None:
        """Say how much was left out; what comes from now on is headed anew."""
        if self.came > KEPT:
            self._append(f"\n[{self.came - KEPT} more bytes of this call are not kept]\n".encode())
        self.came = 0

    def _head(self) -> bytes:
        return f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {self.title}\n".encode()

    def _append(self, content: bytes) -> None:
        with suppress(OSError):  # a full disk must not be what the call fails by
            path = Path(self.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > FILE_LIMIT:
                path.replace(f"{path}.1")
            with path.open("ab") as file:
                file.write(content)


def drain(descriptor: int, log: Log) -> bool:
    """Take what a non-blocking pipe holds, so much at once that nothing else waits for long. False: it is closed."""
    for _ in range(AT_ONCE):
        try:
            content = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        if not content:
            return False
        log.take(content)
    return True
