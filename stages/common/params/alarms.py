"""Section `alarms`: what in a run is a sign that it goes wrong."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.common.params.base import Positive, Section

AlarmName = Literal["entropy", "kl", "length", "constant_reward", "not_centred", "proxy_against_gold"]


class Alarms(Section):
    """Thresholds, each null: off. An alarm marks its iteration in the history; those named in `stop` end `rloo train`.

    entropy_below          nats per token of the sampled answers
    kl_above               nats per sequence to the reference
    length_factor          mean length more than so many times that of the first iteration, or less than one so-manyth
    constant_reward_share  share of the groups in which all rewards are equal, this or more
    mean_advantage_above   absolute mean advantage in the loss, of an estimator that centres its groups
    proxy and gold         rewards of the evaluation (or `judge` for the win-rate): an alarm where, since the evaluation
                           before, the proxy rose and the gold fell by more than `gold_falls_by`
    """

    entropy_below: Positive | None = None
    kl_above: Positive | None = None
    length_factor: Annotated[float, Field(gt=1)] | None = None
    constant_reward_share: Annotated[float, Field(gt=0, le=1)] | None = None
    mean_advantage_above: Positive | None = None
    proxy: str | None = None
    gold: str | None = None
    gold_falls_by: Annotated[float, Field(ge=0)] = 0.0
    stop: list[AlarmName] = Field(default_factory=list)

    @model_validator(mode="after")
    def _proxy_with_gold(self) -> "Alarms":
        if (self.proxy is None) != (self.gold is None):
            raise ValueError("proxy and gold go together: set both or neither")
        return self

    @model_validator(mode="after")
    def _what_stops_is_on(self) -> "Alarms":
        on = {
            "entropy": self.entropy_below,
            "kl": self.kl_above,
            "length": self.length_factor,
            "constant_reward": self.constant_reward_share,
            "not_centred": self.mean_advantage_above,
            "proxy_against_gold": self.proxy,
        }
        off = [name for name in self.stop if on[name] is None]
        if off:
            raise ValueError(f"stop names {', '.join(off)}, which have no threshold")
        return self
