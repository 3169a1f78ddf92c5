"""`rloo serve`: this workspace's training flow as a deployment, to be run, scheduled and cancelled in the Prefect UI.

Runs of one workspace follow each other: the deployment's concurrency limit is 1, and what comes meanwhile is queued.
"""

from datetime import timedelta
from pathlib import Path

from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import serve as serve_deployments
from prefect.settings import get_current_settings

from pipeline.door import check_project
from pipeline.flows.deployed import train
from pipeline.flows.server import URL_VARIABLE, check_answers
from stages.common.errors import StageError
from stages.common.params_file import load_params


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
        tags=["rloo"],
        description="REINFORCE Leave-One-Out in one workspace: every stage of the plan, brought up to date.",
    )
    assert isinstance(deployment, RunnerDeployment)
    print(f"Serving rloo/{deployment.name} to {url}: run it in the UI, or with")
    print(f"    prefect deployment run rloo/{deployment.name} --param iterations={iterations}", flush=True)
    serve_deployments(deployment, limit=1, print_starting_message=False)
