"""What `rloo train` shows: a line for each iteration and evaluation, and how far it is.

That is two progress bars in a terminal; elsewhere (a file, a log of a scheduler) a line now and then.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ClassVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from pipeline.door import ALWAYS_RUN, Outcome, StageId
from pipeline.follow import Record
from pipeline.show.offline import how_trained
from stages.common import paths
from stages.common.journal import seconds_of
from stages.common.params_file import load_params
from stages.common.paths import is_iteration, iteration_number
from stages.common.tables import PROMPTS, read_table
from stages.history.alarms import Alarm
from stages.history.rows import training_row

LINE_SECONDS = 30.0  # between two lines on how far a stage is, where there is no terminal
NAMED = 6  # stages that the summary names; more are counted


class Screen:
    """Progress of the stages `of` a window, say. The one that runs is followed through its journal."""

    _current: ClassVar["Screen | None"] = None

    def __init__(self, total: int, of: str = "the run") -> None:
        self.of = of
        self.console = Console(file=sys.stdout)  # bound now: DVC's own output is redirected while a stage runs
        self.progress = Progress(
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.run = self.progress.add_task(of.ljust(18), total=total, detail="")
        self.outcomes: dict[str, Outcome] = {}

    @classmethod
    def current(cls) -> "Screen":
        if cls._current is None:
            raise RuntimeError("no flow of `rloo train` is running")
        return cls._current

    def __enter__(self) -> "Screen":
        type(self)._current = self
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        type(self)._current = None
        if self.outcomes:
            self.console.print(self.summary(), highlight=False)

    @contextmanager
    def stage(self, stage: StageId, number: int) -> Iterator[Callable[[list[Record]], None]]:
        """Gives a function that takes new records of the stage's journal: a bar, or lines, shows how far it is."""
        title = stage.dvc_name.rpartition(":")[2]
        bar = self.progress.add_task(title.ljust(18), total=None, detail="")
        told = time.monotonic()

        def show(records: list[Record]) -> None:
            nonlocal told
            newest = [record for record in records if record["event"] in ("loading", "progress")][-1:]
            for record in newest:
                if record["event"] == "loading":
                    self.progress.update(bar, detail="loading libraries")
                    continue
                detail = f"{record['done']}/{record['total']} {record['unit']}"
                self.progress.update(bar, completed=record["done"], total=record["total"], detail=detail)
                if not self.console.is_terminal and time.monotonic() - told > LINE_SECONDS:
                    told = time.monotonic()
                    self.console.print(f"{title:18} {detail}", highlight=False)

        try:
            yield show
        finally:
            self.progress.remove_task(bar)
            self.progress.update(self.run, completed=number + 1)

    def finished(self, stage: StageId, outcome: Outcome) -> None:
        """Stages that were computed speak through their iteration's line; the others are counted. Looking at users'
        files is done each time, and is neither.
        """
        if stage.dvc_name == ALWAYS_RUN:
            return
        self.outcomes[stage.dvc_name] = outcome
        if outcome == "computed":
            seconds = seconds_of(stage.stage, stage.name)
            if stage.stage in ("prepare", "sft", "preferences", "reward_model", "offline", "history"):
                self.console.print(f"{stage.dvc_name:18} {seconds:5.1f} s")
        elif outcome == "restored":
            self.console.print(f"{stage.dvc_name:18} restored from the run cache", highlight=False)
        kept = sum(outcome != "computed" for outcome in self.outcomes.values())
        if kept:
            self.progress.update(self.run, detail=f"{kept} {'stage was' if kept == 1 else 'stages were'} up to date")

    def again(self, reason: str) -> None:
        """A stage has failed in a way that may be gone at the next try."""
        self.console.print(f"[bold red]{escape(reason)}[/bold red]; it is tried again", highlight=False)

    def summary(self) -> str:
        """Which stages were computed, and which were not."""
        return f"Stages of {self.of}: " + "; ".join(
            f"{len(names)} {told}{_listed(names) if named else ''}"
            for outcome, told, named in (
                ("computed", "computed", True),
                ("restored", "restored from the run cache", True),
                ("unchanged", "unchanged", False),
            )
            if (names := [name for name, found in self.outcomes.items() if found == outcome])
        )

    def iteration(self, name: str) -> None:
        row = training_row(name, read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)))
        reward = "none " if row["reward"] is None else f"{row['reward']:z.3f}"
        kl = f"{'-':>6}" if row["kl"] is None else f"{row['kl']:z6.3f}"
        seconds = sum(seconds_of(stage, name) or 0.0 for stage in ("rollout", "score", "advantage", "update"))
        self.console.print(
            f"{name}  reward {reward}  KL {kl}  length "
            f"{row['completions/mean_length']:5.1f}  cut off {row['completions/clipped_ratio']:4.0%}  "
            f"mixed groups {row['groups/mixed']:4.0%}  grad {row['grad_norm']:6.3f}  {seconds:5.1f} s"
        )
        if row["grad_norm"] == 0:
            self.console.print(f"{name}  no row has a gradient: the policy is the one before", highlight=False)

    def evaluation(self, name: str) -> None:
        found = json.loads(paths.evaluation(name).read_text(encoding="utf-8"))
        self.console.print(
            f"[bold]{name}  held-out reward {found['reward']:z.3f} "
            f"\\[{found['reward_low']:z.3f}, {found['reward_high']:z.3f}][/bold] "
            f"after {_training(name)}, {found['n_prompts']} prompts, "
            f"length {found['completions/mean_length']:.1f}"
        )

    def verdict(self, name: str) -> None:
        """Nothing without a judge."""
        found = json.loads(paths.verdict(name).read_text(encoding="utf-8"))
        if found:
            self.console.print(
                f"[bold]{name}  win-rate {found['win_rate']:.3f} "
                f"\\[{found['win_rate_low']:.3f}, {found['win_rate_high']:.3f}][/bold] against the initial policy, "
                f"{found['length_controlled_win_rate']:.3f} at equal length, {found['n_prompts']} prompts"
            )

    def alarms(self, name: str, alarms: list[Alarm]) -> None:
        for alarm in alarms:
            self.console.print(f"[bold red]{name}  alarm, {alarm.name}: {alarm.text}[/bold red]")


def _listed(names: list[str]) -> str:
    """The names, if they are few."""
    return f" ({', '.join(names)})" if len(names) <= NAMED else ""


def _training(name: str) -> str:
    """What came before an evaluation."""
    if is_iteration(name):
        return f"{iteration_number(name)} iterations"
    return how_trained(name, load_params().offline[name])
