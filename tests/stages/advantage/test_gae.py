"""GAE by hand, against the plain double sum, and in expectation by enumeration."""

import polars as pl
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stages.advantage.gae import gae, lambda_of, token_advantages
from stages.advantage.run import advantage_table
from stages.common.params import Gae
from stages.common.params_file import parse_params
from stages.common.signal import has_advantage
from stages.common.tables import KEY_SCHEMA, SCORES, TableError
from stages.enumeration.tabular import LENGTH, SEQUENCES, exact_gradient, groups, probabilities
from tests.stages.update.test_enumeration import all_tuples, close, expected_gradient, tabular
from tests.workspace import ROOT

VALUES = [0.5, 0.2, -0.1]


def frame(rows, **more):
    """Rows of the scores table: (score, values, token_kl)."""
    made = [
        {"iteration": 1, "prompt_id": "a", "sample": number, "kind": "sample"}
        | {"score": score, "task_reward": score, "values": values, "token_kl": kl or [0.0] * len(values)}
        for number, (score, values, kl) in enumerate(rows)
    ]
    schema = KEY_SCHEMA | {name: SCORES[name] for name in ("score", "task_reward", "values", "token_kl")}
    return pl.DataFrame(made, schema=schema).with_columns(**more)


def of_one(score, values, kl=None, beta=0.0, **options):
    row = gae(frame([(score, values, kl)]), Gae(**options), beta).row(0, named=True)
    return row["token_advantages"], row["returns"]


def near(values):
    return pytest.approx(values, abs=1e-6)  # the values are stored in float32


def test_three_tokens_by_hand():
    """The score 1 comes with the last token; gamma lam = .72.

    delta   0 + .9 * .2 - .5 = -.32        0 + .9 * -.1 - .2 = -.29        1 + 0 + .1 = 1.1
    A       -.32 + .72 * .502 = .04144     -.29 + .72 * 1.1 = .502         1.1
    """
    advantages, returns = of_one(1.0, VALUES, gamma=0.9, lam=0.8)
    assert advantages == near([0.04144, 0.502, 1.1])
    assert returns == near([0.54144, 0.702, 1.0])


def test_returns_by_another_lambda():
    """At lambda 1 they are the discounted score, whatever the values: .81, .9, 1."""
    advantages, returns = of_one(1.0, VALUES, gamma=0.9, lam=0.8, lam_critic=1.0)
    assert advantages == near([0.04144, 0.502, 1.1])
    assert returns == near([0.81, 0.9, 1.0])


def test_the_kl_of_each_token_is_a_reward():
    """beta .5: rewards -.1, .2, 1 - .3;  delta -.42, -.09, .8;  A -.42 + .72 * .486, -.09 + .72 * .8, .8."""
    advantages, _ = of_one(1.0, VALUES, [0.2, -0.4, 0.6], beta=0.5, gamma=0.9, lam=0.8)
    assert advantages == near([-0.07008, 0.486, 0.8])


def test_lambda_1_is_the_return_minus_the_value_and_lambda_0_the_error_of_one_step():
    assert of_one(2.0, VALUES, lam=1.0)[0] == near([1.5, 1.8, 2.1])
    assert of_one(2.0, VALUES, gamma=0.9, lam=0.0)[0] == near([0.9 * 0.2 - 0.5, 0.9 * -0.1 - 0.2, 2.1])


def test_lambda_by_length_by_hand():
    """alpha .5: three tokens 1 - 1/1.5, two 1 - 1/1, one would be -1 and is 0; alpha .05 at 100 tokens: .8."""
    adaptive = Gae(lam=None, lam_critic=1.0, length_adaptive=0.5)
    assert [lambda_of(adaptive, length) for length in (1, 2, 3, 20)] == pytest.approx([0.0, 0.0, 1 / 3, 0.9])
    assert lambda_of(Gae(lam=None, lam_critic=1.0, length_adaptive=0.05), 100) == pytest.approx(0.8)
    # delta at gamma 1: -.3, -.3, 1.1;  A: -.3 - .3/3 + 1.1/9, -.3 + 1.1/3, 1.1
    advantages, returns = of_one(1.0, VALUES, lam=None, lam_critic=1.0, length_adaptive=0.5)
    assert advantages == near([-0.4 + 1.1 / 9, -0.3 + 1.1 / 3, 1.1])
    assert returns == near([1.0, 1.0, 1.0])


unit = st.floats(0, 1)
tokens = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12)


@given(tokens, unit, unit)
def test_the_recursion_is_the_sum_of_the_definition(pairs, gamma, lam):
    rewards, values = map(list, zip(*pairs, strict=True))
    after = [*values[1:], 0.0]
    deltas = [r + gamma * n - v for r, n, v in zip(rewards, after, values, strict=True)]
    expected = [sum((gamma * lam) ** step * delta for step, delta in enumerate(deltas[t:])) for t in range(len(deltas))]
    assert token_advantages(rewards, values, gamma, lam) == pytest.approx(expected, abs=1e-9)


