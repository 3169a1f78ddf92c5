"""`rloo check`: is the run that params.yaml describes going to work, and how long will it take?

Options first, then the ordinary stages on few prompts in a folder of their own, then a page of what was found. Nothing
of the project is changed.
"""

import os
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console

from pipeline.check import current, examine, page, resources
from pipeline.check.dry_run import DryRun, run
from pipeline.check.estimate import Line, estimate
from pipeline.check.findings import Finding, attempt, worst
from pipeline.check.probe import read_prompts
from pipeline.check.reduced import reduced, rooted
from pipeline.check.workspace import inside, place, scratch_project, write_params
from pipeline.plan import Plan, read_plan
from stages.common import paths
from stages.common.checked import manifest_of, reading
from stages.common.cores import available_cores
from stages.common.journal import QUIET_VARIABLE
from stages.common.params import Params
from stages.common.params_file import load_params
from stages.common.paths import REWARD_CACHE
from stages.score.calling.resident import close_all


def check(console: Console, prompts: int, *, keep: bool, out: Path | None) -> bool:
    """Check, print the page, write it to `out`; whether there is no error."""
    findings: list[Finding] = []
    plan = attempt(findings, "plan", lambda: read_plan().whole)  # the run, not the open window
    params = attempt(findings, "params", load_params)
    if params is None:
        content: list[page.Section] = [("Findings", page.findings(findings))]
    else:
        content = dry_run(console, params, plan, findings, prompts, keep=keep)
    last = f"{counted(findings, 'error')}, {counted(findings, 'warning')}, in {seconds():.1f} s"
    if worst(findings) == "error" and not keep:
        last += "; `--keep` leaves the dry run's files, logs of reward functions among them, in data/check"
    page.show(console, content, last)
    if out is not None:
        page.write(out, content, last)
    return worst(findings) != "error"


def dry_run(
    console: Console, params: Params, plan: Plan | None, findings: list[Finding], prompts: int, *, keep: bool
) -> list[page.Section]:
    """The sections of the page; what goes wrong is among the findings."""
    free, load = resources.free_memory(params.compute.device), resources.load(threads(params))
    os.environ[QUIET_VARIABLE] = "1"
    with scratch_project(keep=keep) as folder, console.status("") as status:

        def say(what: str) -> None:
            status.update(f"{seconds():5.1f} s  {what}")

        there = rooted(params, folder)
        work = DryRun(there, reduced(there, prompts), findings, say)
        write_params(work.used.model_dump(mode="json"), folder)
        with inside(folder):
            known = work.stage("prepare", "sources", there)
        if known:
            link_reusable(work, folder)
        with inside(folder):
            try:
                run(work)
                lines = examined(work, plan, free, load)
            finally:
                close_all()  # processes of reward functions, whose working folder goes
            keep_logs(findings)
            return page.sections(work, lines)


def keep_logs(findings: list[Finding]) -> None:
    """What functions printed stays when the folder goes, and findings say where: the cache is the project's own."""
    logs, kept = paths.LOGS / "rewards", REWARD_CACHE.parent / "check"
    for log in sorted(logs.glob("*.log")):
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept / log.name)
    findings[:] = [replace(one, text=one.text.replace(f"{logs}/", f"{kept}/")) for one in findings]


def counted(findings: list[Finding], level: str) -> str:
    count = sum(one.level == level for one in findings)
    return f"{count} {level}{'' if count == 1 else 's'}"


def link_reusable(work: DryRun, folder: Path) -> None:
    """Link what the project has made already and what is what params.yaml asks for now; what is damaged is an error."""
    work.say("what is there already")
    for path in current.reusable(work.params, folder):
        if attempt(work.findings, str(path), partial(verified, path)) is not None:
            work.reused.append(path)
            for one in {path, manifest_of(path)}:
                if not (folder / one).exists():
                    place(one, folder / one)


def verified(path: Path) -> Path:
    """The path, if every file is what its stage wrote."""
    with reading(path):
        return path


def threads(params: Params) -> int:
    return available_cores() if params.compute.threads == "auto" else params.compute.threads


def seconds() -> float:
    """Since this process was started: what a user waits for, imports included."""
    return time.time() - float(psutil.Process().create_time())


def examined(work: DryRun, plan: Plan | None, free: int, load: Finding) -> list[Line]:
    """Add to the findings what the dry run shows; the lines of the estimate."""
    examine.examine(work)
    if work.rollout is not None:
        work.facts["longest"] = max(map(len, read_prompts("train")["prompt_ids"]))
        work.findings.append(resources.memory(work, free))
    work.findings.append(load)
    if work.params.rollout.dynamic_sampling is not None:
        work.note("ok", "rollout.dynamic_sampling", "off in the dry run")
    if plan is None or not work.did("update i0001"):
        return []
    work.findings.append(resources.disk(work, plan.iterations, shutil.disk_usage(paths.DATA).free))
    return estimate(work, plan)
