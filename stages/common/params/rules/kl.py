"""Options of the KL and its reference."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.common.params import Params


def reference_has_a_use(params: "Params") -> None:
    if params.prepare.reference is not None and params.score.kl.beta == 0 and params.evaluate.kl is not True:
        raise ValueError(
            "prepare.reference: with score.kl.beta 0 no reference is loaded; set it to null, or evaluate.kl to true"
        )


def pretraining_has_no_penalty(params: "Params") -> None:
    kl, pretrains = params.score.kl, params.critic is not None and params.critic.pretraining is not None
    if pretrains and params.prepare.reference is not None and kl.beta > 0 and kl.placement != "loss":
        raise ValueError(
            "critic.pretraining: it learns returns without a KL penalty, but to prepare.reference the initial policy "
            "has a KL from the start; set one of the two to null"
        )


def kl_alarm_has_a_kl(params: "Params") -> None:
    if params.alarms.kl_above is not None and params.score.kl.beta == 0:
        raise ValueError("alarms.kl_above: with score.kl.beta 0 no reference is loaded, and there is no KL to watch")


RULES = (
    reference_has_a_use,
    pretraining_has_no_penalty,
    kl_alarm_has_a_kl,
)
