"""Numeric match, by hand and on GSM8K."""

import json
import os
from pathlib import Path

import pytest

from stages.score.numeric_match import check, numeric_match
from stages.score.outcome import Unscorable

DATA = Path(os.environ.get("RLOO_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))


@pytest.mark.parametrize(
    ("answer", "gold", "arguments", "reward"),
    [
        ("The answer is 1,234.", "1234", {}, 1.0),
        ("1234.0", 1234, {}, 1.0),
        ("-5", "5", {}, 0.0),
        ("\u22125", "-5", {}, 1.0),
        ("It costs $18.00", "18", {}, 1.0),
        ("1/3", "2/6", {}, 1.0),
        ("0.333", "1/3", {}, 0.0),
        ("0.333", "1/3", {"absolute": 0.001}, 1.0),
        ("0.332", "1/3", {"absolute": 0.001}, 0.0),
        ("101", "100", {"relative": 0.01}, 1.0),
        ("101.1", "100", {"relative": 0.01}, 0.0),
        ("99", "-100", {"relative": 0.01}, 0.0),
        ("0.3", 0.1 + 0.2, {"relative": 1e-9}, 1.0),
        ("50%", "0.5", {}, 1.0),
        ("50%", "50", {}, 1.0),
        ("0.5", "50%", {}, 1.0),
        ("50", "50%", {}, 1.0),
        ("0.5%", "50%", {}, 0.0),
        ("1 1/2 cups", "1.5", {}, 1.0),
        ("3,5", "5", {}, 0.0),  # not read as 5
        ("no number", "5", {}, 0.0),
        ("no number", "5", {"missing_reward": -1.0}, -1.0),
        ("7", ["6", "7"], {}, 1.0),
        ("so 5\n#### 72", "48+24 = 72\n#### 72", {"gold_extract": {"after": "####"}}, 1.0),
        ("1234", "#### 1,234", {"gold_extract": {"after": "####"}}, 1.0),
        (r"\boxed{72} of 80", "72", {"extract": "boxed"}, 1.0),
    ],
)
def test_by_hand(answer, gold, arguments, reward):
    check(**arguments)
    assert numeric_match([answer], answer=[gold], **arguments) == [reward]


@pytest.mark.parametrize("gold", ["five", "3,5", "5 or 6", "", None])
def test_a_golden_answer_that_is_no_number_makes_its_row_unscorable_not_everyone_wrong(gold):
    rewards = numeric_match(["5", "5", "nothing"], answer=[gold, "5", gold])
    assert isinstance(rewards[0], Unscorable)
    assert rewards[1] == 1.0
    assert isinstance(rewards[2], Unscorable)


@pytest.mark.parametrize(
    "arguments", [{"absolute": -1}, {"relative": float("inf")}, {"absolute": "1"}, {"column": None}]
)
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=f"numeric_match: {next(iter(arguments))}"):
        check(**arguments)


@pytest.mark.skipif(not (DATA / "gsm8k_test.jsonl").exists(), reason="no ../shared/data")
def test_every_golden_answer_of_gsm8k_is_read_and_matches_itself():
    rows = [json.loads(line) for line in (DATA / "gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines()]
    golds = [row["answer"] for row in rows]
    arguments = {"extract": {"after": "####"}, "gold_extract": {"after": "####"}}
    assert numeric_match(golds, answer=golds, **arguments) == [1.0] * 1319
    wrong = numeric_match(golds[1:] + golds[:1], answer=golds, **arguments)
    same = [a.split("####")[1] == b.split("####")[1] for a, b in zip(golds, golds[1:] + golds[:1], strict=True)]
    assert wrong == [float(one) for one in same]
