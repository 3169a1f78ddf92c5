r"""Numbers as people and models write them, read exactly.

    -3   +3   - 3   1,234.5   1 234 (thin or no-break space)   1_234   .5   3/4   1 1/2   1½   2e-3   2 x 10^3
    $1,234   € 5   5 USD   72 clips   9.8 m/s^2   12.5%   12.5 percent   \$5   1{,}234   \frac{3}{4}   $5$   **5**

What could be read in two ways is not read at all: a decimal comma (3,5), a comma that does not part thousands (1,23),
two numbers (5 or 6), a ratio (3:4). A percent sign is kept beside the number, as the comparison decides about it.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 400  # of a number, and of its exponent's effect: exact arithmetic on more is a way to hang a verifier
MAX_LENGTH = 2000  # characters of a text that may be one number

SEPARATORS = "\u2009\u202f\u00a0"
MINUS = r"\-\u2212\u2013"  # hyphen, minus sign, dash
TIMES = r"(?:\*|\u00d7|x|\u00b7|\\times|\\cdot)"
INTEGER = rf"(?:\d{{1,3}}(?:(?:,\d{{3}})+|(?:[{SEPARATORS}]\d{{3}})+|(?:_\d{{3}})+)(?![\d_])|\d+)"
DECIMAL = rf"(?:{INTEGER}(?:\.\d+|\.(?!\w))?|\.\d+)"
EXPONENT = rf"(?:[eE][+-]?\d+(?!\w)|\s*{TIMES}\s*10\s*\^\s*(?:\{{\s*[+-]?\d+\s*\}}|[+-]?\d+))"
FRACTION = rf"(?:\d+[ ]+\d+|{INTEGER})\s*/\s*{INTEGER}(?![\d.,]*\d)"
CURRENCY = r"(?:(?:US|A|C)?\\?\$|[€£¥₹])"
SIGN = rf"[+{MINUS}]"
PERCENT = r"(?:\\?%|percent\b|per\s+cent\b)"
VALUE = rf"(?:{FRACTION}|{DECIMAL}{EXPONENT}?)"

# As found in running text. A hyphen after a letter or a digit joins words (A-1, 3-5), and one before a blank begins a
# list item: neither is a sign. What cannot be read (3,5) is found as a whole: no part of it may pass for a number.
START = rf"(?:(?<![\w.)\]]){SIGN}{CURRENCY}?|(?<![\w.]){CURRENCY}\s?{SIGN}?|(?<![\w.,])|(?<=\D,))"
NUMBER = re.compile(rf"{START}(?:{VALUE}(?![,.]?\d)|\d[\d,.]*\d)(?:\s?{PERCENT})?")
WORD = rf"[^\W\d_]+(?:\^?\{{?[{MINUS}]?\d\}}?)?"
UNIT = rf"(?:\s*{WORD}(?:(?:\s*[/·*.]\s*|\s+){WORD}){{0,4}}|\s*[€£¥₹°$])?"
WHOLE = re.compile(
    rf"(?P<sign>{SIGN})?\s*{CURRENCY}?\s*(?P<late>{SIGN})?(?P<value>{VALUE})\s*(?P<percent>{PERCENT})?"
    rf"(?P<unit>{UNIT})\s*[.!]?"
)


@dataclass(frozen=True)
class Numeral:
    """A number as written: `12.5%` is the value 12.5 with `percent`."""

    value: Fraction
    percent: bool = False


def numeral(text: str, units: bool = True) -> Numeral | None:
    """The number that the whole text is; None if it is anything else, or if it can be read in two ways.

    `units` lets words follow the number, as in `72 clips`; where letters may be variables, they must not.
    """
    match = WHOLE.fullmatch(_plain(text)) if len(text) <= MAX_LENGTH else None
    if match is None or (match["sign"] and match["late"]) or (match["unit"] and not units):
        return None
    value = _value(match["value"])
    if value is None:
        return None
    negative = (match["sign"] or match["late"] or "+") != "+"
    return Numeral(-value if negative else value, match["percent"] is not None)


def _plain(text: str) -> str:
    """Without what is only type-setting: maths delimiters, bold, LaTeX spaces, \\text{}, single-character fractions."""
    text = "".join(_spelt(character) for character in text.strip())
    for opening, closing in (("**", "**"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)].strip()
    text = text.replace("{,}", ",").replace(r"\!", "")
    text = re.sub(r"\\[,;: ]", lambda space: "\u2009" if space.group() == r"\," else " ", text)
    text = re.sub(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}", r" \1", text)
    text = re.sub(r"(?<=\d)\s*\\[dt]?frac\s*\{?(\d+)\}?\s*\{(\d+)\}", r" \1/\2", text)
    return re.sub(r"\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}", r"\1/\2", text).strip()


def _spelt(character: str) -> str:
    """½ as ` 1/2`; other characters as they are."""
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    return character


def _value(text: str) -> Fraction | None:
    if sum(c.isdigit() for c in text) > MAX_DIGITS:
        return None
    if "/" in text:
        upper, lower = (part.strip() for part in text.split("/"))
        *whole, numerator = upper.split(" ") if " " in upper else [upper]
        parts = [_integer(part) for part in (*whole, numerator, lower) if part]
        if parts[-1] == 0:
            return None
        return Fraction(parts[-2], parts[-1]) + (parts[0] if len(parts) == 3 else 0)
    number, exponent = _split_exponent(text)
    if abs(exponent) > MAX_DIGITS:
        return None
    return Fraction(_digits(number)) * Fraction(10) ** exponent


def _split_exponent(text: str) -> tuple[str, int]:
    match = re.fullmatch(rf"(.*?)(?:[eE]|\s*{TIMES}\s*10\s*\^\s*\{{?\s*)([+-]?\d+)\s*\}}?", text)
    return (match[1], int(match[2])) if match else (text, 0)


def _digits(text: str) -> str:
    bare = re.sub(rf"[,_{SEPARATORS}]", "", text).rstrip(".")
    return "0" + bare if bare.startswith(".") else bare


def _integer(text: str) -> int:
    return int(_digits(text))
