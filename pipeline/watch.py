"""Alarms while a run is under way: after each iteration and evaluation, and whether to go on."""

from typing import Any

from pipeline.plan import Plan
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.tables import PROMPTS, read_table
from stages.history.alarms import Alarm, alarms_of
from stages.history.past import past_rows
from stages.history.rows import history_row


class AlarmError(StageError):
    """A run that was to stop at an alarm; what is done stays, and the same command goes on past it."""


class Watch:
    """Keeps the history's rows of this run, so that each iteration is read once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.options = load_params().alarms
        self.rows: dict[int, dict[str, Any]] = {}
        self.told: set[tuple[str, str]] = set()

    def look(self, name: str, *, evaluated: bool) -> list[Alarm]:
        """Alarms of an iteration that has just been trained, or evaluated and judged; each is told once."""
        found = [alarm for alarm in self._alarms(name, evaluated=evaluated) if (name, alarm.name) not in self.told]
        self.told |= {(name, alarm.name) for alarm in found}
        return found

    def _alarms(self, name: str, *, evaluated: bool) -> list[Alarm]:
        """Evaluations count where the plan has them and this run has come by: files of another run may lie there."""
        prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
        last = paths.iteration_number(name)
        if not self.rows:  # of a long run only the open window is read; the history has what came before
            self.rows = dict(enumerate(past_rows(next(iter(self.plan.entry), None))))
        for number in range(last + 1):
            if number not in self.rows or number == last:
                one = paths.iteration_name(number)
                counts = evaluated if number == last else one in self.plan.evaluated
                self.rows[number] = history_row(one, prompts, evaluated=counts)
        return alarms_of([self.rows[number] for number in range(last + 1)], self.options)

    def stop_at(self, name: str, alarms: list[Alarm]) -> None:
        """Raise if one of the alarms is to end the run."""
        stopping = [alarm for alarm in alarms if alarm.name in self.options.stop]
        if stopping:
            texts = "; ".join(f"{alarm.name}: {alarm.text}" for alarm in stopping)
            raise AlarmError(f"{name}: {texts}. alarms.stop in params.yaml ends the run here; run again to go on")
