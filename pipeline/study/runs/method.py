"""The runs of one method, several at a time, each in a process of its own."""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import psutil

from pipeline.stage import exit_with_parent
from pipeline.study.runs.run import Job, execute, jobs_of, results_of, sweep
from pipeline.study.runs.settings import Study
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.journal import QUIET_VARIABLE, Journal

PRELOADED = ["pipeline.study.runs.run", "stages.entry", "stages.common.policy"]


def run_method(study: Study, method: str, journal: Journal) -> None:
    """Compute what is not there yet, and publish the tables of all runs."""
    jobs = jobs_of(study, method)
    sweep(jobs, method)
    missing = [job for job in jobs if not job.results.exists()]
    if missing:
        compute(missing, study.settings.processes, journal)
    with publish(study.folder / "methods" / method) as scratch:
        scratch.mkdir()
        for name, table in results_of(jobs):
            table.write_parquet(scratch / f"{name}.parquet")
    journal.say(f"{len(jobs)} runs, {len(missing)} of them computed now")


def compute(jobs: list[Job], processes: int, journal: Journal) -> None:
    """All runs; the first that fails ends the others, which go on where they were when the stage runs again."""
    with pool_of(processes) as pool:
        futures = {pool.submit(execute, job): job for job in jobs}
        for done, future in enumerate(as_completed(futures), start=1):
            name = futures[future].run.name
            try:
                future.result()
            except StageError as error:
                raise StageError(f"{name}: {error}") from error
            except BrokenProcessPool:
                raise StageError(
                    "the process of a run was killed, for lack of memory perhaps: lower `processes` in settings.yaml"
                ) from None
            journal.progress(done, len(jobs), "runs")


def start_child() -> None:
    """The imports that were forked are left out of every collection from now on: they would take most of its time."""
    exit_with_parent()
    gc.freeze()


@contextmanager
def pool_of(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A fresh process for each run, so that its memory is its own; imports are done once and forked."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    os.environ[QUIET_VARIABLE] = "1"
    os.environ["POLARS_MAX_THREADS"] = "1"  # runs share the cores among them
    pool = ProcessPoolExecutor(processes, context, initializer=start_child, max_tasks_per_child=1)
    try:
        yield pool
    except BaseException:
        for child in psutil.Process().children(recursive=True):
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
