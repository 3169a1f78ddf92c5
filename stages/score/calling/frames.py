"""Messages between stage, supervisor and executor: a length in 8 bytes, and so many bytes.

A message of the stage to the supervisor and back is two frames: a JSON header, and a payload that the supervisor hands
on unread. Pickle goes from the stage to the executor only; what comes from the side of the user's code is JSON.
"""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct("!Q")


def framed(content: bytes) -> bytes:
    return LENGTH.pack(len(content)) + content


def receive_frame(read: Callable[[int], bytes]) -> bytes | None:
    """The next frame of a blocking reader; None at the end of the stream."""
    head = _exactly(read, LENGTH.size)
    return None if head is None else _exactly(read, LENGTH.unpack(head)[0])


def _exactly(read: Callable[[int], bytes], count: int) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        more = read(min(count - len(content), 1 << 20))
        if not more:
            return None
        content += more
    return bytes(content)


def send(connection: socket.socket, header: dict[str, Any], payload: bytes = b"") -> None:
    connection.sendall(framed(json.dumps(header).encode()) + framed(payload))


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """Header and payload; None if the other side is gone."""
    header, payload = receive_frame(connection.recv), receive_frame(connection.recv)
    return None if header is None or payload is None else (json.loads(header), payload)
