"""Real `kill -9` inside rollout, score and update: what was finished is not computed again, and the bytes are those of
a run that nobody disturbed. With LoRA and full fine-tuning, and with a critic.
"""

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests import manifests
from tests.forks import forks
from tests.models import PREPARATION
from tests.workspace import Workspace, tiny_params

ITERATION = ("rollout", "score", "advantage", "update")
OUTS = {
    "rollout": ["iterations/i0001/rollouts.parquet", "manifests/i0001/rollout.json"],
    "score": ["iterations/i0001/scores.parquet", "manifests/i0001/score.json"],
    "update": [
        *("policies/i0001", "optimizer/i0001", "critics/i0001", "iterations/i0001/steps.parquet"),
        *("iterations/i0001/critic_steps.parquet", "manifests/i0001/update.json"),
    ],
}
RESULTS = ("iterations", "policies", "optimizer", "critics", "manifests")


def params(model: Path, method: str) -> dict:
    found = copy.deepcopy(tiny_params(model))
    found["policy"]["method"] = method
    found["rollout"] |= {"prompts_per_iteration": 6, "batch_tokens": 40}
    found["advantage"] = {"estimator": "gae"}
    found["score"]["pack_tokens"] = 128
    found["update"] |= {"pack_tokens": 128, "epochs": 2, "minibatches": 2, "objective": "ppo"}
    found["critic"] = {"method": method, "learning_rate": 0.01, "epochs": 2, "minibatches": 1, "pack_tokens": 128}
    found["resume"] = {"every_seconds": 0}
    return found


@pytest.fixture(scope="module")
def projects(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SimpleNamespace]]:
    """By the method of policy and critic: a project after an undisturbed iteration, a process that forks stages, and
    the hashes of all results.
    """
    with ExitStack() as stack:

        @cache
        def made(method: str) -> SimpleNamespace:
            folder = tmp_path_factory.mktemp("resume") / "project"
            workspace = Workspace(folder, params(tiny_model, method))
            processes = stack.enter_context(forks(folder))
            for stage, name in (*PREPARATION, *((stage, "i0001") for stage in ITERATION)):
                processes.run(stage, name)
            return SimpleNamespace(workspace=workspace, folder=folder, forks=processes, hashes=hashes(folder))

        yield made


@pytest.fixture
def project(request: pytest.FixtureRequest, projects: Callable[[str], SimpleNamespace]) -> SimpleNamespace:
    return projects(getattr(request, "param", "lora"))


BOTH = pytest.mark.parametrize("project", ["lora", "full"], indirect=True)


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in RESULTS
        for path in sorted((folder / "data" / part).rglob("*"))
        if path.is_file()
    }


def remove_outs(project: SimpleNamespace, stage: str) -> None:
    """As DVC does before a stage runs."""
    for out in OUTS[stage]:
        path = project.folder / "data" / out
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def kept(project: SimpleNamespace, stage: str) -> dict[Path, int]:
    """The files that the stage has kept, with the time at which they were written."""
    found = {}
    for path in sorted((project.folder / "data/.cache/resume" / stage / "i0001").glob("*/*")):
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_mtime_ns
    return found


