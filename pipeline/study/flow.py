"""`rloo study NAME`: a Prefect flow that brings every DVC stage of a study up to date, one task per stage."""

from rich.console import Console
from rich.markdown import Markdown

from pipeline import artifacts
from pipeline.door import Outcome, StageId, check_project
from pipeline.flows.reporting import begin, reporting
from pipeline.heal import tell_healed
from pipeline.orchestration import brought_up, flow, get_ready, reproduced, task
from pipeline.run_lock import run_lock
from pipeline.screen import Screen
from pipeline.study.page.files import check_libraries, report_file
from pipeline.study.runs.settings import STUDIES, Study, read_study
from stages.common.journal import seconds_of

PAGE_WIDTH = 110  # columns; in a narrower terminal the page's tables cannot be read


def stages_of(study: Study) -> list[StageId]:
    """All stages of the study's dvc.yaml, in the order of the data flow."""
    named = [("start", ""), ("sft", "")]
    named += [("reward_model", flips) for flips in study.settings.flips]
    named += [("method", method) for method in study.methods]
    return [_stage(study, part, name) for part, name in [*named, ("report", "")]]


def _stage(study: Study, part: str, name: str) -> StageId:
    """A stage of the study's dvc.yaml; its journal has the study's name in it."""
    target = f"{part}@{name}" if name else part
    journal = "-".join(["study", study.name, *([name] if name else [])])
    return StageId(f"{STUDIES / study.name / 'dvc.yaml'}:{target}", part, journal)


@task(name="study stage", task_run_name="{title}")
def run_stage(stage: StageId, title: str, number: int) -> Outcome:
    """One stage; `number` is its place in the study, for the progress bar."""
    outcome = reproduced(stage, number)
    seconds = seconds_of(stage.stage, stage.name) or 0.0
    told = f"{seconds:6.1f} s" if outcome == "computed" else f"{outcome}"
    Screen.current().console.print(f"{title:32} {told}", highlight=False)
    return outcome


@flow(name="rloo-study", flow_run_name="{name}")
def study_flow(name: str) -> None:
    """Run what of the study is not there yet."""
    stages = stages_of(read_study(name))
    with Screen(len(stages), name) as screen:
        for number, stage in enumerate(stages):
            title = stage.dvc_name.partition(":")[2]
            brought_up(run_stage(stage, title, number))
        screen.progress.refresh()
    artifacts.page(report_file(read_study(name)), f"study-{name}")


def run_study(console: Console, name: str) -> None:
    """Run the flow and show the page."""
    check_project()
    study = read_study(name)
    check_libraries()
    get_ready()
    with run_lock(f"rloo study {name}"), reporting() as api:
        tell_healed()
        begin(api)
        study_flow(name)
    if console.width >= PAGE_WIDTH:
        console.print(Markdown(report_file(study).read_text(encoding="utf-8")))
    console.print(f"Tables, plots and page: {report_file(study).parent}", highlight=False)
