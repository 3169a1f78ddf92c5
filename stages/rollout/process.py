"""A process that samples chunks, with one thread, from weights that it shares with the stage's process.

It is told everything through one connection, ends when that is closed, and is gone soon after the stage's process is.
"""

import mmap
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import torch

from stages.common.device import use_deterministic_kernels
from stages.common.errors import StageError
from stages.rollout.chunk import sample_chunk
from stages.rollout.shared import Place, size_of, views_of
from stages.rollout.skeleton import put_together

POLL_SECONDS = 0.2


def main(descriptor: str, parent: str) -> None:
    """Do what the process `parent` says, until it says no more."""
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to all processes of a terminal, and the parent decides
    torch.set_num_threads(1)
    use_deterministic_kernels()
    connection: Any = Connection(int(descriptor))
    model: Any = None
    while (message := _receive(connection)) is not None:
        sys.path += [entry for entry in message["path"] if entry not in sys.path]
        match message:
            case {"weights": about}:
                model = None
                model = _model_of(connection, **about)
            case {"forget": _}:
                model = None
            case {"sample": about}:
                _send(connection, _answer(connection, model, about))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


def _model_of(connection: Any, skeleton: bytes, places: list[Place]) -> Any:
    """The model whose tensors lie in the memory that follows the message."""
    file = recv_handle(connection)
    views = views_of(mmap.mmap(file, size_of(places)), places)
    os.close(file)
    tensors = [
        view if place.gradient is None else torch.nn.Parameter(view, requires_grad=place.gradient)
        for view, place in zip(views, places, strict=True)
    ]
    return put_together(skeleton, tensors)


def _answer(connection: Any, model: Any, about: dict[str, Any]) -> dict[str, Any]:
    """The samples, or what went wrong."""
    try:
        return {"samples": sample_chunk(model, **about, progress=lambda more: _send(connection, {"ended": more}))}
    except StageError as error:
        return {"error": str(error)}
    except Exception:
        return {"broken": traceback.format_exc()}


def _send(connection: Any, message: dict[str, Any]) -> None:
    try:
        connection.send_bytes(pickle.dumps(message))
    except OSError:  # nobody wants it any more
        os._exit(1)


def _receive(connection: Any) -> Any:
    try:
        return pickle.loads(connection.recv_bytes())  # of the stage's own making, through a pipe that nobody else has
    except (EOFError, OSError):  # the other side is gone
        return None
