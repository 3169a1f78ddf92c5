"""A cut dvc.yaml and params.yaml say of a stage what the whole ones say."""

import pytest
import yaml
from dvc.utils.serialize import parse_yaml

from pipeline.door import open_repo
from pipeline.yaml_cut import one_stage, some_params
from tests.workspace import ROOT

WHOLE = (ROOT / "dvc.yaml").read_text()
OPTIONS = (ROOT / "params.yaml").read_text()
SMALL = "vars: [plan.yaml]\nstages:\n  a:\n    cmd: x\n    params: [one.two]\n  b: {cmd: y}\nplots: []\n"


def described(opened, name):
    with opened as repo:
        (stage,) = repo.stage.collect(name)
        params = {str(dep): dep.read_params() for dep in stage.deps if hasattr(dep, "read_params")}
        outs = [(str(out), out.use_cache, out.persist, out.metric, out.plot) for out in stage.outs]
        return stage.cmd, stage.always_changed, [str(dep) for dep in stage.deps], params, outs


def test_every_stage_of_the_dag_is_the_same(monkeypatch):
    monkeypatch.chdir(ROOT)
    with open_repo() as repo:
        names = [stage.name for stage in repo.stage.collect("dvc.yaml")]
    first_of_each = {name.partition("@")[0]: name for name in names}
    assert len(first_of_each) > 15
    for name in first_of_each.values():
        assert len(one_stage(WHOLE, name)) < len(WHOLE) / 5
        assert described(open_repo(name), name) == described(open_repo(), name), name


def test_every_stage_of_params_yaml_that_is_declared_is_kept():
    for name, stage in yaml.safe_load(WHOLE)["stages"].items():
        kept = yaml.safe_load(some_params(OPTIONS, one_stage(WHOLE, name))) or {}
        assert all(kept[section] == yaml.safe_load(OPTIONS)[section] for section in kept)
        for key in filter(lambda one: isinstance(one, str), stage.get("do", stage).get("params", [])):
            assert key.partition(".")[0] in kept, (name, key)
        if isinstance(stage.get("foreach"), str) and "names" not in stage["foreach"]:
            assert kept, name


def test_what_is_kept():
    assert one_stage(SMALL, "a") == "vars: [plan.yaml]\n\nstages:\n  a:\n    cmd: x\n    params: [one.two]\n"
    assert one_stage(SMALL, "c") is None
    cut = one_stage(SMALL.replace("cmd: x", "cmd: ${ four.five }"), "a@i0001")
    assert some_params("# c\none: 1\nthree: {}\nfour:\n  five: 6\n", cut) == "one: 1\nfour:\n  five: 6\n"


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("cmd: x", "cmd: &name x"),
        SMALL.replace("cmd: x", "cmd: *name"),
        SMALL.replace("cmd: x", "<<: {cmd: x}"),
        "---\n" + SMALL,
        "%YAML 1.1\n---\n" + SMALL,
        SMALL.replace("  a:\n    cmd", "    a:\n        cmd").replace("  b: {cmd: y}", "    b: {cmd: y}"),
        SMALL + "stages:\n  a:\n    cmd: z\n",
        SMALL.replace("  b: {", "  a: {"),
        SMALL.replace("stages:\n", "stages: # what runs\n\n").replace("    cmd: x", "\tcmd: x"),
        "{stages: {a: {cmd: x}}}\n",
        '"stages":\n  a:\n    cmd: x\n',
        "",
    ],
)
def test_what_could_mean_something_else_is_not_cut(text):
    assert one_stage(text, "a") is None


@pytest.mark.parametrize("text", ["a: &x 1\none: 2\n", "{one: 2}\n", "one: 1\none: 2\n", "- one\n", ""])
def test_params_that_could_mean_something_else_are_not_cut(text):
    assert some_params(text, one_stage(SMALL, "a")) is None


def test_stars_and_ampersands_in_words_are_no_anchors():
    text = SMALL.replace("cmd: x", "cmd: rm a*b && cp 'a & b' \"*.txt\" 2>&1 # &c *d")
    assert "rm a*b" in (one_stage(text, "a") or "")


def test_dvc_reads_a_function_that_is_named_in_flow_style():
    """As the documentation writes it; a parser in C that ruamel.yaml takes where it finds one refuses the colon."""
    text = "judge: {function: stages.score.constraints:reward, weight: 1.0}\n"
    assert parse_yaml(text, "params.yaml") == {"judge": {"function": "stages.score.constraints:reward", "weight": 1.0}}