def test_rows_without_a_score_have_nothing_and_scores_without_values_are_refused():
    found = gae(frame([(None, VALUES, None), (1.0, [0.25], None)]), Gae(), 0.0)
    assert found["token_advantages"].to_list() == [None, [0.75]]
    assert found["returns"].to_list() == [None, [1.0]]
    assert found["baseline"].to_list() == [None, 0.25]
    assert found["advantage"].to_list() == [None, 0.75]
    with pytest.raises(TableError, match=r"made without one.*\n?.*sample=1"):
        gae(frame([(1.0, VALUES, None), (1.0, None, [0.0])]), Gae(), 0.0)


def whole(beta=0.1, placement="reward_to_go", **advantage):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw |= {"advantage": {"estimator": "gae"} | advantage, "critic": {}}
    raw["score"]["kl"] = {"beta": beta, "placement": placement}
    rows = [(1.0, VALUES, [0.2, -0.4, 0.6]), (None, [0.3], [0.1]), (0.0, [0.0, 0.0], [0.0, 0.0])]
    scores = frame(rows, accepted=pl.lit(True), ref_logprobs="values", length=pl.col("values").list.len())
    return advantage_table(scores, parse_params(raw, "params.yaml"), [])


def test_the_whole_table():
    table = whole(gae={"lam": 1.0})
    first, second, third = table.rows(named=True)
    assert first["token_advantages"] == near([1 - 0.04 - 0.5, 1 - 0.02 - 0.2, 1 - 0.06 + 0.1])  # the KL to go, once
    assert first["returns"] == near([0.96, 0.98, 0.94])
    assert (first["baseline"], first["advantage"]) == near((0.5, 0.5))
    assert (second["in_loss"], second["returns"]) == (False, None)
    assert second["values"] == near([0.3])  # carried on all the same
    assert third["reason"] == "counted: equal to its baseline, advantage 0"
    assert table.select(has_advantage()).to_series().to_list() == [True, None, False]


def test_a_value_that_hits_the_score_does_not_hide_the_signal_of_the_tokens():
    """Score 1 and first value 1: the view `advantage` is 0, but the tokens' own are not, and the row counts."""
    raw = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"advantage": {"estimator": "gae"}, "critic": {}}
    scores = frame(
        [(1.0, [1.0, 0.0], None)], accepted=pl.lit(True), ref_logprobs="values", length=pl.col("values").list.len()
    )
    (row,) = advantage_table(scores, parse_params(raw, "params.yaml"), []).rows(named=True)
    assert row["advantage"] == 0.0
    assert row["reason"] == "counted"


def test_normalising_and_clipping_act_on_tokens():
    tokens = whole(beta=0.0, placement="reward", normalise="batch")["token_advantages"].explode().drop_nulls()
    assert tokens.mean() == pytest.approx(0, abs=1e-6)
    assert tokens.std(ddof=0) == pytest.approx(1, abs=1e-6)
    clipped = whole(beta=0.0, placement="reward", gae={"lam": 1.0}, clip=0.6)
    assert clipped["token_advantages"][0].to_list() == near([0.5, 0.6, 0.6])
    assert clipped["returns"][0].to_list() == near([1.0, 1.0, 1.0])


def by_enumeration(value_of, beta=0.0, in_reward=True, **options):
    """Expected gradient over all nine sequences; `value_of`: V before the first token, and after each first one."""
    world, picks = tabular(beta if in_reward else 0.0), all_tuples(1)
    start, *after = value_of
    values = [[start, after[SEQUENCES[number][0]]] for number in picks[:, 0].tolist()]
    frame = groups(world, picks).with_columns(values=pl.Series(values, dtype=pl.List(pl.Float64)))
    table = gae(frame, Gae(**options), 0.0 if in_reward else beta)
    advantage = torch.tensor(table["token_advantages"].to_list(), dtype=torch.float64).view(-1, 1, LENGTH)
    return expected_gradient(tabular(beta), picks, advantage)


WRONG = (0.7, -1.3, 0.4, 2.0)


def true_values():
    """E[r] before the first token, and after each of the three: there is no KL here."""
    world = tabular(0.0)
    p, r = probabilities(world).view(3, 3), world.reward_S.view(3, 3)
    return (float((p * r).sum()), *((p * r).sum(dim=1) / p.sum(dim=1)).tolist())


@pytest.mark.parametrize("in_reward", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_at_gamma_and_lambda_1_any_values_are_unbiased(beta, in_reward):
    close(by_enumeration(WRONG, beta, in_reward, lam=1.0), exact_gradient(tabular(beta)))


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95])
def test_below_1_only_true_values_are(lam):
    exact = exact_gradient(tabular(0.0))
    close(by_enumeration(true_values(), lam=lam), exact)
    assert (by_enumeration(WRONG, lam=lam) - exact).norm() > 1e-2 * exact.norm()


def test_a_discount_is_a_bias_too():
    exact = exact_gradient(tabular(0.0))
    assert (by_enumeration(true_values(), gamma=0.5, lam=1.0) - exact).norm() > 1e-2 * exact.norm()
