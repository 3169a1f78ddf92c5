"""Workers that stay warm in this process from one stage to the next, so that imports are paid for once.

One is taken for as long as it is used and given back after; two threads never share one. What an executor imported must
still be what lies on disk, and folder, environment and import path must be the same. They end with the process: at its
exit, and by the supervisor's own watch when it is killed.
"""

import atexit
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from stages.score.calling.worker import Worker, absolute_path, ask, close_worker, open_worker

MOST = 8  # kept at a time; the one that has rested longest goes first

_lock = Lock()
_idle: list[tuple[str, str, Worker]] = []  # function, key, worker: longest at rest first


@contextmanager
def worker_for(spec: str, identity: dict[str, str], memory_mb: int) -> Iterator[Worker]:
    """A worker that holds the function, or one that is still to start it. It is closed if the block fails."""
    key = key_of(spec, identity, memory_mb)
    worker = _take(spec, key) or open_worker()
    try:
        yield worker
        ask(worker, {"do": "rest"})
    except BaseException:
        close_worker(worker)
        raise
    if worker.about is None:
        close_worker(worker)
    else:
        _keep(spec, key, worker)


def key_of(spec: str, identity: dict[str, str], memory_mb: int) -> str:
    """All that a warm executor depends on."""
    around = [os.getcwd(), sorted(os.environ.items()), absolute_path(), spec, identity, memory_mb]
    return hashlib.sha256(json.dumps(around).encode()).hexdigest()


def _take(spec: str, key: str) -> Worker | None:
    """The worker of this key, if there is one; those that hold another state of the same function are closed."""
    found, stale = None, []
    with _lock:
        for entry in [entry for entry in _idle if entry[0] == spec]:
            if entry[1] != key or not is_current(entry[2]):
                stale.append(entry)
            elif found is None:
                found = entry
        _idle[:] = [entry for entry in _idle if entry is not found and entry not in stale]
    for _, _, worker in stale:
        close_worker(worker)
    return None if found is None else found[2]


def is_current(worker: Worker) -> bool:
    """Whether the files that it imported are as they were, and it lives."""
    try:
        now = {file: os.stat(file) for file in worker.files}
    except OSError:
        return False
    same = all([now[file].st_mtime_ns, now[file].st_size] == known for file, known in worker.files.items())
    return same and worker.process.poll() is None


def _keep(spec: str, key: str, worker: Worker) -> None:
    with _lock:
        _idle.append((spec, key, worker))
        over = [_idle.pop(0) for _ in range(len(_idle) - MOST)]
    for _, _, old in over:
        close_worker(old)


@atexit.register
def close_all() -> None:
    """End all workers at rest."""
    with _lock:
        entries = _idle[:]
        _idle.clear()
    for _, _, worker in entries:
        worker.connection.close()  # all at once: each then ends by itself
    for _, _, worker in entries:
        close_worker(worker)


def _forget() -> None:
    """In a fork of this process: the workers are its parent's, whose end they must notice."""
    global _lock
    _lock = Lock()
    for _, _, worker in _idle:
        worker.connection.close()
        worker.process.returncode = 0  # no child of this process: nothing to wait for
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
