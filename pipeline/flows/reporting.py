"""A command that runs a flow: it has a server to report to, ends in order when told to, and says how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.exceptions import CancelledRun, PrefectException

from pipeline.flows import stopping
from pipeline.flows.server import Api, open_api, settings_of, wait_for
from stages.common.errors import StageError


@contextmanager
def reporting() -> Iterator[Api]:
    """The server is there, or is coming up, while the block imports what it needs; `begin` waits for it."""
    try:
        stopping.listen()
        api = open_api()
        with settings_of(api):
            yield api
    except BaseException as error:
        if stopping.is_stopping(error) or isinstance(error, CancelledRun):
            raise stopping.RunStoppedError from None
        if not isinstance(error, httpx.HTTPError | PrefectException):
            raise
        raise StageError(
            f"Prefect could not be told how the run goes ({type(error).__name__}: {error}); what is finished stays, "
            "and the same command goes on from here"
        ) from error


def begin(api: Api) -> None:
    """Wait for the server, and tell it what became of the last run here if that was killed."""
    from pipeline.flows.record import mark_left

    wait_for(api)
    mark_left()
