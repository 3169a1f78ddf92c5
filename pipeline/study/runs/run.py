"""One run of a study: the stages of an ordinary run in a folder of their own, iteration after iteration.

The folder's name is a hash of everything the run depends on. A finished run leaves its results under that name and is
not computed again; one that was stopped goes on after its last whole iteration.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.study.runs import costs, workspace
from pipeline.study.runs.settings import Run, Study
from pipeline.study.runs.start import rewarded
from pipeline.study.runs.tables import COSTS, CURVES, OUTCOMES, RUN
from stages.common import paths
from stages.common.files import publish
from stages.common.fingerprint import code_hash, folder_hash
from stages.common.params import Params
from stages.common.tables import write_table

GOLD = "gold"
PROXY = "proxy"
TRAINING = ("rollout", "score", "advantage", "update")
ROOMS = ("prepare", "critic", "offline", "rollout", "score", "advantage", "update", "evaluate", "judge", "common")
CODE = (*(Path("stages") / room for room in ROOMS), Path("pipeline/study/runs"))  # others show in their outputs


@dataclass(frozen=True)
class Job:
    """A run with all that it needs to be computed in another process."""

    study: Study
    run: Run
    key: str

    @property
    def results(self) -> Path:
        return self.study.folder / "runs" / self.key

    @property
    def work(self) -> Path:
        return self.study.folder / "work" / self.key

    @property
    def columns(self) -> dict[str, Any]:
        return {name: getattr(self.run, name) for name in RUN}


def jobs_of(study: Study, method: str) -> list[Job]:
    """The runs of a method; a key changes with params, inputs, code, and with how long and how often."""
    code = [code_hash(folder) for folder in CODE]
    settings = study.settings
    found = []
    for run in study.runs_of(method):
        inputs = [folder_hash(path) if path.is_dir() else _file(path) for path in rewarded(study, run.flips).values()]
        content = [study.params_of(run).model_dump(mode="json"), settings.iterations, settings.evaluate_every]
        text = json.dumps([content, study.methods[method].policy, inputs, code], sort_keys=True)
        found.append(Job(study, run, f"{run.name}-{blake2b(text.encode(), digest_size=8).hexdigest()}"))
    return found


def sweep(jobs: list[Job], method: str) -> None:
    """Remove the working folders of the method's runs that nothing will go on with: params, inputs or code changed."""
    kept = {job.key for job in jobs}
    for folder in (jobs[0].study.folder / "work").glob(f"{method}-beta*"):
        if folder.name not in kept or jobs[0].study.folder.joinpath("runs", folder.name).exists():
            shutil.rmtree(folder)


def _file(path: Path) -> str:
    return folder_hash(path.parent, lambda found: found == path)


def execute(job: Job) -> None:
    """Compute the run and publish its results."""
    params = job.study.params_of(job.run)
    shared = {place: path.resolve() for place, path in rewarded(job.study, job.run.flips).items()}
    results = job.results.resolve()
    offline = job.study.methods[job.run.method].policy
    with workspace.inside(job.work, shared):
        prepare(params)
        policies = train_offline(offline, params) if offline else train(job, params)
        curves = [curve_row(job, name, policies) for name in policies]
        with publish(Path("results")) as scratch:
            scratch.mkdir()
            write_table(pl.DataFrame(curves, schema=CURVES), CURVES, (*RUN, "iteration"), scratch / "curves.parquet")
            write_table(
                outcomes(job, next(reversed(policies))), OUTCOMES, (*RUN, "prompt_id"), scratch / "outcomes.parquet"
            )
            write_table(costs.measured(job.columns, params, offline), COSTS, RUN, scratch / "costs.parquet")
        results.parent.mkdir(parents=True, exist_ok=True)
        Path("results").rename(results)
    shutil.rmtree(job.work)


def prepare(params: Params) -> None:
    """The initial policy, its critic if there is one, and its answers to the held-out prompts."""
    if not done("prepare", paths.INITIAL):
        costs.forget_peak()
        steps = (("prepare", "reference"), ("prepare", "policy"), ("prepare", "acceptance"), ("critic", "initial"))
        costs.note("prepare", sum(workspace.run(stage, name, params) for stage, name in steps))
        workspace.run("evaluate", paths.INITIAL, params)
        mark("prepare", paths.INITIAL)


