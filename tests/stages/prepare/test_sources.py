"""What a run takes from outside, by content: what changes which file, what is refused, and how little it costs."""

import copy
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stages.common import paths
from stages.common.params import Compute, ParamsError
from stages.common.params_file import parse_params
from stages.prepare import hashes, machine, sources
from tests.silent import Silent

ROOT = Path(__file__).parents[3]
RAW = yaml.safe_load((ROOT / "params.yaml").read_text())
FILE = {"train": "prompts.jsonl", "heldout_prompts": 1}
REWARD = "def brief(completions, **columns):\n    return [1.0 for _ in completions]\n"
NO_FILE = "no such file; paths are relative to the project's folder"


def params(**changes):
    raw = copy.deepcopy(RAW)
    raw["prepare"]["model"] = {"source": "model"}
    raw["prepare"]["prompts"] = {"file": FILE}
    raw["score"]["rewards"] = {"brief": {"function": "mine/reward.py:brief"}}
    raw["evaluate"]["parts"] = None
    for key, value in changes.items():
        *sections, name = key.split("__")
        place = raw
        for section in sections:
            place = place[section]
        place[name] = value
    return parse_params(raw, "params.yaml")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "model/config.json": "{}",
        "model/model.safetensors": "weights",
        "prompts.jsonl": '{"prompt": "a"}\n',
        "mine/reward.py": REWARD,
        "template.jinja": "{{ messages }}",
        "pairs.jsonl": "{}",
        "reference/config.json": "{}",
        "saved/data.arrow": "rows",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return tmp_path


def run(given):
    sources.run(given, Silent())
    files = sorted(paths.SOURCES.rglob("*.json"))
    return {str(file.relative_to(paths.SOURCES).with_suffix("")): file.read_bytes() for file in files}


FULL = {
    "prepare__model": {"source": "model", "chat_template": "template.jinja"},
    "prepare__reference": {"source": "reference"},
    "reward_models": {
        "human": {"preferences": {"file": "pairs.jsonl"}},
        "given": {"preferences": None, "source": "reference"},
    },
    "judge": {"function": "mine/reward.py:brief"},
    "sft": {"best_of": {"prompts": 2, "samples": 2}, "learning_rate": 1e-5},
}


@pytest.mark.parametrize(
    ("file", "concerns"),
    [
        ("model/model.safetensors", {"model"}),
        ("model/new.json", {"model"}),
        ("template.jinja", {"model"}),
        ("reference/config.json", {"reference", "preferences/given"}),
        ("prompts.jsonl", {"prompts"}),
        ("mine/reward.py", {"score", "judge", "sft"}),
        ("mine/beside.py", {"score", "judge", "sft"}),
        ("pairs.jsonl", {"preferences/human"}),
        ("model/.git/HEAD", set()),
    ],
)
def test_a_change_shows_in_the_files_of_those_that_it_concerns(file, concerns, project):
    before = run(params(**FULL))
    path = project / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("something else")
    after = run(params(**FULL))
    assert {name for name in before if before[name] != after[name]} == concerns
    assert set(before) == set(after)


