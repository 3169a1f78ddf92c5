"""A throw-away project folder with a tiny model: the same code and dvc.yaml, small params."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from pipeline.stage import WORKER_VARIABLE

ROOT = Path(__file__).parents[1]
VARIED = '''"""A random model meets constraints by chance only: a reward that differs all the same."""


def varied(completion_ids, scale=1.0, **columns):
    return [scale * (sum(ids) % 7) / 7 for ids in completion_ids]
'''
PARTS = ("dvc.yaml", "params.yaml", "prefect.toml", ".dvcignore", ".gitignore", "stages", "pipeline")


def tiny_params(model: Path) -> dict[str, Any]:
    params: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["compute"] |= {"threads": 1}
    params["prepare"]["model"] = {"source": str(model), "sha256": None}
    params["prepare"]["prompts"]["embedded"] |= {"train": 12, "heldout": 6}
    params["policy"]["lora"] |= {"rank": 2, "alpha": 4, "last_layers": 2}
    params["rollout"] |= {"prompts_per_iteration": 3, "samples_per_prompt": 3, "max_new_tokens": 8}
    params["rollout"] |= {"stop_tokens": ["<|end|>", "<|stop|>"], "temperature": 1.0}
    params["update"] |= {"learning_rate": 0.01}
    params["score"]["rewards"]["varied"] = {"function": "stages.score.varied:varied", "weight": 1.0, "arguments": {}}
    params["evaluate"] |= {"resamples": 200}
    return params


class Workspace:
    """Runs commands in the folder with this interpreter's environment."""

    def __init__(self, folder: Path, params: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, folder / part)
        (folder / "stages" / "score" / "varied.py").write_text(VARIED)
        self.params = params
        self.extra: dict[str, str] = {}
        self.write_params()
        self.run("git", "init", "-q")
        self.run("dvc", "init", "-q")
        shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")

    def write_params(self) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(self.params, sort_keys=False))

    @property
    def environment(self) -> dict[str, str]:
        path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
        home = str(self.folder / ".prefect")
        return (
            os.environ
            | {"PATH": path, "PREFECT_HOME": home, "PYTHONPATH": str(self.folder), "COLUMNS": "120"}
            | self.extra
        )

    def command(self, *arguments: str) -> list[str]:
        return [shutil.which(arguments[0], path=self.environment["PATH"]) or arguments[0], *arguments[1:]]

    def fail(self, *arguments: str) -> str:
        """The output of a command that must end with exit status 1, and without a traceback."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 1, f"{arguments} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        output = done.stdout + done.stderr
        if done.returncode:
            raise AssertionError(f"{arguments} exited with {done.returncode}:\n{output}")
        return output

    def start(self, *arguments: str, output: IO[bytes] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """A command in a process group of its own, to be killed."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdout=output,
            stderr=subprocess.DEVNULL if output == subprocess.DEVNULL else subprocess.STDOUT,
            start_new_session=True,
        )

    @contextmanager
    def warm(self) -> Iterator[None]:
        """A resident worker for the commands of the block, as `rloo train` has one: imports are paid for once."""
        address = "data/.worker.test.sock"
        (self.folder / "data").mkdir(exist_ok=True)
        worker = self.start("python", "-m", "pipeline.worker", address, str(os.getpid()))
        while not (self.folder / address).exists():
            assert worker.poll() is None, "the worker did not start"
            time.sleep(0.05)
        self.extra[WORKER_VARIABLE] = address
        try:
            yield
        finally:
            del self.extra[WORKER_VARIABLE]
            worker.kill()
            worker.wait()
            (self.folder / address).unlink()

    def change(self, key: str, value: Any) -> None:
        """Change one option of params.yaml, such as `score.kl.beta`."""
        *sections, name = key.split(".")
        section = self.params
        for part in sections:
            section = section[part]
        section[name] = value
        self.write_params()

    def starts(self) -> dict[str, float]:
        """When each stage was last computed, by journal."""
        return {
            f"{path.stem} {path.parent.name}": json.loads(path.read_text().splitlines()[0])["time"]
            for path in sorted((self.folder / "data" / "logs").glob("*/*.jsonl"))
        }

    def computed_since(self, before: dict[str, float]) -> set[str]:
        """Stages that were computed, apart from the one that always is."""
        changed = {stage for stage, start in self.starts().items() if before.get(stage) != start}
        return changed - {"prepare sources"}

    def nothing_to_do(self, output: str) -> bool:
        """Whether `dvc repro` found every stage unchanged, but for the one that always runs."""
        ran = re.findall(r"Running stage '(.*)'", output) + re.findall(r"Stage '(.*)' is cached", output)
        unchanged = re.findall(r"Stage '(.*)' didn't change, skipping", output)
        return ran == ["prepare_sources"] and {*unchanged, *ran} == set(self.lock())

    def plan(self, iterations: int, evaluate_every: int = 2) -> None:
        self.run("rloo", "plan", str(iterations), "--evaluate-every", str(evaluate_every))

    def lock(self) -> dict[str, dict[str, str]]:
        """Hashes of every output in dvc.lock, by stage and path."""
        lock = yaml.safe_load((self.folder / "dvc.lock").read_text())
        return {
            stage: {out["path"]: out["md5"] for out in entry["outs"]} for stage, entry in sorted(lock["stages"].items())
        }
