"""The objective that params.yaml names: from log-probs of answers to the loss of each pair.

Dimension suffixes: P pairs, 2 answers: the chosen one, the rejected one.
"""

from dataclasses import dataclass

from torch import Tensor

from stages.common.params import Offline
from stages.offline import dpo, simpo

WITH_REFERENCE = frozenset({"dpo"})


@dataclass(frozen=True)
class Answers:
    """Log-probs of whole answers in nats, and their tokens; `reference_P2` only where the objective takes it."""

    logp_P2: Tensor
    length_P2: Tensor
    reference_P2: Tensor | None = None


@dataclass(frozen=True)
class Terms:
    """Of each pair: the loss in nats, and the difference of the implicit rewards."""

    loss_P: Tensor
    difference_P: Tensor

    @property
    def right(self) -> Tensor:
        """[P]: 1 where the chosen answer has the higher implicit reward, .5 where both are equal."""
        ahead_P, equal_P = self.difference_P > 0, self.difference_P == 0
        return ahead_P.double() + 0.5 * equal_P.double()


def terms_of(answers: Answers, settings: Offline) -> Terms:
    if settings.objective == "simpo":
        difference_P = simpo.differences(answers.logp_P2, answers.length_P2, settings.simpo)
        return Terms(simpo.losses(difference_P, settings.simpo), difference_P)
    assert answers.reference_P2 is not None, "dpo compares with the reference"
    difference_P = dpo.differences(answers.logp_P2, answers.reference_P2, settings.dpo)
    return Terms(dpo.losses(difference_P, settings.dpo), difference_P)
