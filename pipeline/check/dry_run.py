"""The ordinary stages, on few prompts, one after the other, as far as they get.

What does not need what failed is tried all the same, so that one run tells all that is wrong.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.check import functions, probe
from pipeline.check.current import used_models
from pipeline.check.findings import Finding, attempt
from pipeline.check.reduced import with_rewards
from pipeline.check.timing import Timed, run_stage
from stages.common import paths
from stages.common.params import Params
from stages.entry import models_of

FIRST = "i0001"
NAMED = re.compile(r"(score\.rewards\.\w+)")  # the reward that a message of the score stage begins with
Say = Callable[[str], None]


@dataclass
class DryRun:
    """What the stages did, and what was measured beside them. `params` are the project's, `used` those of the run;
    `reused` is what an earlier command had made.
    """

    params: Params
    used: Params
    findings: list[Finding]
    say: Say
    reused: list[Path] = field(default_factory=list)
    timed: dict[str, Timed] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # rewards, and why
    rollout: probe.Rollout | None = None
    passes: probe.Passes | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def did(self, stage: str) -> bool:
        return stage in self.timed

    def stage(self, stage: str, name: str, params: Params | None = None) -> bool:
        """Run a stage; whether it came through."""
        self.say(f"{stage} {name}")
        timed = attempt(self.findings, f"{stage} {name}", partial(run_stage, stage, name, params or self.used))
        if timed is not None:
            self.timed[f"{stage} {name}"] = timed
        return timed is not None

    def note(self, level: Any, place: str, text: str) -> None:
        self.findings.append(Finding(level, place, text))


def run(work: DryRun) -> None:
    """All stages of the first iteration. The working folder is the one made for it."""
    model = paths.BASE in work.reused or work.stage("prepare", "model")
    reference = model and work.stage("prepare", "reference")
    prompts = model and work.stage("prepare", "prompts")
    if not model:
        work.note("warning", "prepare prompts", "not checked: rendering needs the model's tokenizer")
    work.say("reward functions")
    wrong = functions.check_each(work.params, work.findings)
    if reference and prompts and not wrong:
        work.stage("prepare", "options", work.params)
    sampled = reference and start(work) and prompts and work.stage("rollout", FIRST)
    if sampled and attempt(work.findings, "rollout", partial(measure, work)) and choose_rewards(work, wrong):
        train(work)


def start(work: DryRun) -> bool:
    """The initial policy and its critic."""
    if work.params.sft is not None and paths.REFERENCE not in work.reused:
        work.note("warning", "sft", "the fine-tuned model is not there yet: the dry run starts from the base")
        work.used = work.used.model_copy(update={"sft": None})
    there = paths.REFERENCE in work.reused or work.stage("sft", "policy")
    return there and work.stage("prepare", "policy") and first_critic(work)


def first_critic(work: DryRun) -> bool:
    critic = work.used.critic
    if critic is not None and critic.initial != "policy" and paths.reward_model(critic.initial) not in work.reused:
        text = f"the reward model {critic.initial} is not there yet: the dry run's critic is a copy of the policy"
        work.note("warning", "critic.initial", text)
        work.used = work.used.model_copy(update={"critic": critic.model_copy(update={"initial": "policy"})})
    return work.stage("critic", "initial")


def measure(work: DryRun) -> bool:
    """What is not in the tables, while the policy is still the one that sampled."""
    models = models_of(work.used.compute)
    policy = models.policy(paths.policy(paths.INITIAL))
    work.say("log-probs of the trainer")
    work.passes = probe.passes(policy, work.used)
    work.say("a batch of the true size")
    work.rollout = probe.rollout(policy, work.params)
    parameters = list(policy.parameters())
    work.facts["runtime"] = models.runtime
    work.facts["parameters"] = sum(one.numel() for one in parameters)
    trainable = [one.numel() for one in parameters if one.requires_grad]
    work.facts["trainable"], work.facts["largest"] = sum(trainable), max(trainable)
    work.facts["config"] = policy.config.get_text_config()
    return True


def choose_rewards(work: DryRun, wrong: set[str]) -> bool:
    """Leave out what cannot score yet, or is `wrong` (places in params.yaml); whether any reward is left."""
    rewards = work.used.score.rewards
    absent = [name for name in used_models(work.used) if paths.reward_model(name) not in work.reused]
    for name, reward in rewards.items():
        if f"score.rewards.{name}" in wrong:
            work.left_out[name] = "its function is wrong"
        elif reward.model in absent:
            work.left_out[name] = f"the reward model {reward.model} is not there yet"
            work.note("warning", f"score.rewards.{name}", f"left out: {work.left_out[name]}")
    left = {name: reward for name, reward in rewards.items() if name not in work.left_out}
    if not left:
        work.note("warning", f"score {FIRST}", "not run: no reward can be had, and without one there is no loss")
    elif len(left) < len(rewards):
        work.used = with_rewards(work.used, left)
    return bool(left)


def train(work: DryRun) -> None:
    """From rewards to a step of the optimizer. A function that fails as a whole does not hide what follows."""
    while not work.stage("score", FIRST):
        failed = NAMED.match(work.findings[-1].text)
        if failed is None or not choose_rewards(work, {failed[1]}):
            return
    all(work.stage(stage, FIRST) for stage in ("advantage", "update"))
