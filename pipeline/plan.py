"""The plan: which iterations there are and which of them are evaluated. `dvc.yaml` unrolls its loop over this file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.paths import INITIAL, PLAN, iteration_name, iteration_number

PLAN_FILE = PLAN
HEADER = "# Written by `rloo plan`; dvc.yaml unrolls its stages over it.\n"


@dataclass(frozen=True)
class Plan:
    """`iterations` after the initial policy; every `evaluate_every`-th, the first and the last are evaluated.

    All evaluated ones but the initial policy are diagnosed, and judged against it, as well.
    """

    iterations: int
    evaluate_every: int

    @property
    def names(self) -> list[str]:
        return [iteration_name(number) for number in range(1, self.iterations + 1)]

    @property
    def last(self) -> str:
        return iteration_name(self.iterations)

    @property
    def evaluated(self) -> list[str]:
        numbers = {*range(0, self.iterations + 1, self.evaluate_every), self.iterations}
        return [iteration_name(number) for number in sorted(numbers)]

    @property
    def diagnosed(self) -> dict[str, dict[str, str]]:
        """With the iteration whose policy sampled, as in `iterations`."""
        names = [name for name in self.evaluated if name != INITIAL]
        return {name: {"previous": iteration_name(iteration_number(name) - 1)} for name in names}

    def stages_of(self, name: str) -> list[str]:
        """The DVC stages of an iteration, in the order of the data flow."""
        before = ["rollout", "score", "advantage", *(["diagnose"] if name in self.diagnosed else []), "update"]
        training = [] if name == INITIAL else before  # diagnose looks at the policy that update starts from
        after = ["evaluate"] if name in self.evaluated else []
        after += ["judge"] if name in self.diagnosed else []
        return [f"{stage}@{name}" for stage in training + after]

    def as_vars(self) -> dict[str, Any]:
        """What dvc.yaml reads."""
        return {
            "evaluate_every": self.evaluate_every,
            "iterations": {name: {"previous": iteration_name(iteration_number(name) - 1)} for name in self.names},
            "evaluated": self.evaluated,
            "diagnosed": self.diagnosed,
            "last": self.last,
        }


def make_plan(iterations: int, evaluate_every: int) -> Plan:
    if iterations < 1 or evaluate_every < 1:
        raise StageError(
            f"a plan has at least one iteration, and evaluates every one or more: {iterations}, {evaluate_every}"
        )
    return Plan(iterations, evaluate_every)


def write_plan(plan: Plan, path: Path = PLAN_FILE) -> None:
    text = HEADER + yaml.safe_dump(plan.as_vars(), sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    with publish(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def stored_evaluate_every(path: Path = PLAN_FILE, default: int = 5) -> int:
    """How often the plan on disk evaluates; the default where there is none, or none that can be read."""
    try:
        return int(yaml.safe_load(path.read_text(encoding="utf-8"))["evaluate_every"])
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        return default


def read_plan(path: Path = PLAN_FILE) -> Plan:
    if not path.exists():
        raise StageError(f"{path} does not exist; `rloo plan 12` writes a plan of 12 iterations")
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        plan = make_plan(iteration_number(found["last"]), int(found["evaluate_every"]))
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise StageError(f"{path}: not a plan ({error!r}); `rloo plan 12` writes one") from None
    if plan.as_vars() != found:
        raise StageError(f"{path}: edited by hand, and no longer consistent; `rloo plan {plan.iterations}` rewrites it")
    return plan
