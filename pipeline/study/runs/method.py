"""The runs of one method, several at a time, each in a process of its own."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed

from pipeline.stage import exit_with_parent
from pipeline.study.runs.run import Job, execute, jobs_of, results_of
from pipeline.study.runs.settings import Study
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.journal import QUIET_VARIABLE, Journal


def run_method(study: Study, method: str, journal: Journal) -> None:
    """Compute what is not there yet, and publish the tables of all runs."""
    jobs = jobs_of(study, method)
    missing = [job for job in jobs if not job.results.exists()]
    if missing:
        compute(missing, study.settings.processes, journal)
    with publish(study.folder / "methods" / method) as scratch:
        scratch.mkdir()
        for name, table in results_of(jobs):
            table.write_parquet(scratch / f"{name}.parquet")
    journal.say(f"{len(jobs)} runs, {len(missing)} of them computed now")


def compute(jobs: list[Job], processes: int, journal: Journal) -> None:
    """A fresh process for each run, so that its peak memory is its own; imports are done once and forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline.study.runs.run", "stages.entry", "stages.common.policy"])
    os.environ[QUIET_VARIABLE] = "1"
    os.environ["POLARS_MAX_THREADS"] = "1"  # runs share the cores among them
    with ProcessPoolExecutor(processes, context, initializer=exit_with_parent, max_tasks_per_child=1) as pool:
        futures = {pool.submit(execute, job): job for job in jobs}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                try:
                    future.result()
                except StageError as error:
                    raise StageError(f"{futures[future].run.name}: {error}") from error
                journal.progress(done, len(jobs), "runs")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
