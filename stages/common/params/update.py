"""Section `update`: the objective and the optimizer."""

from typing import Annotated, Literal

from pydantic import Field

from stages.common.params.adamw import AdamW
from stages.common.params.base import Count
from stages.common.params.objective import Cispo, Gspo, ImportanceCorrection, Ppo, Sapo


class Update(AdamW):
    """The objective, its reduction over tokens, AdamW, and how an iteration is split into optimizer steps.

    With `epochs` or `minibatches` above 1 the steps after the first see samples of a policy a step or more old: the
    objectives with a ratio correct for it, `reinforce` does not.
    `constant_length`: the divisor of that reduction (null: `rollout.max_new_tokens`).
    `entropy_bonus`: per nat of the mean entropy of a token.
    `gradient_checkpointing`: less memory for activations, more time, the same gradients.
    """

    objective: Literal["reinforce", "ppo", "gspo", "cispo", "sapo"] = "reinforce"
    ppo: Ppo = Ppo()
    gspo: Gspo = Gspo()
    cispo: Cispo = Cispo()
    sapo: Sapo = Sapo()
    reduction: Literal["sequence_sum", "response_mean", "token_mean", "constant_length"] = "sequence_sum"
    constant_length: Count | None = None
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    importance_correction: ImportanceCorrection | None = None
    epochs: Count = 1
    minibatches: Count = 1
    pack_tokens: Count = 512
    gradient_checkpointing: bool = False
