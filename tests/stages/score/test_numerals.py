"""Numbers as they are written: a table by hand, and that whatever is generated is read back."""

import time
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.score.numerals import NUMBER, numeral


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-3", -3),
        ("+3", 3),
        ("\u22123", -3),
        ("- 3", -3),
        ("007", 7),
        ("1,234.5", F("1234.5")),
        ("1,234,567", 1234567),
        ("1\u2009234", 1234),
        ("1\u202f234\u202f567", 1234567),
        ("1_234", 1234),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (".5", F(1, 2)),
        ("5.", 5),
        ("3/4", F(3, 4)),
        ("-3/4", F(-3, 4)),
        ("1 1/2", F(3, 2)),
        ("-1 1/2", F(-3, 2)),
        ("1\u00bd", F(3, 2)),
        ("\u00be", F(3, 4)),
        (r"\frac{3}{4}", F(3, 4)),
        (r"-2\frac{1}{2}", F(-5, 2)),
        ("2e-3", F(1, 500)),
        ("1E5", 100000),
        ("2 x 10^3", 2000),
        (r"2.5 \times 10^{-1}", F(1, 4)),
        ("$1,234", 1234),
        ("-$5.50", F("-5.5")),
        ("$-5", -5),
        (r"\$5", 5),
        ("\u20ac 5", 5),
        ("5 \u20ac", 5),
        ("5 USD", 5),
        ("72 clips", 72),
        ("9.8 m/s^2", F("9.8")),
        ("10 cm2", 10),
        ("60\u00b0", 60),
        (r"3\text{ cm}", 3),
        ("$5$", 5),
        (r"\(5\)", 5),
        ("**5**", 5),
        ("5!", 5),
    ],
)
def test_by_hand(text, value):
    found = numeral(text)
    assert found is not None
    assert (found.value, found.percent) == (value, False)


@pytest.mark.parametrize("text", ["12.5%", r"12.5\%", "12.5 percent", "12.5 per cent", "12.5 %"])
def test_percent_is_kept_beside_the_number(text):
    found = numeral(text)
    assert found is not None
    assert (found.value, found.percent) == (F("12.5"), True)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "five", "$", "-", "3,5", "1,23", "12,34,567", "1,2345", "5 or 6", "3:4", "3-5", "1/0", "1.2.3"),
        *("--5", "0x10", "1e999", "10^3", "5 apples and 3 pears", "x = 5", "1 234", "NaN", "inf", "9" * 401),
        "5 " + "word " * 2000,
    ],
)
def test_what_can_be_read_in_two_ways_or_none_is_not_read(text):
    assert numeral(text) is None


def test_variables_are_no_units():
    assert numeral("5x", units=False) is None
    assert numeral("5", units=False) is not None


@given(st.integers(), st.integers(1, 10**6), st.sampled_from([",", "_", "\u2009"]))
def test_what_is_written_is_read(number, divisor, separator):
    assert numeral(f"{number:,}".replace(",", separator)).value == number
    assert numeral(f"{number}/{divisor}").value == F(number, divisor)
    assert numeral(f"{number / 8:.3f} kg").value == F(f"{number / 8:.3f}")
    assert [m.group() for m in NUMBER.finditer(f"so it is {number}, not")] == [str(number)]


@pytest.mark.parametrize(
    "text",
    ["5 " + "a" * 1990 + "1 1", "5" + " a" * 900 + "!1", "1" + ",234" * 400 + "x", "1/" * 900, "- " * 900, "5a2" * 600],
)
def test_no_text_keeps_the_reader_long(text):
    start = time.monotonic()
    numeral(text)
    list(NUMBER.finditer(text * 10))
    assert time.monotonic() - start < 1.0