def test_touching_changes_nothing(project):
    before = run(params(**FULL))
    for path in project.rglob("*"):
        if path.is_file() and "data" not in path.parts:
            path.touch()
    assert run(params(**FULL)) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prepare__model": {"source": "./nowhere"}}, "prepare.model.source = './nowhere': no such file or folder"),
        (
            {"prepare__model": {"source": "model", "chat_template": "no.jinja"}},
            f"prepare.model.chat_template = 'no.jinja': {NO_FILE}",
        ),
        ({"prepare__reference": {"source": "/no/such"}}, "prepare.reference.source = '/no/such'"),
        (
            {"prepare__prompts": {"file": {**FILE, "heldout": "held.csv"}}},
            f"prepare.prompts.file.heldout = 'held.csv': {NO_FILE}",
        ),
        (
            {"prepare__prompts": {"dataset": {"path": "./gone", "heldout_prompts": 1}}},
            "prepare.prompts.dataset.path = './gone': no such folder",
        ),
        (
            {"score__rewards": {"one": {"function": "gone.py:brief"}}},
            "score.rewards.one.function = 'gone.py:brief': gone.py: no such file",
        ),
        (
            {"evaluate__rewards": {"gold": {"function": "no_such_module:gold"}}},
            "evaluate.rewards.gold.function = 'no_such_module:gold': no module",
        ),
        ({"evaluate__parts": "gone.py:parts"}, "evaluate.parts = 'gone.py:parts'"),
        ({"judge": {"function": "gone.py:best"}}, "judge.function = 'gone.py:best'"),
        ({"sft": {"file": "gone.jsonl", "learning_rate": 1e-5}}, f"sft.file = 'gone.jsonl': {NO_FILE}"),
        (
            {"sft": {"best_of": {"prompts": 2, "samples": 2, "gold": "gone.py:gold"}, "learning_rate": 1e-5}},
            "sft.best_of.gold = 'gone.py:gold'",
        ),
        (
            {"reward_models": {"human": {"preferences": {"file": "gone.jsonl"}}}},
            f"reward_models.human.preferences.file = 'gone.jsonl': {NO_FILE}",
        ),
        (
            {"reward_models": {"made": {"preferences": {"sampled": {"prompts": 2, "gold": "gone.py:gold"}}}}},
            "reward_models.made.preferences.sampled.gold = 'gone.py:gold'",
        ),
        (
            {"reward_models": {"given": {"preferences": None, "source": "./gone"}}},
            "reward_models.given.source = './gone': no such file or folder",
        ),
    ],
)
def test_what_is_not_there_is_named_with_its_option_and_nothing_is_written(changes, message):
    with pytest.raises(ParamsError) as error:
        run(params(**changes))
    assert f"params.yaml: {message}" in str(error.value)
    assert not paths.SOURCES.exists()


def test_hub_ids_are_kept_as_text_with_their_revision():
    changes = {"prepare__model": {"source": "owner/name", "revision": "v1"}}
    changes["prepare__prompts"] = {"dataset": {"path": "gsm8k", "name": "main", "heldout_split": "test"}}
    found = run(params(**changes))
    assert json.loads(found["model"]) == {"hub": "owner/name", "revision": "v1"}
    assert json.loads(found["prompts"]) == {"hub": "gsm8k", "name": "main", "revision": None}
    found = run(params(prepare__prompts={"dataset": {"path": "saved", "heldout_split": "test"}}))
    assert set(json.loads(found["prompts"])) == {"sha256"}


def verifying(**changes):
    """Golden answers verified by one of two rewards."""
    rewards = {"brief": {"function": "mine/reward.py:brief"}, "other": {"function": "other/reward.py:brief"}}
    prompts = {"file": FILE, "verify": {"reward": "brief", "completion": "a"}}
    return params(**{"score__rewards": rewards, "prepare__prompts": prompts} | changes)


@pytest.fixture
def other(project):
    (project / "other").mkdir()
    (project / "other/reward.py").write_text(REWARD)
    return project / "other/reward.py"


def test_prompts_change_with_the_code_of_the_reward_that_verifies_them_and_with_no_other(project, other):
    before = run(verifying())
    other.write_text(REWARD + "\n")
    changed = run(verifying())
    assert changed["prompts"] == before["prompts"]
    assert changed["score"] != before["score"]
    (project / "mine/reward.py").write_text(REWARD + "\n")
    assert run(verifying())["prompts"] != before["prompts"]
    assert "score.rewards.brief.function" in json.loads(before["prompts"])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"weight": 2.0}, True),
        ({"cache": False}, True),
        ({"arguments": {"scale": 2}}, False),
        ({"limits": {"row_seconds": 1.0}}, False),
    ],
)
def test_of_the_verifying_reward_only_what_decides_a_verdict_counts(changes, same, other):
    brief = {"function": "mine/reward.py:brief"}
    before = run(verifying())["prompts"]
    rewards = {"brief": brief | changes, "other": {"function": "other/reward.py:brief", "weight": 3.0}}
    assert (run(verifying(score__rewards=rewards))["prompts"] == before) == same


