"""What `rloo train` shows in the terminal: two progress bars, and a line for each iteration and evaluation."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from pipeline.door import ALWAYS_RUN, Outcome, StageId
from pipeline.follow import followed
from pipeline.show.offline import how_trained
from stages.common import paths
from stages.common.journal import seconds_of
from stages.common.params_file import load_params
from stages.common.paths import is_iteration, iteration_number
from stages.common.tables import PROMPTS, read_table
from stages.history.alarms import Alarm
from stages.history.rows import training_row

POLL_SECONDS = 0.5


class Screen:
    """Progress of one flow run. The stage that runs is followed through its journal."""

    _current: ClassVar["Screen | None"] = None

    def __init__(self, total: int) -> None:
        self.console = Console(file=sys.stdout)  # bound now: DVC's own output is redirected while a stage runs
        self.progress = Progress(
            TextColumn("{task.description}", table_column=None),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self.run = self.progress.add_task("run".ljust(18), total=total, detail="")
        self.found: list[str] = []

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

    @contextmanager
    def stage(self, stage: StageId, number: int) -> Iterator[None]:
        """A bar that follows the stage's journal while the block runs."""
        bar = self.progress.add_task(stage.dvc_name.rpartition(":")[2].ljust(18), total=None, detail="")

        def show(record: dict[str, Any]) -> None:
            detail = f"{record['done']}/{record['total']} {record['unit']}"
            self.progress.update(bar, completed=record["done"], total=record["total"], detail=detail)

        try:
            with followed(stage, POLL_SECONDS, show):
                yield
        finally:
            self.progress.remove_task(bar)
            self.progress.update(self.run, completed=number + 1)

    def finished(self, stage: StageId, outcome: Outcome) -> None:
        """Stages that were computed speak through their iteration's line; the others are counted. Looking at users'
        files is done each time, and is neither.
        """
        if stage.dvc_name == ALWAYS_RUN:
            return
        if outcome == "computed":
            seconds = seconds_of(stage.stage, stage.name)
            if stage.stage in ("prepare", "sft", "preferences", "reward_model", "offline", "history"):
                self.console.print(f"{stage.dvc_name:18} {seconds:5.1f} s")
        else:
            self.found.append(stage.dvc_name)
            self.progress.update(self.run, detail=f"{len(self.found)} stages were up to date")

    def iteration(self, name: str) -> None:
        row = training_row(name, read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)))
        reward = "none " if row["reward"] is None else f"{row['reward']:.3f}"
        kl = f"{'-':>6}" if row["kl"] is None else f"{row['kl']:6.3f}"
        seconds = sum(seconds_of(stage, name) or 0.0 for stage in ("rollout", "score", "advantage", "update"))
        self.console.print(
            f"{name}  reward {reward}  KL {kl}  length "
            f"{row['completions/mean_length']:5.1f}  cut off {row['completions/clipped_ratio']:4.0%}  "
            f"mixed groups {row['groups/mixed']:4.0%}  grad {row['grad_norm']:6.3f}  {seconds:5.1f} s"
        )

    def evaluation(self, name: str) -> None:
        found = json.loads(paths.evaluation(name).read_text(encoding="utf-8"))
        self.console.print(
            f"[bold]{name}  held-out reward {found['reward']:.3f} "
            f"\\[{found['reward_low']:.3f}, {found['reward_high']:.3f}][/bold] "
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


def _training(name: str) -> str:
    """What came before an evaluation."""
    if is_iteration(name):
        return f"{iteration_number(name)} iterations"
    return how_trained(name, load_params().offline[name])
