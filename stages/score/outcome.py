"""What a reward function may return for a row besides a number and None."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unscorable:
    """In place of a number: this row cannot be judged, and `reason` says why; the other rows keep their rewards.

    The row gets the status `invalid` with the reason as its message, no reward, and stays out of baseline and loss.
    `passing`: the reason may be gone next time (a server that is lost): the status is `error`, and no cache keeps it.
    None is something else: the function does not apply to the row. A wrong answer is neither; it is a number.
    """

    reason: str
    passing: bool = False
