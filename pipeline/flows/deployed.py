"""The training flow as it is deployed: `rloo serve` and prefect.yaml both point at `train` here.

Its working directory is the project's folder. Parameters are checked by Prefect's server against their types, and by
the pipeline before anything runs; a run that is refused is a Failed one with the reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from prefect.exceptions import CancelledRun
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from pipeline.door import check_project
from pipeline.flows import stopping
from pipeline.flows.settings import settle
from pipeline.heal import tell_healed
from pipeline.orchestration import flow, get_ready
from pipeline.plan import make_plan, stored_options
from pipeline.presets import read_presets
from pipeline.run_lock import run_lock
from pipeline.train import train_windows
from stages.common.params_file import load_params

MESSAGE_CHARACTERS = 500
Positive = Annotated[int, Field(ge=1)]
Preset = Annotated[str, Field(json_schema_extra={"enum": list(read_presets())})]


@flow(name="rloo", flow_run_name="{iterations}-iterations")
def train(
    iterations: Positive = 12,
    preset: Preset | None = None,
    overrides: dict[str, Any] | None = None,
    evaluate_every: Positive | None = None,
    window: Positive | None = None,
) -> None:
    """Bring all stages of a run up to date, in the workspace that this deployment serves.

    Args:
        iterations: Iterations in all; those that are done already stay.
        preset: Method to write into params.yaml first; `rloo preset` lists them.
        overrides: Options to write into params.yaml after that, such as {"score.kl.beta": 0.1}.
        evaluate_every: Evaluate every n-th iteration; as the plan has it if not given.
        window: Iterations of one window; as the plan has it if not given.
    """
    get_ready()
    with told(), run_lock("a run of the deployment"):
        check_project()
        every, size = stored_options()
        plan = make_plan(iterations, evaluate_every or every, window or size)
        tell_healed()
        for key, value in settle(preset, overrides or {}).items():
            get_run_logger().info(f"params.yaml: {key} = {value!r}"[:MESSAGE_CHARACTERS])
        check_rewards()
        train_windows(plan.iterations, plan.evaluate_every, plan.size)


@contextmanager
def told() -> Iterator[None]:
    """Say in the terminal of what serves it that a run begins, and how it ends; its page in Prefect has the rest."""
    run = f"rloo: run {flow_run.name}"
    print(f"{run} ({flow_run.id}) begins", flush=True)
    try:
        yield
    except BaseException as error:
        stopped = isinstance(error, CancelledRun) or stopping.is_stopping(error)
        print(f"{run} is cancelled: {stopping.why()}" if stopped else f"{run} has failed: {error}", flush=True)
        raise
    print(f"{run} is finished", flush=True)


def check_rewards() -> None:
    """Refuse a reward that cannot be called, as `rloo train` does."""
    from stages.score.calling.resident import close_all
    from stages.score.rewards import check_functions

    check_functions(load_params())
    close_all()
