"""Bad inputs of `rloo rescore` and `rloo diff`: each is told with place and remedy, and nothing is written."""

import shutil

import polars as pl
import pytest

from pipeline.cli import main

CONSTRAINTS = "stages.score.constraints:reward"


@pytest.fixture(scope="module")
def project(reference, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals") / "project"
    shutil.copytree(reference.folder, folder, symlinks=True)
    return folder


@pytest.fixture
def folder(project, monkeypatch):
    monkeypatch.chdir(project)
    return project


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    found = capsys.readouterr()
    assert exit_.value.code == 1, found
    assert found.err.startswith("rloo: ")
    return found.err


def edit(path, old, new):
    """Change the text of a file until the test ends."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scores", "--rewards", CONSTRAINTS], "NAME 'scores' stands for the run's own tables"),
        (["i0001", "--rewards", CONSTRAINTS], "NAME 'i0001' is the name of an iteration"),
        (["../x", "--rewards", CONSTRAINTS], "NAME '../x': names begin with a letter"),
        (["x", "--rewards", "brief"], "--rewards 'brief': expected a YAML file"),
        (["x", "--rewards", "none.yaml"], "--rewards none.yaml: no such file"),
        (["x", "--rewards", CONSTRAINTS, "--iterations", "i0009"], "no iteration i0009; the plan has i0001 to i0002"),
        (["x", "--rewards", CONSTRAINTS, "--iterations", "two"], "--iterations 'two': 'two' is not the name"),
        (["x", "--rewards", CONSTRAINTS, "--iterations", "i0002-i0001"], "the first comes before the last"),
        (["x", "--rewards", "nowhere.at_all:f"], "--rewards: f.function = 'nowhere.at_all:f': no module 'nowhere'"),
        (["x", "--rewards", "nowhere.py:f"], "--rewards: f.function = 'nowhere.py:f': nowhere.py: no such file"),
        (["x", "--rewards", "stages.score.constraints:none"], "--rewards: none.function"),
    ],
)
def test_rescore_refuses(folder, capsys, arguments, message):
    assert message in refused(capsys, "rescore", *arguments)
    assert not (folder / "data/rescored").exists()


OVERLONG = "stages.score.overlong:soft_overlong"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"rewards: {{a: {{function: '{OVERLONG}', arguments: {{max_length: 4, cash: 1}}}}}}",
            "rewards.a.arguments",
        ),
        (f"a: {{function: '{OVERLONG}', arguments: {{max_length: 4, cache: 9}}}}", "bad.yaml: a.arguments: "),
        ("a: {model: helpful}", "bad.yaml: a.model = 'helpful' is none of reward_models in params.yaml: none"),
        (f"a: {{function: '{OVERLONG}', weigth: 1}}", "bad.yaml: a.weigth: no such option"),
        ("a: {function: 'stages.score.constraints:reward', arguments: {x: .nan}}", "cannot be written as JSON"),
    ],
)
def test_a_file_of_rewards_is_refused_with_its_key(folder, capsys, text, message):
    (folder / "bad.yaml").write_text(text)
    assert message in refused(capsys, "rescore", "x", "--rewards", "bad.yaml")
    assert not (folder / "data/rescored").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("estimator: rloo", "estimator: gae", "has no values of a critic, which advantage.estimator gae takes"),
        ("estimator: rloo", "estimator: remax", "has no greedy completions, which advantage.estimator remax"),
        ("outcome_reward: null", "outcome_reward: varied", "--rewards: no reward 'varied', by which advantage.outcome"),
    ],
)
def test_an_estimator_that_the_old_tables_cannot_serve(folder, capsys, old, new, message):
    path = folder / "params.yaml"
    text = edit(path, old, new)
    if "gae" in new:
        path.write_text(path.read_text().replace("\ncritic: null", "\ncritic: {learning_rate: 1.0e-5}"))
    if "remax" in new:
        path.write_text(path.read_text().replace("greedy: false", "greedy: true"))
    try:
        assert message in refused(capsys, "rescore", "x", "--rewards", CONSTRAINTS)
    finally:
        path.write_text(text)
    assert not (folder / "data/rescored").exists()


def changed(path, change):
    """Another table in place of the one at `path`, whose bytes are returned."""
    before = path.read_bytes()
    frame = pl.read_parquet(path)
    path.unlink()  # it may be a name of a file in DVC's cache
    change(frame).write_parquet(path)
    return before


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("rollouts", lambda f: f.head(5), "every row is also in data/iterations/i0001/rollouts.parquet"),
        ("scores", lambda f: f.head(5), "every row is also in data/iterations/i0001/scores.parquet"),
        ("rollouts", lambda f: f.drop("length"), "rollouts.parquet: column length should be Int32, found None"),
        (
            "rollouts",
            lambda f: f.with_columns(pl.col("sampler_logprobs").list.eval(pl.element() - 1)),
            "scores.parquet: 9 row(s) violate: made of data/iterations/i0001/rollouts.parquet as it is now",
        ),
        (
            "scores",
            lambda f: f.with_columns(kl=pl.lit(None, dtype=pl.Float64)),
            "has no KL: it was made with score.kl.beta 0, and params.yaml has 0.04",
        ),
        ("rollouts", lambda f: f.with_columns(prompt_id=pl.lit("x") + pl.col("prompt_id")), "its prompt is in"),
        ("rollouts", lambda f: f.with_columns(accepted=pl.lit(value=False)), "as it is now"),
    ],
)
def test_tables_that_do_not_belong_together(folder, capsys, table, change, message):
    path = folder / f"data/iterations/i0001/{table}.parquet"
    manifest = folder / f"data/manifests/i0001/{table.removesuffix('s')}.json"
    before, listed = changed(path, change), manifest.read_bytes()
    assert f"{table}.parquet: damaged" in refused(capsys, "rescore", "x", "--rewards", CONSTRAINTS)
    manifest.unlink()  # then the table counts as it is
    try:
        assert message in refused(capsys, "rescore", "x", "--rewards", CONSTRAINTS)
    finally:
        path.write_bytes(before)
        manifest.write_bytes(listed)
    assert not (folder / "data/rescored").exists()


def test_iterations_without_files(folder, capsys):
    for table in ("scores", "rollouts"):
        path = folder / f"data/iterations/i0002/{table}.parquet"
        before = path.read_bytes()
        path.unlink()
        try:
            told = refused(capsys, "rescore", "x", "--rewards", CONSTRAINTS, "--iterations", "i0001-i0002")
        finally:
            path.write_bytes(before)
        assert f"data/iterations/i0002/{table}.parquet does not exist" in told


def test_broken_manifest(folder, capsys):
    path = folder / "data/rescored/x/i0001/made_of.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    try:
        told = refused(capsys, "rescore", "x", "--rewards", CONSTRAINTS)
    finally:
        shutil.rmtree(folder / "data/rescored")
    assert "made_of.json: cannot be read as JSON" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scores", "scores"], "A and B are both scores"),
        (["scores@i0001", "scores@i0001"], "A and B are both scores"),
        (["scores", "nobody"], "no tables called 'nobody'; there are scores"),
        (["scores@i0001", "scores@i0002"], "i0001 and i0002 are different iterations"),
        (["scores@i0001", "scores", "--iteration", "i0002"], "i0001 and i0002 are different iterations"),
        (["scores@3", "scores"], "'3' is not the name of an iteration"),
        (["scores", "other", "--out", "x.xlsx"], "--out x.xlsx: the name must end in .csv or .parquet"),
        (["scores", "empty"], "scores and empty have no iteration in common"),
        (["scores", "empty@i0001"], "data/rescored/empty/i0001 has no tables of scores and advantages"),
        (["scores", "empty", "--iteration", "i0007"], "i0007 is no iteration of pipeline/plan.yaml"),
    ],
)
def test_diff_refuses(folder, capsys, arguments, message):
    (folder / "data/rescored/empty").mkdir(parents=True)
    try:
        assert message in refused(capsys, "diff", *arguments)
    finally:
        shutil.rmtree(folder / "data/rescored")


def test_diff_refuses_advantages_of_other_scores(folder, capsys):
    shutil.copytree(folder / "data/iterations/i0001", folder / "data/rescored/x/i0001")
    path, manifest = (
        folder / "data" / at for at in ("iterations/i0001/advantages.parquet", "manifests/i0001/advantage.json")
    )
    before, listed = changed(path, lambda frame: frame.with_columns(pl.col("score") + 1)), manifest.read_bytes()
    manifest.unlink()  # then the table counts as it is
    try:
        told = refused(capsys, "diff", "scores", "x")
    finally:
        path.write_bytes(before)
        manifest.write_bytes(listed)
        shutil.rmtree(folder / "data/rescored")
    assert "advantages.parquet was made of other scores than" in told
