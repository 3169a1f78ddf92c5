"""`rloo serve`: this workspace's training flow as a deployment, to be run, scheduled and cancelled in the Prefect UI.

Runs of one workspace follow each other: the deployment's concurrency limit is 1, and what comes meanwhile is queued.
Prefect's runner has a thread of its own; the main thread waits for a signal. What runs then is cancelled, the
deployment paused until the next `rloo serve`. If that takes too long (the server may be gone), all processes end
all the same.
"""

import asyncio
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import psutil
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.settings import get_current_settings

from pipeline.door import check_project
from pipeline.flows import stopping
from pipeline.flows.deployed import train
from pipeline.flows.server import URL_VARIABLE, check_answers
from stages.common.errors import StageError
from stages.common.params_file import load_params

LEAVE_SECONDS = 8.0  # a run ends in six


def serve(name: str | None, cron: str | None, every: float | None, iterations: int) -> None:
    """Serve until told to stop; `every` in seconds. Without a schedule, runs are started by hand."""
    check_project()
    load_params()
    if cron is not None and every is not None:
        raise StageError("--cron and --interval: a deployment has one schedule here; give one of them")
    url = get_current_settings().api.url
    if not url:
        raise StageError(
            f"{URL_VARIABLE} is not set: a deployment needs a server that lasts. Start one with `prefect server start` "
            f"and `export {URL_VARIABLE}=http://127.0.0.1:4200/api`"
        )
    check_answers(url)
    deployment = train.to_deployment(  # of a flow that is not asynchronous: no coroutine
        name=name or Path.cwd().name,
        cron=cron,
        interval=None if every is None else timedelta(seconds=every),
        parameters={"iterations": iterations},
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE),
        enforce_parameter_schema=True,
        paused=False,  # as the end of the last `rloo serve` has left it
        tags=["rloo"],
        description="REINFORCE Leave-One-Out in one workspace: every stage of the plan, brought up to date.",
    )
    assert isinstance(deployment, RunnerDeployment)
    print(f"Serving rloo/{deployment.name} to {url}: run it in the UI, or with")
    print(f"    prefect deployment run rloo/{deployment.name} --param iterations={iterations}", flush=True)
    run(deployment)


def run(deployment: RunnerDeployment) -> None:
    """Run what is asked of the deployment, until a signal comes."""
    heard = listen()
    runner = Runner(limit=1)
    runner.add_deployment(deployment)
    thread = threading.Thread(target=_keep, args=(runner, heard), daemon=True)
    thread.start()
    first = heard.get()
    if isinstance(first, BaseException):
        raise StageError(f"Prefect's server is lost ({type(first).__name__}: {first})") from first
    print(f"rloo: stopped by {first.name}; a run that is under way is cancelled", flush=True)
    stop(runner)
    thread.join()
    psutil.wait_procs(psutil.Process().children())  # until then, or until `listen` ends them
    sys.stdout.flush()
    os._exit(0)  # Prefect has nothing more to tell; leaving in order would take seconds of the ten


def listen() -> "SimpleQueue[signal.Signals | BaseException]":
    """Where signals to stop arrive. The first one starts a clock, the second one ends everything on the spot."""
    heard: SimpleQueue[signal.Signals | BaseException] = SimpleQueue()
    seconds = [0.0, LEAVE_SECONDS]

    def hear(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number)
        stopping.leave_within(seconds.pop() if len(seconds) > 1 else 0.0, number)
        heard.put(name)

    for number in stopping.SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hear)
    return heard


def _keep(runner: Runner, heard: "SimpleQueue[signal.Signals | BaseException]") -> None:
    """The runner's thread; it ends when the runner is stopped, or has given up on the server."""
    try:
        asyncio.run(runner.start())
    except BaseException as error:
        heard.put(error)
    else:
        heard.put(RuntimeError("the runner has ended"))


def stop(runner: Runner) -> None:
    """Cancel what runs, by way of Prefect; if its server does not answer, by a signal."""
    try:
        runner.execute_in_background(runner.astop).result()
    except Exception as error:
        print(f"rloo: Prefect could not be told ({type(error).__name__}: {error})", flush=True)
    for child in psutil.Process().children():
        child.terminate()
