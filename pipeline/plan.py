"""The plan: which iterations there are and which of them are evaluated. `dvc.yaml` unrolls its loop over this file.

DVC reads and writes the whole lock for each stage it runs, so the plan holds a window of iterations and the lock stays
short. A longer run is a chain of windows (`pipeline/windows/`): one is open, and is what `pipeline/plan.yaml` and
`dvc.lock` stand for; finished ones keep theirs.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.paths import INITIAL, PLAN, iteration_name, iteration_number

PLAN_FILE = PLAN
HEADER = "# Written by `rloo plan`; dvc.yaml unrolls its stages over it.\n"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of many windows there are many plans
WINDOW = 20
EVALUATE_EVERY = 5


@dataclass(frozen=True)
class Plan:
    """`iterations` after the initial policy, of which this window has `size` at most, from `first` on.

    Every `evaluate_every`-th, the initial policy and the last of all are evaluated. All evaluated ones but the initial
    policy are diagnosed, and judged against it, as well.
    """

    iterations: int
    evaluate_every: int
    size: int = WINDOW
    number: int = 1  # of the window
    first: int = 1  # iteration of the window
    following: int | None = None  # size of the windows that are not begun yet, where it is another one

    @property
    def window(self) -> str:
        """`w0002`: the window's name."""
        return window_name(self.number)

    @property
    def last_number(self) -> int:
        return min(self.first + self.size - 1, self.iterations)

    @property
    def numbers(self) -> range:
        return range(self.first, self.last_number + 1)

    @property
    def names(self) -> list[str]:
        """The iterations of this window."""
        return [iteration_name(number) for number in self.numbers]

    @property
    def last(self) -> str:
        """The last iteration of this window."""
        return iteration_name(self.last_number)

    @property
    def title(self) -> str:
        """`w0002 of w0003, i0003 to i0004`: the window for people, and the one that the run ends with. Of a run in one
        window `i0001 to i0018`.
        """
        last = self
        while not last.is_last:
            last = last.next
        iterations = f"{self.names[0]} to {self.last}"
        return iterations if last.number == 1 else f"{self.window} of {last.window}, {iterations}"

    @property
    def is_last(self) -> bool:
        """Whether the run ends with this window."""
        return self.last_number == self.iterations

    @property
    def next(self) -> "Plan":
        """The window after this one, as it is before it is begun."""
        size = self.following or self.size
        return replace(self, number=self.number + 1, first=self.last_number + 1, size=size, following=None)

    @property
    def whole(self) -> "Plan":
        """All iterations of the run, as if they were one window: for what looks at the run, and runs no stage."""
        return Plan(self.iterations, self.evaluate_every, self.iterations)

    @property
    def entry(self) -> dict[str, dict[str, str]]:
        """The iteration whose policy this window starts from, and the window that made it; none for the first."""
        if self.first == 1:
            return {}
        return {iteration_name(self.first - 1): {"window": window_name(self.number - 1)}}

    @property
    def evaluated(self) -> list[str]:
        """Of this window, after the initial policy."""
        of_window = [n for n in self.numbers if n % self.evaluate_every == 0 or n == self.iterations]
        return [iteration_name(number) for number in [0, *of_window]]

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
        """What dvc.yaml reads, and what the plan is made of."""
        return {
            "planned": self.iterations,
            "evaluate_every": self.evaluate_every,
            "window_size": self.size,
            **({} if self.following is None else {"next_window_size": self.following}),
            "window": self.window,
            "entry": self.entry,
            "iterations": {name: {"previous": iteration_name(iteration_number(name) - 1)} for name in self.names},
            "evaluated": self.evaluated,
            "diagnosed": self.diagnosed,
            "last": self.last,
        }


def window_name(number: int) -> str:
    """`w0002`: starts with a letter, so that YAML keeps it a string."""
    return f"w{number:04d}"


def make_plan(iterations: int, evaluate_every: int, size: int = WINDOW) -> Plan:
    """The first window of a run."""
    if iterations < 1 or evaluate_every < 1 or size < 1:
        raise StageError(
            "a plan has at least one iteration, evaluates every one or more, and has one or more in a window: "
            f"{iterations}, {evaluate_every}, {size}"
        )
    return Plan(iterations, evaluate_every, size)


def plan_text(plan: Plan) -> str:
    """What the file of the plan holds."""
    return HEADER + yaml.safe_dump(plan.as_vars(), sort_keys=False)


def write_plan(plan: Plan, path: Path = PLAN_FILE) -> None:
    text = plan_text(plan)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    with publish(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def stored_options(path: Path = PLAN_FILE) -> tuple[int, int]:
    """How often the plan on disk evaluates, and the size of windows that are not begun; the defaults without a plan."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return int(found["evaluate_every"]), int(found.get("next_window_size") or found["window_size"])
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        return EVALUATE_EVERY, WINDOW


def read_plan(path: Path = PLAN_FILE) -> Plan:
    if not path.exists():
        raise StageError(f"{path} does not exist; `rloo plan 12` writes a plan of 12 iterations")
    return parse_plan(path.read_text(encoding="utf-8"), str(path))


def parse_plan(text: str, source: str) -> Plan:
    """The plan in the text of a file; a StageError that names `source` if it is none."""
    try:
        found = yaml.load(text, Loader=LOADER)
        plan = _parsed(found)
    except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise StageError(f"{source}: not a plan ({error!r}); `rloo plan 12` writes one") from None
    if plan.as_vars() != found:
        remedy = f"`rloo plan {plan.iterations}` rewrites it"
        raise StageError(f"{source}: edited by hand, and no longer consistent; {remedy}")
    return plan


def _parsed(found: dict[str, Any]) -> Plan:
    first = min(iteration_number(name) for name in found["iterations"])
    plan = make_plan(int(found["planned"]), int(found["evaluate_every"]), int(found["window_size"]))
    following = found.get("next_window_size")
    return replace(plan, number=int(str(found["window"])[1:]), first=first, following=following)
