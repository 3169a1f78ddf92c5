"""The extraction rules, by hand."""

import pytest

from stages.score.extract import check_rule, extracted, gold_of
from stages.score.outcome import Unscorable


@pytest.mark.parametrize(
    ("rule", "text", "found"),
    [
        ("whole", "  two\nlines \n", "two\nlines"),
        ("whole", " \n ", None),
        ("last_line", "first\nsecond \n\n", "second"),
        ("last_line", "", None),
        ("last_number", "from 3 to 1,234.50 dollars.", "1,234.50"),
        ("last_number", "it lost -5% then", "-5%"),
        ("last_number", "pay $1,000", "$1,000"),
        ("last_number", "a 3-5 split", "5"),
        ("last_number", "between 1 1/2 and 3/4 cup", "3/4"),
        ("last_number", "it weighs 3,5 kg", "3,5"),  # a decimal comma is found whole, not as 5
        ("last_number", "none at all", None),
        ("boxed", r"so \boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", r"\boxed{5} and \boxed{6", "5"),  # the last one whose braces close
        ("boxed", r"\fboxed {7}", "7"),
        ("boxed", r"\boxed{}", None),
        ("boxed", "boxed{5}", None),
        ({"after": "####"}, "a\n#### 1\nb\n#### 1,234 \nc", "1,234"),
        ({"after": "####"}, "a #### ", None),
        ({"after": "####"}, "nothing", None),
        ({"tag": "answer"}, "<answer>1</answer> <answer> 2 </answer>", "2"),
        ({"tag": "answer"}, "<answer>1</answer><answer>2", "1"),  # the last complete one
        ({"tag": "answer"}, "<answer>old <answer>new</answer>", "new"),
        ({"tag": "answer"}, "<answer>1</answer> stray </answer>", "1"),
        ({"tag": "answer"}, "</answer>", None),
        ({"pattern": r"[Aa]nswer: (\w+)"}, "Answer: a, no, answer: b", "b"),
        ({"pattern": r"x(\d)?"}, "x", None),
    ],
)
def test_by_hand(rule, text, found):
    check_rule(rule, "extract")
    assert extracted(text, rule) == found


@pytest.mark.parametrize(
    ("rule", "tail", "text", "found"),
    [
        ({"tag": "answer"}, "<answer>", "5</answer>", "5"),
        ({"tag": "answer"}, "", "5</answer>", None),
        ({"after": "####"}, "#### ", "5\nmore", "5"),
        ("boxed", r"\boxed{", "5} ok", "5"),
        ("whole", "<think>", "5", "5"),  # what is no beginning of the answer stays out
    ],
)
def test_what_the_template_opened_counts(rule, tail, text, found):
    assert extracted(text, rule, tail) == found


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("first_line", "is no rule"),
        (None, "is no rule"),
        ({}, "is no rule"),
        ({"after": "a", "tag": "b"}, "is no rule"),
        ({"after": ""}, "not empty"),
        ({"tag": "<answer>"}, "tag is a name"),
        ({"pattern": "("}, "does not compile"),
        ({"pattern": "abc"}, "exactly one group, and has 0"),
        ({"pattern": "(a)(b)"}, "exactly one group, and has 2"),
    ],
)
def test_what_is_no_rule_is_told(rule, told):
    with pytest.raises(ValueError, match=r"^numeric: extract: ") as error:
        check_rule(rule, "numeric: extract")
    assert told in str(error.value)


def test_golden_answers():
    assert gold_of(["x #### 5", "y #### 6"], {"after": "####"}) == ["5", "6"]
    assert isinstance(gold_of([], "whole"), Unscorable)
    missing = gold_of(["x #### 5", "y"], {"after": "####"})
    assert isinstance(missing, Unscorable)
    assert "'y'" in missing.reason