def resumed(project: SimpleNamespace, stage: str) -> list[tuple[int, int, str]]:
    """What the newest run of the stage found finished."""
    lines = (project.folder / "data/logs/i0001" / f"{stage}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(r["done"], r["total"], r["unit"]) for r in records if r["event"] == "resumed"]


def kill_once_more_is_kept(project: SimpleNamespace, stage: str) -> dict[Path, int] | None:
    """Kill the stage as soon as it has kept something new; what it has kept, or None if it had ended before."""
    remove_outs(project, stage)
    before = kept(project, stage)
    was_killed = project.forks.killed(stage, "i0001", lambda: bool(kept(project, stage).items() - before.items()))
    return kept(project, stage) if was_killed else None


def finish(project: SimpleNamespace, stage: str) -> None:
    remove_outs(project, stage)
    project.forks.run(stage, "i0001")
    assert not kept(project, stage)
    assert not list((project.folder / "data/.partial").glob("*"))


@BOTH
@pytest.mark.parametrize(("stage", "units"), [("rollout", {"chunks"}), ("score", {"passes"})])
def test_finished_batches_and_passes_are_not_computed_again(project, stage, units):
    files: dict[Path, int] = {}
    kills = 0
    while (more := kill_once_more_is_kept(project, stage)) is not None and kills < 4:
        assert files.items() <= more.items()  # none was written again
        files, kills = more, kills + 1
    assert kills >= 2
    finish(project, stage)
    assert any(done >= 2 and unit.split()[0] in units for done, _, unit in resumed(project, stage))
    assert hashes(project.folder) == project.hashes


def position(project: SimpleNamespace) -> tuple[str, int, int]:
    """How far the update has kept its work: policy or critic, steps taken, micro-batches of the next."""
    found = [("", 0, 0)]
    for path in kept(project, "update"):
        kind, (rows, inside) = path.parent.name.partition(".")[0], path.stem.split("-")
        found.append(({"policy-steps": "a policy", "critic-steps": "b critic"}[kind], int(rows), int(inside)))
    return max(found)


@BOTH
def test_an_update_goes_on_with_the_next_step_and_inside_of_one(project):
    expected: list[tuple[int, int, str]] = []
    moments = [("a policy", 0, 1), ("a policy", 2, 1), ("a policy", 4, 0), ("b critic", 0, 2), ("b critic", 1, 1)]
    for moment in moments:
        remove_outs(project, "update")
        assert project.forks.killed("update", "i0001", lambda moment=moment: position(project) >= moment)
        assert resumed(project, "update")[: len(expected)] == expected
        part, steps, _ = position(project)
        policy, critic = (steps, None) if part == "a policy" else (4, steps)
        expected = [(policy, 4, "optimizer steps")]
        expected += [] if critic is None else [(critic, 2, "steps of the critic")]
    assert critic is not None
    finish(project, "update")
    assert resumed(project, "update") == expected
    assert "micro-batches of the next step are there" in project.forks.said() or not position(project)[2]
    assert hashes(project.folder) == project.hashes


def killed_with_something_kept(project: SimpleNamespace, stage: str) -> list[Path]:
    remove_outs(project, stage)
    assert project.forks.killed(stage, "i0001", lambda: bool(kept(project, stage)))
    return list(kept(project, stage))


@pytest.mark.parametrize(
    ("stage", "damage"),
    [("rollout", "flipped"), ("score", "truncated"), ("update", "flipped"), ("update", "truncated")],
)
def test_a_damaged_file_is_noticed_and_its_work_done_again(project, stage, damage):
    files = killed_with_something_kept(project, stage)
    for file in files:
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content if damage == "flipped" else content[: len(content) // 2])
    finish(project, stage)
    assert "was damaged" in project.forks.said()
    assert not resumed(project, stage)
    assert hashes(project.folder) == project.hashes


def test_two_processes_at_once_do_not_disturb_each_other(project):
    killed_with_something_kept(project, "rollout")
    remove_outs(project, "rollout")
    project.forks.run("rollout", "i0001", count=2)
    finish(project, "rollout")
    assert hashes(project.folder) == project.hashes


def test_a_stage_that_can_keep_nothing_goes_on_and_says_so(project):
    place = project.folder / "data/.cache/resume"
    shutil.rmtree(place)
    place.write_text("a file where a folder is wanted")
    remove_outs(project, "update")
    project.forks.run("update", "i0001")
    place.unlink()
    assert project.forks.said().count("finished work cannot be kept") == 1
    assert hashes(project.folder) == project.hashes


@pytest.fixture
def changing(project):
    """The project's params, which the test may change; as they were, afterwards."""
    before = copy.deepcopy(project.workspace.params)
    yield project.workspace.change
    project.workspace.params = before
    project.workspace.write_params()


@pytest.mark.parametrize(
    ("stage", "option", "value"),
    [
        ("rollout", "rollout.temperature", 0.9),
        ("rollout", "compute.threads", 2),
        ("score", "score.pack_tokens", 96),
        ("update", "update.learning_rate", 0.02),
    ],
)
def test_nothing_is_taken_over_under_other_params(project, changing, stage, option, value):
    killed_with_something_kept(project, stage)
    changing(option, value)
    remove_outs(project, stage)
    project.forks.run(stage, "i0001")
    assert not resumed(project, stage)
    changing(option, tiny(project, option))
    finish(project, stage)
    assert hashes(project.folder) == project.hashes


def tiny(project: SimpleNamespace, option: str) -> object:
    value = params(Path(project.workspace.params["prepare"]["model"]["source"]), "lora")
    for part in option.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize(("stage", "room"), [("rollout", "rollout"), ("score", "common"), ("update", "critic")])
def test_nor_under_other_code(project, stage, room):
    """Of the rooms at work: another one's is no reason to lose what is finished."""
    if stage == "update":
        remove_outs(project, stage)
        assert project.forks.killed(stage, "i0001", lambda: position(project) >= ("b critic", 0, 1))
    else:
        killed_with_something_kept(project, stage)
    (project.folder / "stages/judge/new.py").write_text('"""Nothing."""\n')
    code = project.folder / "stages" / room / "__init__.py"
    before = code.read_text()
    code.write_text(before + "\n# a comment\n")
    remove_outs(project, stage)
    project.forks.run(stage, "i0001")
    code.write_text(before)
    (project.folder / "stages/judge/new.py").unlink()
    assert [unit for _, _, unit in resumed(project, stage)] == (["optimizer steps"] if stage == "update" else [])
    assert hashes(project.folder) == project.hashes


def test_nor_another_policy_s(project):
    killed_with_something_kept(project, "rollout")
    folder = next((project.folder / "data/policies/i0000").glob("*.safetensors"))
    before, next_one = folder.read_bytes(), (project.folder / "data/policies/i0001" / folder.name).read_bytes()
    manifest = project.folder / "data/manifests/policy/prepare.json"
    told = manifest.read_bytes()
    folder.write_bytes(next_one)
    made = (
        "data/policies/i0000",
        "data/optimizer/i0000/optimizer.safetensors",
        "data/iterations/i0000/advantages.parquet",
    )
    manifests.finish(project.folder, "prepare", "policy", *map(Path, made))
    remove_outs(project, "rollout")
    project.forks.run("rollout", "i0001")
    assert not resumed(project, "rollout")
    folder.write_bytes(before)
    manifest.write_bytes(told)
    finish(project, "rollout")
    assert hashes(project.folder) == project.hashes


def test_cold_and_warm_processes_go_on_with_each_other_s_work(project):
    """Killed in a fresh process, finished by a worker that keeps the models; then the worker is killed."""
    with project.workspace.warm():
        for stage in ("rollout", "update"):
            killed_with_something_kept(project, stage)
            remove_outs(project, stage)
            project.workspace.run("python", "-m", "pipeline.stage", stage, "i0001")
            assert resumed(project, stage)
        assert hashes(project.folder) == project.hashes
        remove_outs(project, "update")
        client = project.workspace.start("python", "-m", "pipeline.stage", "update", "i0001")
        while not kept(project, "update"):
            assert client.poll() is None
            time.sleep(0.0005)
        worker_of(project).kill()
        client.wait()
    finish(project, "update")
    assert resumed(project, "update")
    assert hashes(project.folder) == project.hashes


def worker_of(project: SimpleNamespace) -> psutil.Process:
    (found,) = (
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] == str(project.folder) and "pipeline.worker" in (process.info["cmdline"] or [])
    )
    return found
