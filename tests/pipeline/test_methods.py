"""Other methods than plain RLOO, end to end on a tiny random model: what their tables hold, and the comparison."""

import polars as pl
import pytest


def table(workspace, name, iteration="i0001"):
    return pl.read_parquet(workspace.folder / f"data/iterations/{iteration}/{name}.parquet")


@pytest.fixture(scope="module")
def workspace(new_workspace):
    """One workspace with a worker; the tests change its params."""
    made = new_workspace()
    made.plan(2)
    with made.warm():
        yield made


def set_up(workspace, **changes):
    for key, value in changes.items():
        workspace.change(key.replace("__", "."), value)


@pytest.fixture
def remax(workspace):
    set_up(workspace, rollout__greedy=True, advantage__estimator="remax")
    workspace.run("dvc", "repro", "update@i0001")
    yield workspace
    set_up(workspace, rollout__greedy=False, advantage__estimator="rloo")


def test_remax_compares_with_a_greedy_row_that_is_never_trained_on(remax, reference):
    rollouts, advantages = table(remax, "rollouts"), table(remax, "advantages")
    greedy = rollouts.filter(kind="greedy")
    assert greedy["prompt_id"].n_unique() == greedy.height == 3
    samples = rollouts.filter(kind="sample")
    assert samples.equals(table(reference, "rollouts"))  # not a bit of the samples depends on it
    baseline = table(remax, "scores").filter(kind="greedy").select("prompt_id", expected="score")
    compared = advantages.filter(kind="sample").join(baseline, on="prompt_id")
    assert (compared["baseline"] == compared["expected"]).all()
    assert (compared["advantage"] == compared["score"] - compared["expected"]).all()
    left_out = advantages.filter(kind="greedy")
    assert not left_out["in_loss"].any()
    assert set(left_out["reason"]) == {"greedy completion: a baseline, never in the loss"}
    assert set(left_out["group_size"]) == {3}
    assert table(remax, "steps")["rows"].to_list() == [9]


def test_compare_writes_estimators_side_by_side(remax):
    output = remax.run("rloo", "compare", "i0001", "--estimators", "rloo,reinforce,grpo,dr_grpo,remax,moving_average")
    frame = pl.read_parquet(remax.folder / "data/compare/i0001.parquet").filter(kind="sample")
    rloo, dr_grpo = frame["advantage/rloo"], frame["advantage/dr_grpo"]
    assert (dr_grpo - rloo * 2 / 3).abs().max() < 1e-12
    assert frame["sign_change/dr_grpo"].sum() == 0
    differs = (frame["advantage/reinforce"].sign() * rloo.sign()) < 0
    assert frame["sign_change/reinforce"].to_list() == differs.to_list()
    assert differs.sum() > 0
    assert frame["advantage/remax"].to_list() == table(remax, "advantages").filter(kind="sample")["advantage"].to_list()
    assert (frame["advantage/moving_average"] == frame["score"]).all()  # the first iteration has no past
    cosines = [line.split() for line in output.splitlines() if "dr_grpo" in line][-1]
    assert "1.000" in cosines[3]  # rloo and dr_grpo: the same direction
    assert "remax compares with greedy" not in output


def test_compare_refuses_what_it_cannot_compare(workspace, remax):
    assert "no estimator nonsense" in remax.fail("rloo", "compare", "i0001", "--estimators", "rloo,nonsense")
    assert "two or more different ones" in remax.fail("rloo", "compare", "i0001", "--estimators", "rloo")
    assert "i0009 is no iteration of pipeline/plan.yaml" in remax.fail("rloo", "compare", "i0009")


def test_remax_without_greedy_rows_is_refused_before_anything_runs(workspace):
    before = workspace.starts()
    workspace.change("advantage.estimator", "remax")
    output = workspace.fail("rloo", "train")
    workspace.change("advantage.estimator", "rloo")
    assert "params.yaml: advantage.estimator remax compares with greedy completions" in output
    assert workspace.computed_since(before) == set()


def test_a_moving_average_is_carried_in_the_table(workspace):
    workspace.change("advantage.estimator", "moving_average")
    workspace.run("dvc", "repro", "update@i0002")
    first, second = table(workspace, "advantages"), table(workspace, "advantages", "i0002")
    workspace.change("advantage.estimator", "rloo")
    mean = first["score"].mean()
    assert first["baseline"].to_list() == [0.0] * 9
    assert first["carried"].to_list() == [[pytest.approx(mean)]] * 9
    assert second["baseline"].to_list() == [pytest.approx(mean)] * 9
    assert second["carried"][0][0] == pytest.approx(0.9 * mean + 0.1 * second["score"].mean())


