"""The gate: a good table passes, and one broken value is refused with the key of its row."""

import polars as pl
import pytest

from stages.common.gate import (
    check_advantages,
    check_centred,
    check_reference,
    check_returns,
    check_rollouts,
    check_same_keys,
    check_scores,
    check_token_values,
    check_training_rows,
    refuse,
)
from stages.common.tables import KEY_SCHEMA, TableError

KEYS = [{"iteration": 3, "prompt_id": prompt, "sample": s, "kind": "sample"} for prompt in ("p1", "p2") for s in (0, 1)]
ROLLOUT = {
    "completion_ids": [5, 6, 7],
    "sampler_logprobs": [-0.5, 0.0, -3.0],
    "length": 3,
    "accepted": True,
}
SIGNAL = [(1.0, 1.0), (0.0, -1.0), (2.0, 0.5), (1.5, -0.5)]  # score and advantage of each row
SCORE = {"task_reward": 1.0, "score": 0.9, "accepted": True, "in_baseline": True}
TYPES = KEY_SCHEMA | {
    "completion_ids": pl.List(pl.Int32()),
    "sampler_logprobs": pl.List(pl.Float32()),
    "length": pl.Int32(),
    "kl": pl.Float64(),
    "task_reward": pl.Float64(),
    "score": pl.Float64(),
    "in_baseline": pl.Boolean(),
    "accepted": pl.Boolean(),
    "advantage": pl.Float64(),
    "in_loss": pl.Boolean(),
    "token_advantages": pl.List(pl.Float64()),
    "values": pl.List(pl.Float32()),
    "returns": pl.List(pl.Float64()),
}
THIRD = "First: iteration=3, prompt_id=p2, sample=0, kind=sample"  # the row that is broken below


def frame(values, changes=None, keys=KEYS):
    """A row of `values` for each key; the third row has the changes."""
    rows = [key | values for key in keys]
    rows[2] |= changes or {}
    return pl.DataFrame(rows, schema={name: TYPES[name] for name in rows[0]})


def advantages(changes=None):
    rows = [
        key | {"score": s, "advantage": a, "in_loss": a is not None, "length": 2, "token_advantages": None}
        for key, (s, a) in zip(KEYS, SIGNAL, strict=True)
    ]
    rows[2] |= changes or {}
    return pl.DataFrame(rows, schema={name: TYPES[name] for name in rows[0]})


def test_good_rollouts_pass():
    check_rollouts(frame(ROLLOUT), samples_per_prompt=2)


def test_prompt_drawn_twice_has_twice_the_samples():
    keys = [{"iteration": 1, "prompt_id": "p", "sample": s, "kind": "sample"} for s in range(4)]
    check_rollouts(frame(ROLLOUT, keys=keys), samples_per_prompt=2)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"length": 2}, "length is the number of completion ids"),
        ({"completion_ids": [5, 6]}, "length is the number of completion ids"),
        ({"sampler_logprobs": [-0.5, -0.5]}, "one log-prob for each completion id"),
        ({"completion_ids": [], "sampler_logprobs": [], "length": 0}, "at least one token"),
        ({"sampler_logprobs": [-0.5, float("nan"), -1.0]}, "log-probs are finite and at most 0"),
        ({"sampler_logprobs": [-0.5, float("-inf"), -1.0]}, "log-probs are finite and at most 0"),
        ({"sampler_logprobs": [-0.5, 0.25, -1.0]}, "log-probs are finite and at most 0"),
        ({"prompt_id": "p3"}, "2 samples per prompt"),
        ({"accepted": False}, "a group is accepted as a whole"),
    ],
)
def test_broken_rollout_is_named(changes, rule):
    with pytest.raises(TableError) as error:
        check_rollouts(frame(ROLLOUT, changes), samples_per_prompt=2)
    message = str(error.value)
    assert message.startswith("rollouts: ")
    assert rule in message
    assert THIRD.replace("p2", changes.get("prompt_id", "p2")) in message


def test_prompt_without_all_its_samples_is_named():
    with pytest.raises(TableError, match=r"3 row.s. violate: 2 samples per prompt. First: iteration=3, prompt_id=p1"):
        check_rollouts(frame(ROLLOUT, {"prompt_id": "p1", "sample": 2}).head(3), samples_per_prompt=2)


