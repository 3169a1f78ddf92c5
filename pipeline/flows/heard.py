"""What was heard of the process that runs a stage: it tells a stage that failed from a process that was killed."""

import signal

import psutil

from pipeline.door import StageFailedError
from pipeline.follow import Record
from stages.common.errors import StageError, TransientError

ENDED = ("finished", "failed")
GIGABYTE = 2**30


class Heard:
    """The last record of a stage's journal, and the most memory that its process was seen to hold."""

    def __init__(self) -> None:
        self.last: Record | None = None
        self.process: psutil.Process | None = None
        self.memory = 0  # bytes

    def hear(self, records: list[Record]) -> None:
        for record in records:
            self.last = record
            if record["event"] == "started":
                self.process = _process(record["pid"])
        if self.process is not None:
            try:
                self.memory = max(self.memory, self.process.memory_info().rss)
            except psutil.Error:
                self.process = None

    def judged(self, failure: StageFailedError, status: int | None) -> StageError:
        """The failure as it is to be told: transient if another try can help. `status`: of the worker, if it ended."""
        if self.last is None:
            return failure
        if self.last["event"] not in ENDED:
            return TransientError(f"{failure}: {self._death(status)}")
        if self.last.get("transient"):
            return TransientError(str(failure))
        return failure

    def _death(self, status: int | None) -> str:
        by = "" if status is None or status >= 0 else f" by signal {-status} ({signal.Signals(-status).name})"
        held = f"; it held {self.memory / GIGABYTE:.2f} GB" if self.memory else ""
        told = f"the process that ran it was killed{by}{held}"
        if status == -signal.SIGKILL:
            told += "; if the system did that for want of memory, lower pack_tokens, batch_tokens or compute.threads"
        return told


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
