"""One lane of the harness: one workspace and one command, killed and started again until it has been killed enough.

A stage is killed so many times and then let through; at the end of the run every hash is compared with the undisturbed
run, the results are removed, and it starts over. Moments are random within the time that the stage took undisturbed,
with DVC's bookkeeping before the next one.
"""

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import product
from uuid import uuid4

from tests.kills.strike import SIGNALS, TARGETS, strike
from tests.kills.traces import (
    MARK,
    durations,
    end_processes,
    hashes,
    lock_is_free,
    seconds_until_clean,
    starts,
    unreadable,
)
from tests.workspace import Workspace

COMMANDS = {"train": ("rloo", "train"), "repro": ("dvc", "repro")}
PLAN = "pipeline/plan.yaml"
GONE_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
HEALED = ("rwlock", "dvc.lock", "join() argument")  # what DVC's messages about its own damaged files have in them
POLL_SECONDS = 0.005


@dataclass
class Kill:
    """One kill and what came after it."""

    variant: str
    stage: str
    target: str
    signal: str
    at: float  # seconds after the stage's start
    clean: float | None = None  # seconds until nothing of the run was left; None: it was to go on, and did


@dataclass
class Lane:
    """The state of a lane."""

    variant: str
    workspace: Workspace
    seed: int
    each: int = 5  # kills of a stage in one pass
    chance: float = 1.0  # of a stage to be killed when it starts
    warm: bool = False  # `dvc repro` with a resident worker: its stages are short
    plan: str = field(init=False)
    usual: dict[str, float] = field(default_factory=dict)
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    healed: int = 0
    passes: int = 0

    def __post_init__(self) -> None:
        self.plan = (self.workspace.folder / PLAN).read_text(encoding="utf-8")
        self.workspace.extra[MARK] = uuid4().hex
        self.rng = random.Random(f"{self.variant} {self.seed}")
        self._ways: list[tuple[str, signal.Signals]] = []

    def way(self) -> tuple[str, signal.Signals]:
        """Each target with each signal, in a new random order each time they are through."""
        if not self._ways:
            self._ways = list(product(TARGETS[self.variant], SIGNALS))
            self.rng.shuffle(self._ways)
        return self._ways.pop()

    def violated(self, what: str) -> None:
        last = self.kills[-1] if self.kills else None
        self.violations.append(f"{self.variant}, after {last}: {what}")


def undisturbed(lane: Lane) -> None:
    """The run as it is to end, and how long its stages take."""
    lane.workspace.run(*COMMANDS[lane.variant])
    lane.usual, lane.hashes = durations(lane.workspace), hashes(lane.workspace)
    start_over(lane)


def start_over(lane: Lane) -> None:
    """Remove all results, and what DVC remembers of them."""
    (lane.workspace.folder / PLAN).write_text(lane.plan, encoding="utf-8")
    windows = lane.workspace.folder.glob("pipeline/windows/w[0-9]*")
    for name in ("data", ".dvc/cache", ".dvc/tmp", "dvc.lock", *windows):
        path = lane.workspace.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def run(lane: Lane, kills: int, seconds: float = float("inf")) -> None:
    """Kill until there were so many, and then let the run come to its end."""
    deadline = time.monotonic() + seconds
    killed: Counter[str] = Counter()
    failures = 0
    while failures < 3:
        enough = len(lane.kills) >= kills or time.monotonic() > deadline
        before = len(lane.kills)
        status = one_start(lane, killed, 0 if enough else kills - before)
        if status == 0:
            compare(lane)
            lane.passes += 1
            if len(lane.kills) >= kills or time.monotonic() > deadline:
                return
            start_over(lane)
            killed.clear()
        failures = failures + 1 if len(lane.kills) == before and status else 0
    lane.violated("the command fails again and again without being killed")


def compare(lane: Lane) -> None:
    found = hashes(lane.workspace)
    for stage in sorted(lane.hashes.keys() | found.keys()):
        if found.get(stage) != lane.hashes.get(stage):
            lane.violated(f"{stage}: {found.get(stage)} in place of {lane.hashes.get(stage)}")


def one_start(lane: Lane, killed: Counter[str], kills: int) -> int:
    """Start the command and kill it, or what it started, at most `kills` times; returns how it ended."""
    log = lane.workspace.folder / "harness.log"
    with log.open("wb") as output, lane.workspace.warm() if lane.warm else nullcontext():
        command = lane.workspace.start(*COMMANDS[lane.variant], output=output)
        known, current, due = starts(lane.workspace), "", float("inf")
        moved = time.monotonic()
        was_killed = 0
        while command.poll() is None:
            now = time.monotonic()
            began = {stage for stage, start in starts(lane.workspace).items() if known.get(stage) != start}
            if began:
                current, known, moved = began.pop(), starts(lane.workspace), now
                if killed[current] < lane.each and was_killed < kills and lane.rng.random() < lane.chance:
                    due = now + lane.rng.uniform(0, lane.usual.get(current, 1.0))
            if now > due and hit(lane, command, current, now - moved):
                killed[current] += 1
                was_killed += 1
                due = float("inf")
            if now - moved > PATIENCE_SECONDS:
                lane.violated(f"nothing happens any more in {current}")
                command.kill()
            time.sleep(POLL_SECONDS)
    ended(lane, command, bool(was_killed), log.read_text(encoding="utf-8", errors="replace"))
    return command.returncode


def hit(lane: Lane, command: subprocess.Popen[bytes], stage: str, at: float) -> bool:
    """One kill; whether there was somebody to kill."""
    target, number = lane.way()
    if not strike(lane.workspace, command, stage, target, number):
        return False
    lane.kills.append(Kill(lane.variant, stage, target, number.name, round(at, 3)))
    if target in ("process", "group"):
        try:
            command.wait(GONE_SECONDS)
        except subprocess.TimeoutExpired:
            lane.violated(f"{number.name}: the command still runs after {GONE_SECONDS:.0f} s")
            command.kill()
    return True


def ended(lane: Lane, command: subprocess.Popen[bytes], was_killed: bool, output: str) -> None:
    """What has to hold when the command has ended, however it ended."""
    seconds = seconds_until_clean(lane.workspace, GONE_SECONDS)
    if seconds is None:
        free = lock_is_free(lane.workspace)
        left = end_processes(lane.workspace)
        lane.violated(f"after {GONE_SECONDS:.0f} s the lock is {'free' if free else 'held'}, and there run: {left}")
    elif lane.kills and was_killed:
        lane.kills[-1].clean = round(seconds, 3)
    for problem in unreadable(lane.workspace):
        lane.violated(problem)
    if command.returncode and not was_killed:
        heal(lane, output)


def heal(lane: Lane, output: str) -> None:
    """`dvc repro` may find its own files damaged, which one command puts right; `rloo train` does so by itself."""
    if lane.variant == "repro" and any(name in output for name in HEALED):
        lane.workspace.run("rloo", "heal")
        lane.healed += 1
    else:
        lane.violated(f"fails without being killed: {output[-2000:]}")
