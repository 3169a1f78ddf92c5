"""Section `critic`: the value model of PPO, whose values `advantage.estimator: gae` takes."""

from typing import Annotated, Literal

from pydantic import Field

from stages.common.params.adamw import AdamW
from stages.common.params.base import Count, Positive, Section


class Pretraining(Section):
    """Regression of the fresh critic on the scores of the initial policy's own answers (VC-PPO, arXiv 2503.01491):
    `samples` answers to each of `prompts` training prompts, gone over `epochs` times.
    """

    prompts: Count
    samples: Annotated[int, Field(ge=1)] = 1
    epochs: Count = 1


class Critic(AdamW):
    """A value head on a copy of the policy, trained on the returns of each iteration.

    `initial`: what it is a copy of, `policy` or the name of one of `reward_models`. `method`: all weights, or an
    adapter by the options of `policy.lora` and the head; all weights want a lower `learning_rate` than the default.
    `value_clip`: the new value is held that close to the one that gave the advantages, and the worse loss counts (null:
    it is not). `gradient_checkpointing`: as in section `update`.
    """

    initial: str = "policy"
    method: Literal["full", "lora"] = "lora"
    learning_rate: Positive = 1e-3
    value_clip: Positive | None = 0.2
    pretraining: Pretraining | None = None
    epochs: Count = 1
    minibatches: Count = 1
    pack_tokens: Count = 512
    gradient_checkpointing: bool = False
