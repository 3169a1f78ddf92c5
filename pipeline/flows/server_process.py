"""The process of a run's own Prefect server: `python -m pipeline.flows.server_process SOCKET PARENT`.

SOCKET is the number of an open file that listens already, PARENT the process to end with.
"""

import os
import socket
import sys

from pipeline.stage import end_with_parent

SETTINGS = {  # what Prefect itself sets for a server that lives as long as a run: no pages, no scheduler
    "PREFECT_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}


def main(descriptor: int, parent: int) -> None:
    end_with_parent(parent)
    os.environ.update(SETTINGS)
    import uvicorn

    config = uvicorn.Config(
        "prefect.server.api.server:create_app", factory=True, log_level="error", lifespan="on", access_log=False
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
