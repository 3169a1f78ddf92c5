"""Options of estimator, objective and critic."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.common.params import Params

SINGLE_SAMPLE = ("reinforce", "moving_average", "batch_mean", "remax", "reinforce_pp", "gae")  # need no siblings


def remax_has_greedy_rows(params: "Params") -> None:
    if params.advantage.estimator == "remax" and not params.rollout.greedy:
        raise ValueError("advantage.estimator remax compares with greedy completions: set rollout.greedy to true")


def siblings_to_compare_with(params: "Params") -> None:
    options = params.advantage
    needs_siblings = options.estimator not in SINGLE_SAMPLE or (
        options.estimator == "reinforce_pp" and options.reinforce_pp.baseline == "group"
    )
    if params.rollout.samples_per_prompt == 1 and needs_siblings:
        raise ValueError(
            f"rollout.samples_per_prompt = 1: advantage.estimator {options.estimator} compares the samples "
            f"of a prompt, at least 2; with one there are {', '.join(SINGLE_SAMPLE)}"
        )
    if params.rollout.samples_per_prompt == 1 and params.rollout.dynamic_sampling:
        raise ValueError("rollout.dynamic_sampling needs samples_per_prompt of 2 or more: one reward never differs")


def reductions_that_make_sense(params: "Params") -> None:
    update = params.update
    if update.objective == "ppo" and update.ppo.ratio == "sequence" and update.reduction != "sequence_sum":
        raise ValueError(
            f"update.reduction {update.reduction} with a ratio of whole sequences: their product over tokens has "
            "one term per sequence, averaged over sequences; set reduction to sequence_sum, or take objective gspo"
        )
    if update.objective == "gspo" and update.reduction == "sequence_sum":
        raise ValueError(
            "update.reduction sequence_sum: the ratio of gspo is a mean over the tokens of a sequence; "
            "set reduction to response_mean (the paper's), token_mean or constant_length"
        )
    if update.constant_length is not None and update.reduction != "constant_length":
        raise ValueError(f"update.constant_length is for reduction constant_length, not {update.reduction}")


def normalising_leaves_something(params: "Params") -> None:
    if params.advantage.estimator == "raft" and params.advantage.normalise == "batch":
        raise ValueError(
            "advantage.normalise batch: the advantages of raft are all 1, which less their mean is 0: set it to none"
        )


def minibatches_have_prompts(params: "Params") -> None:
    if params.update.minibatches > params.rollout.prompts_per_iteration:
        raise ValueError(
            f"update.minibatches ({params.update.minibatches}) are made of whole groups: there cannot be more than "
            f"rollout.prompts_per_iteration ({params.rollout.prompts_per_iteration})"
        )


def token_advantages_have_token_ratios(params: "Params") -> None:
    by_sequence = params.update.objective == "gspo" or (
        params.update.objective == "ppo" and params.update.ppo.ratio == "sequence"
    )
    if by_sequence and params.advantage.estimator == "gae":
        raise ValueError(
            "advantage.estimator gae gives each token an advantage of its own, but the objective has one term per "
            "sequence: choose an objective with token ratios, such as ppo with ratio token"
        )
    if by_sequence and params.score.kl.placement == "reward_to_go":
        raise ValueError(
            "score.kl.placement reward_to_go gives each token an advantage of its own, but the objective has one "
            "term per sequence: choose placement reward or loss, or an objective with token ratios"
        )


def critic_and_gae(params: "Params") -> None:
    if params.advantage.estimator == "gae" and params.critic is None:
        raise ValueError("advantage.estimator gae takes the values of a critic: write a section `critic`")
    if params.critic is not None and params.advantage.estimator != "gae":
        raise ValueError(
            f"critic: advantage.estimator {params.advantage.estimator} has no use for it; set critic to null"
        )
    if params.critic is None:
        return
    known = ("policy", *params.reward_models)
    if params.critic.initial not in known:
        raise ValueError(f"critic.initial = {params.critic.initial!r} is none of: {', '.join(known)}")
    if params.critic.minibatches > params.rollout.prompts_per_iteration:
        raise ValueError(
            f"critic.minibatches ({params.critic.minibatches}) are made of whole groups: there cannot be more than "
            f"rollout.prompts_per_iteration ({params.rollout.prompts_per_iteration})"
        )
    pretraining = params.critic.pretraining
    there = params.prepare.prompts.declared_train
    if pretraining and there is not None and pretraining.prompts > there:
        raise ValueError(
            f"critic.pretraining.prompts = {pretraining.prompts}: a prompt is taken once, and there are {there} "
            "(prepare.prompts)"
        )


RULES = (
    remax_has_greedy_rows,
    siblings_to_compare_with,
    reductions_that_make_sense,
    normalising_leaves_something,
    minibatches_have_prompts,
    token_advantages_have_token_ratios,
    critic_and_gae,
)
