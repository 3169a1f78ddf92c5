"""Which flow run this workspace is at, in `data/.flow_run.json`: so that a run that was killed does not stay Running.

Nothing can report that it was killed with SIGKILL. The next run in the workspace does it: a run on record that has not
ended, and whose process is gone, has crashed.
"""

import json
import os
import sys
import threading
import time
from typing import Any
from uuid import UUID

import httpx
import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed

from pipeline.flows import server, stopping
from stages.common.files import publish
from stages.common.paths import DATA

RECORD = DATA / ".flow_run.json"
LOOK_SECONDS = 1.0
LOST_SECONDS = 15.0  # a server that is started again is back in less
FOUND_BY = "its process was killed; the next run in the workspace has found that"


def begin_record() -> None:
    """Put this flow run on record, and notice when it is cancelled; of a flow inside another nothing is to do."""
    if flow_run.parent_flow_run_id is not None:
        return
    runner = os.getppid() if stopping.RUNNER_VARIABLE in os.environ else None
    if not server.is_own():  # nobody sees our own, which is replaced if it is lost
        threading.Thread(target=watch, args=(UUID(flow_run.id), runner), daemon=True).start()
    if runner is not None:  # a command has done that before its flow began
        mark_left()
    process = psutil.Process()
    with publish(RECORD) as scratch:
        content = {"id": str(flow_run.id), "pid": process.pid, "started": process.create_time()}
        scratch.write_text(json.dumps(content) + "\n", encoding="utf-8")


def watch(run: UUID, runner: int | None) -> None:
    """Stop this process when its run is cancelled in Prefect, which a `runner` (`rloo serve`, or a worker) looks for
    itself; when the runner that has started it is gone without a word; and when the server is gone.
    """
    url = get_current_settings().api.url or ""
    answered = time.monotonic()
    with get_client(sync_client=True) as client:
        while True:
            time.sleep(LOOK_SECONDS)
            if runner is not None and os.getppid() != runner:
                return stopping.cancel("what has started this run is gone")
            if server.is_there(url):
                answered = time.monotonic()
                if runner is None and _cancelled(client, run):
                    return stopping.cancel("cancelled in Prefect")
            elif time.monotonic() - answered > LOST_SECONDS:
                return stopping.cancel(f"Prefect's server at {url} is gone", status=1)


def _cancelled(client: SyncPrefectClient, run: UUID) -> bool:
    try:
        state = client.read_flow_run(run).state
    except (httpx.HTTPError, PrefectException):
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def cancelled_instead(flow: Any, flow_run: Any, state: State[Any]) -> None:
    """Prefect calls a flow run Crashed if a signal comes while it is at work on that itself: it is Cancelled."""
    if stopping.is_stopping(sys.exception()):
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, Cancelled(message=stopping.why()), force=True)


def mark_left() -> None:
    """Let the run on record have crashed, with all that belongs to it, if it has not ended and its process is gone."""
    try:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        if _lives(record["pid"], record["started"]):
            return
        with get_client(sync_client=True) as client:
            _mark(client, UUID(record["id"]))
    except (OSError, ValueError, KeyError, TypeError, ObjectNotFound):
        return  # no run, or none that this server knows


def _lives(pid: int, started: float) -> bool:
    try:
        return bool(abs(psutil.Process(pid).create_time() - started) < 1)
    except psutil.NoSuchProcess:
        return False


def _mark(client: SyncPrefectClient, run: UUID) -> None:
    outer = client.read_flow_run(run)
    if not _open(outer.state):
        return
    inner = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run]))
    )
    of_these = TaskRunFilterFlowRunId(any_=[outer.id, *(one.id for one in inner)])
    for one in client.read_task_runs(task_run_filter=TaskRunFilter(flow_run_id=of_these)):
        if _open(one.state):
            client.set_task_run_state(one.id, Crashed(message=FOUND_BY), force=True)
    for each in [*inner, outer]:
        if _open(each.state):
            client.set_flow_run_state(each.id, Crashed(message=FOUND_BY), force=True)


def _open(state: State[Any] | None) -> bool:
    return state is not None and not state.is_final()
