"""A function as params.yaml names it, with what it may take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stages.common.code_identity import CodeError, code_identity
from stages.common.params import Limits, ParamsError, Reward
from stages.score.calling.worker import log_path

LONGEST = 3600.0  # seconds of a call whose limits are nowhere in params.yaml


@dataclass(frozen=True)
class UserFunction:
    """`name` names its log; `option` and `arguments_option` are where params.yaml has it; `kind`: what it returns of a
    row, a number or the numbers that a reward is made of; `limits_option`: where its limits are, None: nowhere, they
    are those of `Limits`, and a call of several rows has as much time as its rows would have one by one.
    """

    name: str
    option: str
    spec: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arguments_option: str = ""
    rows_per_call: int | None = None
    cache: bool = True
    limits: Limits = field(default_factory=Limits)
    kind: Literal["numbers", "parts"] = "numbers"
    limits_option: str | None = None

    @property
    def told(self) -> str:
        """How messages begin."""
        return f"{self.option} = {self.spec!r}"

    def option_of(self, limit: str) -> str:
        """How messages name one of its limits."""
        fixed = f"{limit}, which is fixed for {self.option}"
        return fixed if self.limits_option is None else f"{self.limits_option}.{limit}"

    def seconds_for(self, rows: int) -> float:
        """Of one call of so many rows."""
        if rows == 1:
            return self.limits.row_seconds
        own = self.limits_option is None
        return max(self.limits.batch_seconds, min(rows * self.limits.row_seconds, LONGEST) if own else 0.0)

    @property
    def log(self) -> str:
        return str(log_path(self.name))


def of_reward(name: str, reward: Reward, section: str = "score.rewards") -> UserFunction:
    """The function of one of `score.rewards` or `evaluate.rewards`."""
    assert reward.function is not None
    return UserFunction(
        name,
        f"{section}.{name}.function",
        reward.function,
        reward.arguments,
        f"{section}.{name}.arguments",
        reward.rows_per_call,
        reward.cache,
        reward.limits,
        limits_option=f"{section}.{name}.limits",
    )


def identity_of(function: UserFunction) -> dict[str, str]:
    """Its code by content; a ParamsError if that is not there."""
    try:
        return code_identity(function.spec)
    except CodeError as error:
        raise ParamsError(f"params.yaml: {function.told}: {error}") from None