def test_greedy_rows_do_not_count_as_samples():
    keys = [*KEYS, {"iteration": 3, "prompt_id": "p1", "sample": 0, "kind": "greedy"}]
    check_rollouts(frame(ROLLOUT, keys=keys), samples_per_prompt=2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task_reward": None, "score": None, "in_baseline": False},
        {"kind": "greedy", "in_baseline": False},
        {"accepted": False, "in_baseline": False},
        {"task_reward": 0.0, "score": 0.0},
    ],
)
def test_good_scores_pass(changes):
    check_scores(frame(SCORE, changes))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"accepted": False}, "in_baseline are the accepted samples with a task reward"),
        ({"in_baseline": False}, "in_baseline are the accepted samples with a task reward"),
        ({"task_reward": None, "score": None}, "in_baseline are the accepted samples with a task reward"),
        ({"score": None}, "scorable rows have a score"),
        ({"task_reward": None, "in_baseline": False}, "scorable rows have a score"),
        ({"score": float("nan")}, "score is finite"),
        ({"score": float("-inf")}, "score is finite"),
    ],
)
def test_broken_score_is_named(changes, rule):
    with pytest.raises(TableError) as error:
        check_scores(frame(SCORE, changes))
    assert str(error.value) == f"scores: 1 row(s) violate: {rule}. {THIRD}"


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        pytest.param(check_scores, {"in_baseline": None}, id="in_baseline"),
        pytest.param(lambda f: check_rollouts(f, 2), {"sampler_logprobs": None}, id="sampler_logprobs"),
        pytest.param(lambda f: check_rollouts(f, 2), {"sampler_logprobs": [-1.0, None, -1.0]}, id="one log-prob"),
        pytest.param(lambda f: check_rollouts(f, 2), {"length": None}, id="length"),
    ],
)
def test_null_does_not_slip_through(check, changes):
    values = SCORE if check is check_scores else ROLLOUT
    with pytest.raises(TableError):
        check(frame(values, changes))


def test_same_keys_pass_whatever_their_order():
    one = frame(SCORE)
    check_same_keys(one, one.reverse(), "scores", "rollouts")


@pytest.mark.parametrize("column", ["iteration", "prompt_id", "sample", "kind"])
def test_row_that_the_other_table_lacks_is_named(column):
    other = {"iteration": 4, "prompt_id": "p9", "sample": 7, "kind": "greedy"}[column]
    with pytest.raises(TableError) as error:
        check_same_keys(frame(SCORE, {column: other}), frame(SCORE), "scores", "rollouts")
    assert "scores: 1 row(s) violate: every row is also in rollouts" in str(error.value)
    assert f"{column}={other}" in str(error.value)


def test_row_that_this_table_lacks_is_named():
    with pytest.raises(TableError, match=r"every row is also in scores\. First: .*prompt_id=p2, sample=1"):
        check_same_keys(frame(SCORE).head(3), frame(SCORE), "scores", "rollouts")


def check_all(frame):
    check_advantages(frame)
    check_centred(frame)


def test_good_advantages_pass():
    check_all(advantages())


def test_unscorable_rows_have_no_advantage_and_pass():
    check_all(
        advantages().with_columns(
            pl.when(pl.col("prompt_id") != "p2").then(pl.col("score", "advantage")),
            in_loss=pl.col("prompt_id") != "p2",
        )
    )


def test_large_scores_may_round():
    large = advantages().with_columns(score=pl.col("score") * 1e9, advantage=pl.col("advantage") * 1e9 + 0.1)
    check_all(large)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_loss": False}, f"1 row(s) violate: an advantage exactly where in_loss. {THIRD}"),
        ({"advantage": None}, f"1 row(s) violate: an advantage exactly where in_loss. {THIRD}"),
        ({"advantage": float("nan")}, f"1 row(s) violate: advantage is finite. {THIRD}"),
        ({"token_advantages": [0.5]}, f"1 row(s) violate: one for each token. {THIRD}"),
        ({"token_advantages": [0.5, None]}, f"1 row(s) violate: token advantages are finite. {THIRD}"),
        ({"token_advantages": [0.5, float("inf")]}, f"1 row(s) violate: token advantages are finite. {THIRD}"),
        ({"advantage": 0.5 + 1e-7}, f"2 row(s) violate: the advantages of a group sum to 0. {THIRD}"),
        ({"advantage": -0.5}, f"2 row(s) violate: the advantages of a group sum to 0. {THIRD}"),
    ],
)
def test_broken_advantage_is_named(changes, message):
    with pytest.raises(TableError) as error:
        check_all(advantages(changes))
    assert str(error.value) == f"advantages: {message}"


