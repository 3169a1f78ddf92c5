"""Section `score`: rewards and the KL penalty."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from stages.common.params.base import Count, Function, Positive, Section

OF_FUNCTIONS = ("arguments", "rows_per_call", "cache", "limits")


def names_of_columns(rewards: dict[str, Any]) -> dict[str, Any]:
    """The rewards, if their names can be parts of column names; a ValueError else."""
    bad = [name for name in rewards if not name.replace("_", "").isalnum()]
    if bad:
        raise ValueError(f"names are letters, digits and underscores, as they become column names: {bad}")
    return rewards


class Limits(Section):
    """What a reward function may take, in the child process that it runs in.

    `start_seconds`: importing it; `batch_seconds`: one call for many rows; `row_seconds`: a call for a single row, as
    which rows are scored once their batch has failed; `memory_mb`: of the process and all that it starts.
    """

    start_seconds: Positive = 60.0
    batch_seconds: Positive = 60.0
    row_seconds: Positive = 10.0
    memory_mb: Count = 4096


class Reward(Section):
    """`function`: `module:name` or `file.py:name`, with TRL's signature `f(prompts, completions, completion_ids,
    **columns)`, to which `arguments` are passed by name; or `model`: the name of one of `reward_models`, whose score is
    brought to mean 0 and standard deviation 1 over the answers of the reference if `normalise` is on.

    `rows_per_call`: how many rows a function is called with at once; null: as many as it says itself, else all.
    `cache`: keep the results of finished calls by content, so that none is made twice.
    """

    function: Function | None = None
    model: str | None = None
    normalise: bool = False
    weight: float = 1.0
    arguments: dict[str, Any] = Field(default_factory=dict)
    rows_per_call: Count | None = None
    cache: bool = True
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _function_or_model(self) -> "Reward":
        if (self.function is None) == (self.model is None):
            raise ValueError("a reward is either a `function` or a `model`: set one of the two")
        if self.function is not None and self.normalise:
            raise ValueError("normalise is for a `model`: it is fitted on the answers of the reference")
        fields = type(self).model_fields
        defaults = {name: fields[name].get_default(call_default_factory=True) for name in OF_FUNCTIONS}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        if self.model is not None and given:
            raise ValueError(f"{', '.join(given)}: for a `function`, not for a `model`")
        return self


class Kl(Section):
    """The KL penalty: `beta` per nat, by the estimator k1, k2 or k3, in one of three places.

    reward: the sequence's k1 is taken off its task reward, before the baseline, without gradient
    reward_to_go: k1 of a token and all after it is taken off the token's advantage, without gradient
    loss: the estimator is added to each token's loss, with gradient; `importance_weighted` multiplies it by the ratio
    of trained to old policy, with which k1 and k3 have the gradient of the KL, whichever policy sampled
    """

    beta: Annotated[float, Field(ge=0)]
    placement: Literal["reward", "reward_to_go", "loss"] = "reward"
    estimator: Literal["k1", "k2", "k3"] = "k1"
    importance_weighted: bool = False

    def beta_in(self, placement: str) -> float:
        """The penalty's weight in one of the three places: `beta` where the penalty is, 0 elsewhere."""
        return self.beta if self.placement == placement else 0.0

    @model_validator(mode="after")
    def _rewards_take_k1(self) -> "Kl":
        if self.placement != "loss" and self.estimator != "k1":
            raise ValueError(
                f"estimator {self.estimator} is for placement loss; inside the reward only k1 gives the gradient of KL"
            )
        if self.placement != "loss" and self.importance_weighted:
            raise ValueError("importance_weighted is for placement loss: inside the reward there is no ratio")
        if self.importance_weighted and self.estimator == "k2":
            raise ValueError("importance_weighted with estimator k2 has the gradient of no KL: take k1 or k3")
        return self


class Score(Section):
    """Rewards by name, the KL penalty, and the token budget of a forward pass of the reference or a reward model.

    `max_failed`: the share of rows that a reward may fail to score (`invalid`, `timeout`, `error`) before the stage
    stops. Rows that it does not apply to (`missing`) are none of them.
    """

    rewards: Annotated[dict[str, Reward], Field(min_length=1)]
    kl: Kl
    pack_tokens: Count = 512
    max_failed: Annotated[float, Field(ge=0, le=1)] = 0.1

    @field_validator("rewards")
    @classmethod
    def _names(cls, rewards: dict[str, Reward]) -> dict[str, Reward]:
        return names_of_columns(rewards)
