"""A user's own model, whatever its kind, goes through a whole iteration."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.export import export
from stages.common import paths
from stages.common.device import Runtime
from stages.common.policy import Models
from tests.models import MAKERS, UNASKED, one_iteration, params_for

RUNTIME = Runtime(torch.device("cpu"), torch.float32)
TRUST = "prepare.model.trust_remote_code"
CASES = [
    ("gpt2", "lora", {"policy.lora.targets": ["c_attn", "c_proj"]}),
    ("gpt2", "full", {}),
    ("grouped_queries", "lora", {"policy.lora.targets": ["q_proj", "lm_head"]}),
    ("tied", "lora", {}),
    ("several_eos", "full", {}),
    ("no_pad", "lora", {}),
    ("pad_is_eos", "lora", {}),
    ("no_template", "lora", {}),
    ("larger_vocabulary", "lora", {}),
    ("bfloat16", "lora", {}),
    ("bfloat16", "full", {}),
    ("sliding_window", "lora", {}),
    ("remote_code", "full", {"prepare.model": {"source": "", "trust_remote_code": True}}),
    ("remote_code", "lora", {"prepare.model": {"source": "", "trust_remote_code": True}}),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def run(request, tmp_path_factory):
    """Name and method of a run whose folder is the working one."""
    name, method, changes = request.param
    folder = MAKERS[name](tmp_path_factory.mktemp("own") / name)
    if "prepare.model" in changes:
        changes = changes | {"prepare.model": changes["prepare.model"] | {"source": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        one_iteration(params_for(folder, changes | {"policy.method": method}))
        yield name, method


def described():
    return json.loads(paths.MODEL_JSON.read_text())


def table(name):
    return pl.read_parquet(paths.iteration("i0001") / f"{name}.parquet")


def stored_dtypes(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as stored:
        return {stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118


def test_sampled_log_probs_are_those_of_a_second_pass(run):
    """The reference of the first iteration is the policy that sampled."""
    both = table("rollouts").join(table("scores"), on=["prompt_id", "sample"])
    tolerance = 1e-4
    for one, other in both.select("sampler_logprobs", "ref_logprobs").iter_rows():
        assert one == pytest.approx(other, abs=tolerance)


def test_answers_end_where_tokenizer_and_config_say_and_nowhere_else(run):
    found, rollouts = described(), table("rollouts")
    stops = set(found["eos_ids"])
    assert stops == {"several_eos": {0, 1, 305, *range(40, 110)}, "sliding_window": {0, 2}}.get(run[0], {0})
    for ids, reason in rollouts.select("completion_ids", "finish_reason").iter_rows():
        assert not stops & set(ids[:-1])
        assert (ids[-1] in stops) == (reason in ("stop", "empty"))
        assert reason != "length" or len(ids) == 12
    if run[0] == "several_eos":
        assert {"stop"} <= set(rollouts["finish_reason"])


def test_what_generation_config_asked_for_is_told_and_nowhere_to_be_found(run):
    found = described()["generation_config"]
    assert found["ignored"] == {name: UNASKED[name] for name in sorted(UNASKED) if name != "eos_token_id"}
    written = json.loads((paths.BASE / "generation_config.json").read_text())
    assert not {"temperature", "top_k", "do_sample", "max_new_tokens"} & set(written)
    lengths = table("rollouts")["length"].to_list()
    assert max(lengths) > 1  # max_new_tokens 1 would have cut them
    groups = table("rollouts").group_by("prompt_id").agg(pl.col("completion").n_unique())["completion"]
    assert groups.max() > 1  # top_k 1 would have made them equal


def test_the_policy_has_changed_and_the_initial_one_has_not(run):
    name = "model.safetensors" if run[1] == "full" else "adapter_model.safetensors"
    before, after = (load_file(paths.policy(one) / name) for one in ("i0000", "i0001"))
    assert set(before) == set(after)
    assert any(not torch.equal(before[key].float(), after[key].float()) for key in before)
    assert table("steps")["grad_norm"][0] > 0


def test_weights_keep_their_precision(run):
    kind = "BF16" if run[0] == "bfloat16" else "F32"
    assert stored_dtypes(paths.BASE) == stored_dtypes(paths.REFERENCE) == {kind}
    assert described()["dtype"] == {"BF16": "bfloat16", "F32": "float32"}[kind]


def test_model_json_says_what_it_is(run):
    found, name = described(), run[0]
    assert found["vocabulary"] == {
        "model": {"larger_vocabulary": 450, "several_eos": 310}.get(name, 300),
        "tokenizer": 300,
    }
    assert found["tied_embeddings"] == (name in ("gpt2", "tied", "larger_vocabulary", "bfloat16", "remote_code"))
    assert (found["special_tokens"]["pad"] is None) == (name == "no_pad")
    if name == "pad_is_eos":
        assert found["special_tokens"]["pad"] == found["special_tokens"]["eos"]
        assert found["special_tokens"]["pad"]["id"] in found["eos_ids"]
    assert (found["chat_template"]["template"] is None) == (name == "no_template")
    assert found["positions"] == (256 if name == "sliding_window" else 640)
    assert found["layers"] == 2
    assert bool(found["remote_code"]) == (name == "remote_code")


def test_ids_without_a_token_are_shown_and_trained_on_all_the_same(run):
    if run[0] != "larger_vocabulary":
        pytest.skip("every id has a token")
    rollouts = table("rollouts")
    outside = [sum(token >= 300 for token in ids) for ids in rollouts["completion_ids"]]
    assert sum(outside) > 0
    for text, count in zip(rollouts["completion"], outside, strict=True):
        assert text.count("\ufffd") >= count


def test_exported_it_is_an_ordinary_folder(run, tmp_path):
    target = tmp_path / "exported"
    export("i0001", target)
    trust = {"trust_remote_code": True} if run[0] == "remote_code" else {}
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, **trust)
    ids = torch.tensor([[11, 12, 13, 14]])
    with torch.no_grad():
        expected = Models(RUNTIME).policy(paths.policy("i0001"))(ids).logits
        torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-4)
    assert len(AutoTokenizer.from_pretrained(target, **trust)) == 300


def test_what_it_runs_on_lies_beside_the_run(run):
    found = json.loads(paths.RUNTIME_JSON.read_text())
    assert found["device"] == "cpu"
    assert (found["dtype"], found["threads"], found["gpu"]) == ("float32", 1, None)


def test_code_is_run_only_because_the_option_says_so(run):
    marker = paths.BASE / "remote_code.json"
    assert marker.exists() == (run[0] == "remote_code")
    if marker.exists():
        assert json.loads(marker.read_text())["allowed_by"] == TRUST
        assert all((Path(folder) / "own.py").exists() for folder in (paths.BASE, paths.REFERENCE))
