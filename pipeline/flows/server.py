"""Which Prefect server a run reports to: the one that PREFECT_API_URL or the profile names, or one of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from pipeline.flows.own_server import OwnServer, log_file
from stages.common.errors import StageError

URL_VARIABLE = "PREFECT_API_URL"
START_SECONDS = 60.0
ANSWER_SECONDS = 5.0

_own: list[OwnServer] = []


@dataclass(frozen=True)
class Api:
    """Where Prefect's API is; `own`: it lasts as long as this run."""

    url: str
    own: bool = False


def is_own() -> bool:
    """Whether this run reports to a server of its own, which ends with it."""
    return bool(_own)


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


def is_there(url: str) -> bool:
    """Whether anything takes connections at the URL; a server that is slow is there."""
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return False
    except httpx.HTTPError:
        return True
    return True


def use(url: str) -> None:
    """Let Prefect report there: in this process, whose settings are loaded already, and in those it starts."""
    from prefect.context import refresh_global_settings_context

    os.environ[URL_VARIABLE] = url
    refresh_global_settings_context()


def start_server() -> Api:
    """A server of this run's own; it comes up while this process does something else."""
    server = OwnServer()
    _own.append(server)
    return Api(server.url, own=True)


@contextmanager
def settings_of(api: Api) -> Iterator[None]:
    """Without heartbeats of flows where the server ends with the run: nobody could miss them, and each flow would wait
    for up to a second for the thread that sends them.
    """
    from prefect import settings

    heartbeats = getattr(settings, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY", None)  # not in all versions
    with settings.temporary_settings({heartbeats: None} if api.own and heartbeats is not None else {}):
        yield


def wait_for(api: Api) -> None:
    """Until a server of this run's own answers."""
    if not api.own:
        return
    try:
        met = httpx.get(f"{api.url}/health", timeout=START_SECONDS, trust_env=False).status_code
    except httpx.HTTPError as error:
        raise StageError(f"the temporary Prefect server did not start ({error}); see {log_file()}") from None
    if met != 200:
        raise StageError(f"the temporary Prefect server is not well (status {met}); see {log_file()}")
