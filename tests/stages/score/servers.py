"""A real HTTP server on the loopback whose answers a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


@contextmanager
def serving(answer: Callable[[dict[str, Any], int], Answer]) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and what it has been asked: (path, Authorization, body). `answer` gets the body and the count."""
    seen: list[Any] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen.append((self.path, self.headers.get("Authorization"), body))
                count = len(seen)
            status, text = answer(body, count)
            with suppress(ConnectionError):  # the other side may have given up
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
