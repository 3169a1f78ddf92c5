"""`rloo train`: a Prefect flow that brings every stage of the plan up to date through DVC, one task per stage.

The flow holds no science and no state of its own: what it does is what `dvc repro` does, with a warm worker, progress,
and tables for people. Either can finish what the other began.
"""

from pipeline import artifacts
from pipeline.door import ALWAYS_RUN, Outcome, StageId, check_project, stage_id
from pipeline.flows.reporting import begin
from pipeline.flows.server import Api
from pipeline.heal import tell_healed
from pipeline.orchestration import brought_up, flow, get_ready, reproduced, task, working
from pipeline.plan import WINDOW, Plan, read_plan, stored_options
from pipeline.screen import Screen
from pipeline.watch import Watch
from pipeline.windows.extend import set_run
from pipeline.windows.layout import all_windows
from pipeline.windows.lock import outs, read_lock
from pipeline.windows.made_of import Facts, inputs
from pipeline.windows.walk import windows_to_run
from pipeline.worker import Worker, resident_worker
from stages.common import paths
from stages.common.params_file import load_params
from stages.common.paths import INITIAL, is_iteration


@task(name="stage", task_run_name="{dvc_name}")
def run_stage(dvc_name: str, last: str, number: int) -> Outcome:
    """One stage of dvc.yaml; `number` is its place in the run, for the progress bar."""
    stage = stage_id(dvc_name, last)
    outcome = reproduced(stage, number)
    Screen.current().finished(stage, outcome)
    return outcome


def preparation() -> list[str]:
    """The stages before the first iteration, in the order of the data flow."""
    reward_models = load_params().reward_models
    return [
        *("prepare_sources", "prepare_model", "prepare_reference", "prepare_prompts", "prepare_options"),
        *("sft_demonstrations", "sft_policy"),
        *(f"{stage}@{name}" for name in reward_models for stage in ("preferences", "reward_model")),
        *("prepare_policy", "critic_initial", "prepare_acceptance"),
    ]


def comparators() -> list[str]:
    """The stages of the policies that are trained on pairs alone."""
    parts = ("offline", "evaluate_offline", "judge_offline")
    return [f"{stage}@{name}" for name in load_params().offline for stage in parts]


def stages_of_the_run(plan: Plan) -> list[StageId]:
    """The stages that all windows share: preparation, the initial policy's evaluation, comparators."""
    return [stage_id(name, plan.last) for name in [*preparation(), *plan.stages_of(INITIAL), *comparators()]]


def stages_of_the_window(plan: Plan) -> list[StageId]:
    """What the window starts from, iteration after iteration, history."""
    names = [f"window_entry@{name}" for name in plan.entry]
    for iteration in plan.names:
        names += plan.stages_of(iteration)
    return [stage_id(name, plan.last) for name in [*names, "history"]]


def stages_in_order(plan: Plan) -> list[StageId]:
    """All stages that dvc.yaml has while the window is open, as they run."""
    return stages_of_the_run(plan) + stages_of_the_window(plan)


@flow(name="rloo-train", flow_run_name="{iterations}-iterations")
def train_flow(iterations: int, evaluate_every: int, window: int = WINDOW) -> None:
    """Train for `iterations` iterations in all, window after window; what is up to date is not computed again."""
    train_windows(iterations, evaluate_every, window)


def train_windows(iterations: int, evaluate_every: int, window: int) -> None:
    """The same inside of a flow."""
    plan = set_run(iterations, evaluate_every, window)
    with resident_worker() as worker:
        prepared = prepare(plan, worker) if len(all_windows()) > 1 else None  # which are up to date depends on it
        for opened in windows_to_run(tell=print):
            now = state_of_sources(opened, worker) if prepared else None
            train_window(opened, worker, prepared=now is not None and now == prepared)
            prepared = now  # those of the run are up to date now, in any case


def prepare(plan: Plan, worker: Worker) -> Facts:
    """Bring what all windows share up to date; what it was made of."""
    now = inputs()
    with working(worker):
        run_stages(stages_of_the_run(plan), plan, "all windows")
    return {**now, **sources()}


def state_of_sources(plan: Plan, worker: Worker) -> Facts:
    """The same as it is now: a run of many windows is long, and users' files may change while it is under way."""
    now = inputs()
    with working(worker):
        run_stages([stage_id(ALWAYS_RUN, plan.last)], plan, "all windows")
    return {**now, **sources()}


def sources() -> Facts:
    """Hashes of users' files, as `prepare_sources` found them last."""
    return {path: out["md5"] for path, out in outs(read_lock(), ALWAYS_RUN).items() if path == str(paths.SOURCES)}


def train_window(plan: Plan, worker: Worker, *, prepared: bool = False) -> None:
    """Bring the open window up to date, in a flow run of its own; if `prepared`, what all windows share is."""
    with working(worker):
        window_flow(plan.window, plan.names[0], plan.last, prepared)


@flow(name="rloo-window", flow_run_name="{window}: {first} to {last}")
def window_flow(window: str, first: str, last: str, prepared: bool) -> None:
    """The stages of the open window, which is the plan on disk, a task each."""
    plan = read_plan()
    run_stages(stages_of_the_window(plan) if prepared else stages_in_order(plan), plan, plan.title)
    artifacts.history()


def run_stages(stages: list[StageId], plan: Plan, of: str) -> None:
    """Bring stages of the open window up to date, one after the other; `of` what they are, for the screen."""
    watch = Watch(plan)
    with Screen(len(stages), of) as screen:
        for number, stage in enumerate(stages):
            if brought_up(run_stage(stage.dvc_name, plan.last, number)) == "computed":
                report(stage, screen, watch)


def report(stage: StageId, screen: Screen, watch: Watch) -> None:
    """Say what an iteration or an evaluation that was just computed came to, and whether that is a reason to stop."""
    if stage.stage == "update":
        screen.iteration(stage.name)
        artifacts.iteration(stage.name)
    elif stage.stage == "evaluate":
        screen.evaluation(stage.name)
    elif stage.stage == "judge":
        screen.verdict(stage.name)
    of_iteration = is_iteration(stage.name)  # alarms compare an iteration with those before it
    if of_iteration and stage.stage in ("update", "judge"):  # an evaluation is followed by its verdict
        alarms = watch.look(stage.name, evaluated=stage.stage == "judge")
        screen.alarms(stage.name, alarms)
        artifacts.metrics(watch.rows)
        artifacts.alarms(stage.name, alarms)
        watch.stop_at(stage.name, alarms)


def train(iterations: int | None, api: Api) -> Plan:
    """Run the flow for the plan as it stands, or for another number of iterations; the last window, which is open.

    The caller has the run lock.
    """
    check_project()
    get_ready()
    tell_healed()
    plan = read_plan()
    begin(api)
    train_flow(plan.iterations if iterations is None else iterations, plan.evaluate_every, stored_options()[1])
    return read_plan()
