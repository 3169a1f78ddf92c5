"""Who wins a pair of answers: by scores, or by what a judge says who saw both orders."""

from collections.abc import Sequence

WIN, TIE, LOSS = 1.0, 0.5, 0.0


def by_scores(scores: Sequence[float | None], others: Sequence[float | None], margin: float) -> list[float | None]:
    """1, .5 or 0 for each pair; scores no further apart than `margin` tie, and without both scores there is none."""
    return [
        None if a is None or b is None else TIE if abs(a - b) <= margin else WIN if a > b else LOSS
        for a, b in zip(scores, others, strict=True)
    ]


def by_verdicts(first: str | None, second: str | None) -> float | None:
    """One pair, judged in both orders. `first` is the verdict ("A", "B" or "tie") with our answer as A, `second` with
    our answer as B. Verdicts that contradict each other are a tie; without both of them there is none.
    """
    if first is None or second is None:
        return None
    points = {"A": WIN, "tie": TIE, "B": LOSS}
    mean = (points[first] + 1 - points[second]) / 2
    return WIN if mean > TIE else LOSS if mean < TIE else TIE