BUDGET = {"max_prompts": 8, "reward": "constraints"}


@pytest.fixture
def dynamic(workspace):
    """One group with a signal is wanted; the second prompt of this seed gives it."""
    set_up(workspace, seed=4, rollout__prompts_per_iteration=1, rollout__dynamic_sampling=BUDGET)
    workspace.run("dvc", "repro", "update@i0001")
    yield workspace
    set_up(workspace, seed=0, rollout__prompts_per_iteration=3, rollout__dynamic_sampling=None)


def test_dynamic_sampling_goes_on_until_groups_have_a_signal(dynamic):
    scores, advantages = table(dynamic, "scores"), table(dynamic, "advantages")
    groups = scores.group_by("prompt_id").agg(
        differs=pl.col("reward/constraints").n_unique() > 1, accepted=pl.col("accepted").first()
    )
    assert groups["differs"].to_list() == groups["accepted"].to_list()
    assert groups.height == 2
    assert groups["accepted"].sum() == 1
    rejected = advantages.join(groups.filter(~pl.col("accepted")), on="prompt_id", how="semi")
    assert not rejected["in_loss"].any()
    assert set(rejected["reason"]) == {"its group has no signal: left out by dynamic sampling"}
    assert table(dynamic, "steps")["rows"].to_list() == [3]
    assert table(dynamic, "rollouts")["position"].unique().sort().to_list() == [0, 1]


def test_rollouts_depend_on_the_rewards_only_with_dynamic_sampling(dynamic):
    def computed_after(option, value):
        before = dynamic.starts()
        dynamic.change(f"score.rewards.constraints.{option}", value)
        dynamic.run("dvc", "repro", "score@i0001")
        return dynamic.computed_since(before)

    assert "rollout i0001" not in computed_after("weight", 0.5)  # the reward itself decides, not the task reward
    assert "rollout i0001" in computed_after("rows_per_call", 2)
    dynamic.change("rollout.dynamic_sampling", None)
    dynamic.run("dvc", "repro", "score@i0001")
    assert computed_after("weight", 0.25) == {"prepare options", "prepare acceptance", "critic initial", "score i0001"}
    dynamic.change("score.rewards.constraints.weight", 1.0)
    dynamic.change("score.rewards.constraints.rows_per_call", None)


DAPO_LIKE = {
    "advantage.estimator": "grpo",
    "update.objective": "ppo",
    "update.reduction": "token_mean",
    "update.epochs": 2,
    "update.minibatches": 3,
    "update.entropy_bonus": 0.01,
    "update.importance_correction": {"form": "truncate"},
    "score.kl.placement": "loss",
    "score.kl.estimator": "k3",
}


def test_several_steps_with_ratio_kl_and_correction(new_workspace):
    made = new_workspace()
    made.plan(1, 1)
    for key, value in DAPO_LIKE.items():
        made.change(key, value)
    with made.warm():
        made.run("dvc", "repro")
        steps = table(made, "steps")
        assert steps["epoch"].to_list() == [1, 1, 1, 2, 2, 2]
        assert steps["rows"].to_list() == [3] * 6
        assert steps["ratio_mean"][0] == pytest.approx(1.0, abs=1e-4)
        assert steps["ratio_max"][-1] > 1.0
        assert steps["kl_loss"][0] == pytest.approx(0.0, abs=1e-6)  # the policy still is the reference
        assert steps["kl_loss"][-1] > 0
        assert steps["importance_mean"].to_list() == pytest.approx([1.0] * 6, abs=1e-3)
        assert steps["clip_high"].null_count() == 0
        assert (table(made, "scores")["score"] == table(made, "scores")["task_reward"]).all()
        history = pl.read_parquet(made.folder / "data/history.parquet").row(1, named=True)
        assert history["ratio/max"] == steps["ratio_max"].max()
        assert sum(history[f"grad_share/response_mean/q{n}"] for n in (1, 2, 3, 4)) == pytest.approx(1.0)
        assert "clipped high" in made.run("rloo", "show", "diagnostics")
        made.change("score.kl", {"beta": 0.04, "placement": "reward_to_go", "estimator": "k1"})
        made.run("dvc", "repro", "update@i0001")
        by_token = table(made, "advantages")
        assert by_token["token_advantages"].null_count() == by_token["advantage"].null_count()
        assert "with the KL to go" in made.run("rloo", "show", "rows", "i0001", "--count", "1")