def test_what_all_rewards_add_up_to_is_not_what_golden_answers_are_verified_by(other):
    assert run(verifying(advantage__correct_reward=2.0))["prompts"] == run(verifying())["prompts"]  # of the sum


@pytest.fixture
def reads(monkeypatch):
    """Names of the files whose bytes are read."""
    read = []
    digest = hashlib.file_digest

    def file_digest(file, name):
        read.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr(hashes.hashlib, "file_digest", file_digest)
    monkeypatch.setattr(hashes.time, "time_ns", lambda: 1 << 62)  # long after every file was written
    return read


def test_a_file_is_read_again_only_once_it_has_changed(reads, project):
    first = run(params())
    assert sorted(reads) == ["config.json", "model.safetensors", "prompts.jsonl"]
    reads.clear()
    assert run(params()) == first
    assert reads == []
    weights = project / "model" / "model.safetensors"
    weights.write_text("WEIGHTS")  # of the same length, and as old
    os.utime(weights, (1_000_000_000, 1_000_000_000))
    assert run(params())["model"] != first["model"]
    assert reads == ["model.safetensors"]


def test_a_file_that_was_written_just_now_is_not_kept(reads, project, monkeypatch):
    stat = (project / "prompts.jsonl").stat()
    monkeypatch.setattr(hashes.time, "time_ns", lambda: stat.st_ctime_ns + 1_000_000_000)
    run(params())
    reads.clear()
    run(params())
    assert "prompts.jsonl" in reads


@pytest.mark.parametrize("memo", ["", "not json", "[]", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["x", 2, 3, 4, 5]}'])
def test_a_broken_memo_is_started_afresh(reads, memo):
    first = run(params())
    hashes.MEMO.write_text(memo)
    reads.clear()
    assert run(params()) == first
    assert len(reads) == 3
    assert len(json.loads(hashes.MEMO.read_text())) == 3


def test_settings_and_versions_lie_beside_the_run():
    run(params())
    found = json.loads(paths.RUN_JSON.read_text())
    assert found["settings"]["score"]["max_failed"] == 0.1  # that params.yaml may leave out, too
    assert found["settings"]["update"]["epochs"] == 1
    for name in ("torch", "transformers", "tokenizers", "peft", "polars", "dvc", "prefect", "safetensors", "numpy"):
        assert found["versions"][name]
    assert found["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    for name in ("accelerate", "httpx", "datasets", "reasoning-gym", "math-verify", "sympy", "latex2sympy2_extended"):
        assert name in found["versions"]
    assert set(found["compute"]) == {"device", "dtype", "threads"}


@pytest.mark.parametrize(("build", "device"), [("2.9.0+cpu", "cpu"), ("2.9.0+cu128", None)])
def test_threads_are_resolved_whatever_torch_is_built_for(monkeypatch, build, device):
    monkeypatch.setattr(machine, "version_of", lambda name: build)
    monkeypatch.setattr(machine, "available_cores", lambda: 7)
    dtype = device and "float32"
    assert machine.resolved(Compute()) == {"device": device, "dtype": dtype, "threads": 7}
    assert machine.resolved(Compute(threads=3))["threads"] == 3
    assert machine.resolved(Compute(device="cuda"))["dtype"] == "bfloat16"


def test_nothing_heavy_is_imported(project):
    code = (
        "import sys; from stages.entry import run_stage; run_stage('prepare', 'sources');"
        "print([name for name in ('torch', 'transformers', 'polars', 'numpy') if name in sys.modules])"
    )
    raw = params().model_dump(mode="json")
    raw["reward_models"] = {}
    (project / "params.yaml").write_text(yaml.safe_dump(raw))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
