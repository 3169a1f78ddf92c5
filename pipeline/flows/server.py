"""Which Prefect server a run reports to: the one that PREFECT_API_URL or the profile names, or one of its own.

A server of its own is a child in its own session: Ctrl-C in the terminal does not reach it, so that the run can still
say how it ended. It listens on loopback, and ends with the process that started it, whatever ends that. The socket is
opened here and handed over: the port is free, and the first request waits until the server has come up, while this
process imports what it needs.
"""

import atexit
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from stages.common.errors import StageError
from stages.common.paths import LOGS

URL_VARIABLE = "PREFECT_API_URL"
HOST = "127.0.0.1"
START_SECONDS = 60.0
ANSWER_SECONDS = 5.0
END_SECONDS = 3.0

_own: list["subprocess.Popen[bytes]"] = []


@dataclass(frozen=True)
class Api:
    """Where Prefect's API is; `process` is the server of this run, None for one that lasts."""

    url: str
    process: "subprocess.Popen[bytes] | None" = None


def is_own() -> bool:
    """Whether this run reports to a server of its own, which ends with it."""
    return bool(_own)


def log_file() -> Path:
    return LOGS / "prefect_server.log"


def open_api() -> Api:
    """The server that is set, which has to answer; otherwise start one, and do not wait for it: `wait_for` does."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url:
        check_answers(url)
        return Api(url)
    api = start_server()
    use(api.url)
    return api


def check_answers(url: str) -> None:
    """A StageError that names the URL and what to do, if no Prefect server answers there."""
    try:
        status = httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        met = f"does not answer ({type(error).__name__}: {error})"
    else:
        if status in (200, 401, 403):  # the client brings the credentials
            return
        met = f"is no Prefect API: status {status} for {url}/health"
    raise StageError(
        f"{URL_VARIABLE} = {url} {met}; start a server (`prefect server start`), correct the URL, which ends in /api, "
        f"or remove it (`unset {URL_VARIABLE}`, or `prefect config unset {URL_VARIABLE}`) for a server of the run's own"
    )


def use(url: str) -> None:
    """Let Prefect report there: in this process, whose settings are loaded already, and in those it starts."""
    from prefect.context import refresh_global_settings_context

    os.environ[URL_VARIABLE] = url
    refresh_global_settings_context()


def start_server() -> Api:
    """Start a server on a free port. It is stopped when this process ends, after Prefect has sent what it still has."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening, log_file().open("wb") as log:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.flows.server_process", str(listening.fileno()), str(os.getpid())],
            pass_fds=[listening.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    _own.append(process)
    atexit.register(stop_server, process)
    return Api(f"http://{HOST}:{port}/api", process)


def wait_for(api: Api) -> None:
    """Until a server of this run's own answers."""
    if api.process is None:
        return
    try:
        met = httpx.get(f"{api.url}/health", timeout=START_SECONDS, trust_env=False).status_code
    except httpx.HTTPError as error:
        raise StageError(f"the temporary Prefect server did not start ({error}); see {log_file()}") from None
    if met != 200:
        raise StageError(f"the temporary Prefect server is not well (status {met}); see {log_file()}")


def stop_server(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
