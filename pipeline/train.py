"""`rloo train`: a Prefect flow that brings every stage of the plan up to date through DVC, one task per stage.

The flow holds no science and no state of its own: what it does is what `dvc repro` does, with a warm worker, progress,
and tables for people. Either can finish what the other began.
"""

from pipeline import artifacts
from pipeline.door import Outcome, StageId, check_project, stage_id
from pipeline.heal import tell_healed
from pipeline.orchestration import flow, get_ready, reproduced, task
from pipeline.plan import Plan, make_plan, read_plan, write_plan
from pipeline.run_lock import run_lock
from pipeline.screen import Screen
from pipeline.watch import Watch
from pipeline.worker import Worker, resident_worker
from stages.common.params_file import load_params
from stages.common.paths import INITIAL, is_iteration


@task(name="stage", task_run_name="{dvc_name}", persist_result=False)
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


def stages_in_order(plan: Plan) -> list[StageId]:
    """All stages of the plan as they run: preparation, comparators, iteration after iteration, history."""
    names = [*preparation(), *plan.stages_of(INITIAL), *comparators()]
    names += [f"window_entry@{name}" for name in plan.entry]
    for iteration in plan.names:
        names += plan.stages_of(iteration)
    return [stage_id(name, plan.last) for name in [*names, "history"]]


@flow(name="rloo-train", flow_run_name="{iterations}-iterations", persist_result=False)
def train_flow(iterations: int, evaluate_every: int) -> None:
    """Train for `iterations` iterations in all; what is up to date already is not computed again."""
    plan = make_plan(iterations, evaluate_every)
    write_plan(plan)
    with resident_worker() as worker:
        train_window(plan, worker)


def train_window(plan: Plan, worker: Worker) -> None:
    """Bring every stage of the open window up to date."""
    stages = stages_in_order(plan)
    watch = Watch(plan)
    with Screen(total=len(stages)) as screen:
        for number, stage in enumerate(stages):
            worker.ensure()
            outcome = run_stage(stage.dvc_name, plan.last, number)
            if outcome == "computed":
                report(stage, screen, watch)
    artifacts.history()


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
        artifacts.alarms(stage.name, alarms)
        watch.stop_at(stage.name, alarms)


def train(iterations: int | None, wait: bool = False) -> Plan:
    """Run the flow for the plan as it stands, or for another number of iterations; with `wait`, after another run."""
    check_project()
    with run_lock("rloo train", wait):
        get_ready()
        tell_healed()
        plan = read_plan()
        if iterations is not None:
            plan = make_plan(iterations, plan.evaluate_every)
        train_flow(plan.iterations, plan.evaluate_every)
    return plan
