"""What an optimizer step needs to know of params.yaml."""

from dataclasses import dataclass

from stages.common.params import Kl, Params, Update


@dataclass(frozen=True)
class Recipe:
    """The update's section, the KL penalty, the temperature of all log-probs, the divisor of `constant_length`."""

    update: Update
    kl: Kl
    temperature: float
    constant_length: int

    @property
    def kl_beta(self) -> float:
        """The weight of the KL inside the loss; 0 where the penalty is elsewhere."""
        return self.kl.beta_in("loss")

    @property
    def steps(self) -> int:
        """Optimizer steps per iteration."""
        return self.update.epochs * self.update.minibatches

    @property
    def only_advantages(self) -> bool:
        """Whether a row whose advantages are exactly zero has no gradient."""
        return self.kl_beta == 0.0 and self.update.entropy_bonus == 0.0


def recipe_of(params: Params) -> Recipe:
    length = params.update.constant_length or params.rollout.max_new_tokens
    return Recipe(params.update, params.score.kl, params.rollout.temperature, length)