def done(stage: str, name: str) -> bool:
    return _marker(stage, name).exists()


def mark(stage: str, name: str) -> None:
    """Say that a stage's outputs are whole."""
    with publish(_marker(stage, name)) as scratch:
        scratch.touch()


def _marker(stage: str, name: str) -> Path:
    return Path("done") / f"{stage}-{name}"


def train(job: Job, params: Params) -> dict[str, dict[str, Any]]:
    """All iterations; what there is to say of each evaluated policy beside its evaluation."""
    settings = job.study.settings
    told: dict[str, dict[str, Any]] = {paths.INITIAL: {"tokens": 0, "clipped": None}}
    for number in range(1, settings.iterations + 1):
        name = paths.iteration_name(number)
        if not done("iteration", name):
            costs.forget_peak()
            costs.note(name, sum(workspace.run(stage, name, params) for stage in TRAINING))
            if number % settings.evaluate_every == 0 or number == settings.iterations:
                judged(name, params)
            mark("iteration", name)
            prune(name)
        if paths.evaluation(name).exists():
            told[name] = sampled_until(number)
    return told


def judged(name: str, params: Params) -> None:
    for stage in ("evaluate", "judge"):
        workspace.run(stage, name, params)


def prune(name: str) -> None:
    """Forget the policy that the iteration started from: once the iteration is marked nothing asks for it again."""
    before = paths.previous(name)
    if before != paths.INITIAL:
        for path in (paths.policy(before), paths.optimizer(before).parent, paths.critic(before)):
            shutil.rmtree(path, ignore_errors=True)


def train_offline(name: str, params: Params) -> dict[str, dict[str, Any]]:
    if not done("offline", name):
        costs.forget_peak()
        costs.note("offline", workspace.run("offline", name, params))
        judged(name, params)
        mark("offline", name)
    return {policy: {"tokens": 0, "clipped": None} for policy in (paths.INITIAL, name)}


def sampled_until(number: int) -> dict[str, Any]:
    """Completion tokens sampled so far, and the mean share of clipped tokens.

    The first step of an iteration has ratio 1 and nothing to clip: it is left out of the share.
    """
    names = [paths.iteration_name(one) for one in range(1, number + 1)]
    tokens = sum(int(pl.read_parquet(paths.rollouts(name), columns=["length"]).sum().item()) for name in names)
    steps = pl.concat(pl.read_parquet(paths.steps(name), columns=["step", "clip_low", "clip_high"]) for name in names)
    moved = steps.filter(pl.col("step") > 1)
    return {"tokens": tokens, "clipped": moved.select(pl.col("clip_low") + pl.col("clip_high")).to_series().mean()}


def curve_row(job: Job, name: str, policies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What an evaluated policy came to."""
    found = json.loads(paths.evaluation(name).read_text(encoding="utf-8"))
    verdict = json.loads(paths.verdict(name).read_text(encoding="utf-8")) if name != paths.INITIAL else {}
    return {
        **job.columns,
        "iteration": paths.iteration_number(name) if paths.is_iteration(name) else -1,
        "final": name == next(reversed(policies)),
        "proxy": found[f"rewards/{PROXY}/mean"],
        "gold": found[f"rewards/{GOLD}/mean"],
        "length": found["completions/mean_length"],
        **{column: found[column] for column in ("kl", "entropy")},
        **{column: verdict.get(column) for column in ("win_rate", "length_controlled_win_rate")},
        **policies[name],
    }


def outcomes(job: Job, name: str) -> pl.DataFrame:
    """By prompt, the mean over samples; pairs without an outcome are left out."""
    table = pl.read_parquet(paths.judged(name)).drop_nulls("outcome")
    by_prompt = table.group_by("prompt_id", maintain_order=True).agg(pl.col("outcome").mean())
    keys = [pl.lit(value).alias(column) for column, value in job.columns.items()]
    return by_prompt.select(*keys, "prompt_id", "outcome")


def results_of(jobs: list[Job]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each table of the results, over all runs."""
    for name in ("curves", "outcomes", "costs"):
        yield name, pl.concat(pl.read_parquet(job.results / f"{name}.parquet") for job in jobs)