NAN = float("nan")
OF_CRITIC = {"length": 2, "values": [0.5, -0.5], "token_advantages": [0.1, 0.2], "returns": [0.6, -0.3]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": [0.5]}, "one value for each token"),
        ({"values": [0.5, NAN]}, "values are finite"),
        ({"values": [0.5, None]}, "values are finite"),
        ({"values": None}, None),  # a run without a critic has none
    ],
)
def test_broken_value_is_named(changes, message):
    if message is None:
        check_token_values(frame(OF_CRITIC, changes))
        return
    with pytest.raises(TableError) as error:
        check_token_values(frame(OF_CRITIC, changes))
    assert str(error.value) == f"scores: 1 row(s) violate: {message}. {THIRD}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"returns": None}, "returns of every row in the loss"),
        ({"token_advantages": None}, "returns of every row in the loss"),
        ({"returns": [0.5]}, "one return for each of token_advantages"),
        ({"values": [0.5]}, "one return for each of values"),
        ({"values": None}, "one return for each of values"),
        ({"returns": [0.5, NAN]}, "returns are finite"),
        ({"returns": None, "token_advantages": None}, None),  # not scorable
    ],
)
def test_broken_return_is_named(changes, message):
    if message is None:
        check_returns(frame(OF_CRITIC, changes))
        return
    with pytest.raises(TableError) as error:
        check_returns(frame(OF_CRITIC, changes))
    assert str(error.value) == f"advantages: 1 row(s) violate: {message}. {THIRD}"


def test_sums_are_taken_per_group_not_over_the_table():
    shifted = advantages().with_columns(
        advantage=pl.col("advantage") + pl.when(pl.col("prompt_id") == "p1").then(0.1).otherwise(-0.1)
    )
    assert abs(shifted["advantage"].sum()) < 1e-12
    with pytest.raises(TableError, match=r"4 row.s. violate: the advantages of a group sum to 0"):
        check_all(shifted)


def test_refuse_names_the_first_row_by_any_key():
    two = pl.DataFrame({"step": [1, 2, 3], "loss": [0.0, -1.0, -2.0]})
    with pytest.raises(TableError) as error:
        refuse(two, pl.col("loss") < 0, "steps", "loss is not negative", key=("step",))
    assert str(error.value) == "steps: 2 row(s) violate: loss is not negative. First: step=2"
    refuse(two, pl.col("loss") > 0, "steps", "loss is not positive", key=("step",))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"token_advantages": [0.1, 0.2, 0.3]}, None),
        ({"token_advantages": [0.1, 0.2]}, "one token advantage per completion id, made of these rollouts"),
        ({"ref_logprobs": [-1.0]}, "one reference log-prob per completion id, made of these rollouts"),
        ({"ref_logprobs": None}, "one reference log-prob per completion id, made of these rollouts"),
    ],
)
def test_tables_of_other_rollouts_are_refused_before_a_step(changes, told):
    values = {"completion_ids": [5, 6, 7], "ref_logprobs": [-1.0, -1.0, -1.0], "token_advantages": None}
    rows = [key | values for key in KEYS]
    rows[2] |= changes
    schema = {name: TYPES[name] for name in rows[0] if name != "ref_logprobs"} | {"ref_logprobs": pl.List(pl.Float64())}
    table = pl.DataFrame(rows, schema=schema)
    if told is None:
        check_training_rows(table, needs_reference=True)
        return
    with pytest.raises(TableError, match=told) as error:
        check_training_rows(table, needs_reference=True)
    assert str(error.value).endswith(THIRD)
    if "ref_logprobs" in changes:
        check_training_rows(table, needs_reference=False)


OF_REFERENCE = {
    "length": 2,
    "ref_logprobs": [-1.0, -0.5],
    "token_kl": [0.5, 0.0],
    "ref_logp_sum": -1.5,
    "kl": 0.5,
}
LISTS = {"ref_logprobs": pl.List(pl.Float32()), "token_kl": pl.List(pl.Float32()), "ref_logp_sum": pl.Float64()}


def referenced(values, changes):
    rows = [key | values for key in KEYS]
    rows[2] |= changes
    return pl.DataFrame(rows, schema={name: (TYPES | LISTS)[name] for name in rows[0]})


@pytest.mark.parametrize(
    ("wanted", "changes", "told"),
    [
        (True, {}, None),
        (True, {"kl": None}, "kl is finite"),
        (True, {"kl": float("nan")}, "kl is finite"),
        (True, {"kl": float("inf")}, "kl is finite"),
        (True, {"ref_logprobs": None}, "one reference log-prob per token"),
        (True, {"ref_logprobs": [-1.0]}, "one reference log-prob per token"),
        (True, {"token_kl": None}, "one KL per token"),
        (False, {}, None),
        (False, {"kl": 0.0}, "beta is 0: no row has anything of a reference"),
        (False, {"ref_logprobs": [-1.0, -0.5]}, "beta is 0: no row has anything of a reference"),
        (False, {"ref_logp_sum": 0.0}, "beta is 0: no row has anything of a reference"),
    ],
)
def test_all_rows_have_a_reference_or_none_has(wanted, changes, told):
    values = OF_REFERENCE if wanted else dict.fromkeys(OF_REFERENCE) | {"length": 2}
    table = referenced(values, changes)
    if told is None:
        check_reference(table, wanted=wanted)
        return
    with pytest.raises(TableError, match=told) as error:
        check_reference(table, wanted=wanted)
    assert str(error.value).endswith(THIRD)
