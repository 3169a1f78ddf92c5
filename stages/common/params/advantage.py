"""Section `advantage`: the estimator, one file each in `stages/advantage/`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.common.params.base import Count, Positive, Section


class BatchMean(Section):
    """Options of `batch_mean`: whether the sample itself is left out of the batch's mean."""

    leave_one_out: bool = False


class Grpo(Section):
    """Options of `grpo`: divide by the population's (n) or the sample's (n - 1) standard deviation."""

    std: Literal["population", "sample"] = "sample"


class ReinforcePp(Section):
    """Options of `reinforce_pp`: normalise scores over the batch, or what is left of them after the group's mean."""

    baseline: Literal["batch", "group"] = "batch"


class MovingAverage(Section):
    """Options of `moving_average`: the mean of all past scores, of the last `window` iterations', or decaying."""

    form: Literal["all", "window", "ema"] = "ema"
    window: Count = 10
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.9


class Gae(Section):
    """Options of `gae`: discount and lambda of the advantages; `lam_critic`: of the returns that the critic learns
    (null: the same); `length_adaptive`: alpha of lam = 1 - 1 / (alpha * length) (VAPO), instead of `lam`, which is then
    null.
    """

    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] | None = 0.95
    lam_critic: Annotated[float, Field(ge=0, le=1)] | None = None
    length_adaptive: Positive | None = None

    @model_validator(mode="after")
    def _one_lambda(self) -> "Gae":
        if (self.lam is None) == (self.length_adaptive is None):
            raise ValueError("lambda is either `lam` or `length_adaptive`: set one of the two, and the other to null")
        if self.lam is None and self.lam_critic is None:
            raise ValueError("lam_critic: with length_adaptive there is no lam to take; set it (1.0 in VAPO)")
        return self


Estimator = Literal[
    "rloo",
    "reinforce",
    "moving_average",
    "batch_mean",
    "remax",
    "grpo",
    "dr_grpo",
    "reinforce_pp",
    "raft",
    "opo",
    "max_rl",
    "gae",
]


class Advantage(Section):
    """The estimator and its options; one file each in `stages/advantage/`. Then, as steps of their own, both off:
    `normalise` to mean 0 and standard deviation 1 over the batch, and `clip` to [-clip, clip].

    `outcome_reward`: by which reward groups are classed (null: the task reward); `correct_reward` and above is fully
    correct, `wrong_reward` and below fully wrong. Classes are reported, and change no advantage.
    """

    estimator: Estimator = "rloo"
    moving_average: MovingAverage = MovingAverage()
    batch_mean: BatchMean = BatchMean()
    grpo: Grpo = Grpo()
    reinforce_pp: ReinforcePp = ReinforcePp()
    gae: Gae = Gae()
    normalise: Literal["none", "batch"] = "none"
    clip: Positive | None = None
    outcome_reward: str | None = None
    correct_reward: float = 1.0
    wrong_reward: float = 0.0
