"""What a long run costs beside its stages: `python -m tests.bench.long_run 1000` trains a policy of a few kilobytes.

Overhead of an iteration: from the start of its rollout to the start of the next one, less what the journals of its
stages say they took. Each is a mean over the ten iterations up to the one named.
"""

import argparse
import copy
import json
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.measure import fresh, mark
from tests.tiny import tiny_tokenizer
from tests.workspace import VARIED, Workspace, tiny_params

STAGES = ("rollout", "score", "advantage", "diagnose", "update", "evaluate", "judge")
AT = (1, 10, 100, 1000)
MEAN_OVER = 10


def save_model(folder: Path) -> Path:
    """A llama of one layer and eight channels."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    config = LlamaConfig(vocab_size=300, max_position_embeddings=512, tie_word_embeddings=True, **sizes, **ids)
    LlamaForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def project(folder: Path, keep_last: int | None = None) -> Workspace:
    """A workspace whose stages have as little to do as can be."""
    params = copy.deepcopy(tiny_params(save_model(folder / "model")))
    params["policy"]["lora"] |= {"rank": 1, "alpha": 1, "last_layers": 1}
    params["rollout"] |= {"prompts_per_iteration": 2, "samples_per_prompt": 2, "max_new_tokens": 4}
    params["prepare"]["prompts"]["embedded"] |= {"train": 8, "heldout": 2}
    params["evaluate"] |= {"resamples": 20}
    params["storage"] = {"keep_last": keep_last}
    params["score"]["rewards"]["varied"]["function"] = "own_reward.py:varied"
    made = Workspace(folder / "project", params)
    (made.folder / "own_reward.py").write_text(VARIED, encoding="utf-8")
    return made


class Watched:
    """Resident megabytes and CPU seconds of a process by time, until it ends."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, float, float]] = []
        self._process = psutil.Process(pid)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE:
                spent = self._process.cpu_times()
                memory = self._process.memory_info().rss / 1e6
                self.samples.append((time.time(), memory, spent.user + spent.system))
                time.sleep(0.2)
        except psutil.NoSuchProcess:
            pass

    def at(self, when: float) -> tuple[float, float]:
        """Megabytes, and CPU seconds so far."""
        before = [(memory, spent) for time_, memory, spent in self.samples if time_ <= when]
        return before[-1] if before else (0.0, 0.0)


def records(work: Workspace, name: str, stage: str) -> list[dict[str, Any]]:
    path = work.folder / "data/logs" / name / f"{stage}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def iteration_times(work: Workspace, iterations: int) -> list[tuple[float, float]]:
    """(start, seconds of its stages) of each iteration, and of the history that follows the last."""
    found = []
    for number in range(1, iterations + 1):
        name = f"i{number:04d}"
        journals = [records(work, name, stage) for stage in STAGES]
        computed = sum(journal[-1]["seconds"] for journal in journals if journal)
        found.append((journals[0][0]["time"], computed))
    return [*found, (records(work, f"i{iterations:04d}", "history")[0]["time"], 0.0)]


def overhead(times: list[tuple[float, float]], number: int) -> float:
    """Seconds of an iteration that are not its stages', as a mean over those up to it."""
    first = max(0, number - MEAN_OVER)
    stages = sum(seconds for _, seconds in times[first:number])
    return (times[number][0] - times[first][0] - stages) / (number - first)


def row(times: list[tuple[float, float]], watched: Watched, number: int) -> dict[str, Any]:
    first = max(0, number - MEAN_OVER)
    memory, spent = watched.at(times[number][0])
    return {
        "iteration": number,
        "overhead_seconds": round(overhead(times, number), 3),
        "flow_cpu_seconds": round((spent - watched.at(times[first][0])[1]) / (number - first), 3),
        "stages_seconds": round(sum(seconds for _, seconds in times[first:number]) / (number - first), 3),
        "memory_mb": round(memory, 1),
    }


def timed(work: Workspace, *command: str) -> float:
    started = time.monotonic()
    work.run(*command)
    return round(time.monotonic() - started, 2)


def train(work: Workspace) -> Watched:
    process = work.start("rloo", "train")
    watched = Watched(process.pid)
    if process.wait():
        raise SystemExit(f"rloo train ended with {process.returncode}; see {work.folder}")
    return watched


def measure(folder: Path, iterations: int, window: int, keep_last: int | None) -> dict[str, Any]:
    work = project(folder, keep_last)
    every = str(max(1, window // 2))
    work.run("rloo", "plan", str(iterations), "--evaluate-every", every, "--window", str(window))
    started = time.monotonic()
    watched = train(work)
    total = time.monotonic() - started
    times = iteration_times(work, iterations)
    at = [number for number in sorted({*AT, iterations}) if number <= iterations]
    rows = [row(times, watched, number) for number in at]
    lock = work.folder / "dvc.lock"
    return {
        "iterations": iterations,
        "window": window,
        "keep_last": keep_last,
        "total_seconds": round(total, 1),
        "at": rows,
        "prefect_database_mb": round(sum(p.stat().st_size for p in work.folder.glob(".prefect/prefect.db*")) / 1e6, 2),
        "lock_kb": round(lock.stat().st_size / 1e3, 1),
        "windows_folder_mb": round(
            sum(p.stat().st_size for p in (work.folder / "pipeline/windows").rglob("*") if p.is_file()) / 1e6, 2
        ),
        "seconds": {
            "dvc repro, nothing to do": timed(work, "dvc", "repro"),
            "rloo train, nothing to do": timed(work, "rloo", "train"),
            "rloo windows": timed(work, "rloo", "windows"),
            "rloo windows open w0001": timed(work, "rloo", "windows", "open", "w0001"),
            "dvc repro in w0001, nothing to do": timed(work, "dvc", "repro"),
            "rloo windows open, the last": timed(work, "rloo", "windows", "open", f"i{iterations:04d}"),
        },
    }


def show(found: dict[str, Any]) -> None:
    console = Console()
    table = Table(title=f"{found['iterations']} iterations in windows of {found['window']}")
    for title in ("iteration", "overhead, s", "CPU of the flow, s", "stages, s", "memory of the flow, MB"):
        table.add_column(title, justify="right")
    for row in found["at"]:
        table.add_row(*map(str, row.values()))
    console.print(table)
    others = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
    for what, value in {**others, **found["seconds"]}.items():
        console.print(f"{what:36} {value}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("iterations", type=int, nargs="?", default=1000, help="of the run")
    parser.add_argument("--window", type=int, default=20, help="iterations of a window")
    parser.add_argument("--keep-last", type=int, default=None, help="storage.keep_last")
    parser.add_argument("--folder", type=Path, default=Path("data/long_run"), help="a folder that is made anew")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/long_run.json"), help="the table as JSON")
    options = parser.parse_args()
    fresh(options.folder).mkdir(parents=True)
    mark(options.folder)
    found = measure(options.folder.absolute(), options.iterations, options.window, options.keep_last)
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    show(found)


if __name__ == "__main__":
    main()
