"""Which options go together across sections; each rule raises a ValueError that names the options and a way out."""

from typing import TYPE_CHECKING

from stages.common.paths import is_iteration

if TYPE_CHECKING:
    from stages.common.params import Params

SINGLE_SAMPLE = ("reinforce", "moving_average", "batch_mean", "remax", "reinforce_pp", "gae")  # need no siblings


def remax_has_greedy_rows(params: "Params") -> None:
    if params.advantage.estimator == "remax" and not params.rollout.greedy:
        raise ValueError("advantage.estimator remax compares with greedy completions: set rollout.greedy to true")


def named_rewards_exist(params: "Params") -> None:
    dynamic = params.rollout.dynamic_sampling
    named = {"advantage.outcome_reward": params.advantage.outcome_reward}
    named |= {"rollout.dynamic_sampling.reward": dynamic.reward} if dynamic else {}
    for option, reward in named.items():
        if reward is not None and reward not in params.score.rewards:
            raise ValueError(f"{option} = {reward!r} is none of score.rewards: {', '.join(params.score.rewards)}")


def budget_within_the_prompts(params: "Params") -> None:
    dynamic = params.rollout.dynamic_sampling
    there = params.prepare.prompts.declared_train
    if dynamic and there is not None and dynamic.max_prompts > there:
        raise ValueError(
            f"rollout.dynamic_sampling.max_prompts = {dynamic.max_prompts}: an iteration samples a prompt once, "
            f"and there are {there} (prepare.prompts)"
        )


def best_of_within_the_prompts(params: "Params") -> None:
    best_of = params.sft.best_of if params.sft else None
    there = params.prepare.prompts.declared_train
    if best_of and there is not None and best_of.prompts > there:
        raise ValueError(
            f"sft.best_of.prompts = {best_of.prompts}: a prompt is answered once, and there are {there} "
            "(prepare.prompts)"
        )
    if best_of and best_of.gold is None and all(reward.function is None for reward in params.score.rewards.values()):
        raise ValueError("sft.best_of picks answers by the functions of score.rewards, and there is none: set `gold`")


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


def offline_has_names_and_pairs(params: "Params") -> None:
    trained = [name for name, model in params.reward_models.items() if model.preferences is not None]
    for name, offline in params.offline.items():
        if is_iteration(name):
            raise ValueError(f"offline.{name}: names like that are those of iterations; choose another")
        if offline.pairs not in trained:
            known = ", ".join(trained) or "none"
            raise ValueError(
                f"offline.{name}.pairs = {offline.pairs!r}: pairs are those of a reward model with preferences: {known}"
            )


def reward_models_exist(params: "Params") -> None:
    known = ", ".join(params.reward_models) or "none"
    if params.judge and params.judge.model is not None and params.judge.model not in params.reward_models:
        raise ValueError(f"judge.model = {params.judge.model!r} is none of reward_models: {known}")
    for name, reward in params.score.rewards.items():
        if reward.model is not None and reward.model not in params.reward_models:
            raise ValueError(f"score.rewards.{name}.model = {reward.model!r} is none of reward_models: {known}")


def measured_rewards_have_names_of_their_own(params: "Params") -> None:
    twice = sorted(set(params.score.rewards) & set(params.evaluate.rewards))
    if twice:
        raise ValueError(f"evaluate.rewards: {', '.join(twice)} are in score.rewards, too; they are measured anyway")


def verified_by_a_function(params: "Params") -> None:
    verify = params.prepare.prompts.verify
    if verify is None:
        return
    reward = params.score.rewards.get(verify.reward)
    if reward is None or reward.function is None:
        known = ", ".join(name for name, one in params.score.rewards.items() if one.function is not None) or "none"
        raise ValueError(f"prepare.prompts.verify.reward = {verify.reward!r}: functions of score.rewards are {known}")


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
    verified_by_a_function,
    reference_has_a_use,
    pretraining_has_no_penalty,
    kl_alarm_has_a_kl,
    measured_rewards_have_names_of_their_own,
    reward_models_exist,
    remax_has_greedy_rows,
    named_rewards_exist,
    budget_within_the_prompts,
    best_of_within_the_prompts,
    siblings_to_compare_with,
    reductions_that_make_sense,
    normalising_leaves_something,
    minibatches_have_prompts,
    token_advantages_have_token_ratios,
    critic_and_gae,
    offline_has_names_and_pairs,
)
