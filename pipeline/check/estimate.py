"""How long the whole run will take: what the dry run measured, times how often it happens.

Rollout: one batch of the true size is prefilled and goes on for a few tokens; all batches are taken to go on to
`max_new_tokens`, so that answers that stop early make it faster. Passes of trainer, reference and critic: seconds per
token of the dry run, for answers as long as its own. Functions: seconds per row, after those it takes to start them.
"""

from dataclasses import dataclass

import polars as pl

from pipeline.check.dry_run import FIRST, DryRun
from pipeline.check.probe import read_prompts
from pipeline.plan import Plan
from stages.common import paths
from stages.common.params import Params
from stages.common.signal import has_advantage
from stages.update.batches import micro_batches
from stages.update.recipe import recipe_of
from stages.update.training_rows import training_rows

PER_STAGE = 0.35  # seconds of DVC, for each stage that it runs: its lock file is read and written each time
DIAGNOSE = 5 / 3  # of an update's passes: one forward and two backward, where an update has one of each


@dataclass(frozen=True)
class Line:
    """Seconds of one stage, each time it runs, and how often that is."""

    stage: str
    seconds: float
    times: int
    how: str

    @property
    def total(self) -> float:
        return self.seconds * self.times


@dataclass(frozen=True)
class Work:
    """What one iteration does, beside what the dry run did."""

    rows: int  # samples
    tokens: float  # of one pass over them, prompts included
    share: float  # of the dry run's prompts: how many times as many there are


def estimate(work: DryRun, plan: Plan) -> list[Line]:
    """One line per kind of stage; empty if the dry run did not get to its end."""
    if work.rollout is None or work.passes is None or not work.did(f"update {FIRST}"):
        return []
    rows = pl.read_parquet(paths.rollouts(FIRST)).filter(kind="sample").height
    options, many = work.params.rollout, len(plan.names)
    share = options.prompts_per_iteration / work.used.rollout.prompts_per_iteration
    each = Work(int(rows * share), work.passes.tokens * share, share)
    count, answers = read_prompts("heldout").height, work.params.evaluate.samples_per_prompt
    diagnosed = seconds_per_token(work) * each.tokens * DIAGNOSE
    before = sum(timed.seconds for name, timed in work.timed.items() if not name.endswith(FIRST))
    lines = [
        Line("before", before, 1, "model, prompts and initial policy, as far as they are not there yet"),
        Line("rollout", rollout_seconds(work), many, _how_rollout(work)),
        Line("score", score_seconds(work, each), many, f"{each.rows} rows, {each.tokens:.0f} tokens a pass"),
        Line("advantage", work.timed[f"advantage {FIRST}"].seconds, many, "as in the dry run"),
        Line("update", update_seconds(work, each), many, f"{each.tokens:.0f} tokens, all of them with a gradient"),
        Line("evaluate", evaluate_seconds(work), len(plan.evaluated), f"{count} prompts x {answers}"),
        Line("diagnose", diagnosed, len(plan.diagnosed), "from the passes of an update"),
    ]
    stages = sum(len(plan.stages_of(name)) for name in [paths.INITIAL, *plan.names])
    return [*lines, Line("DVC", PER_STAGE, stages, f"{PER_STAGE} s for each stage that is run, a constant")]


def rollout_seconds(work: DryRun) -> float:
    """All batches of an iteration, up to the limit. A greedy row per prompt costs as much as a sample."""
    probe, options = work.rollout, work.params.rollout
    assert probe is not None
    seconds = probe.batches * (probe.prefill + probe.step * (options.max_new_tokens - 1))
    return seconds * (1 + options.greedy / options.samples_per_prompt)


def score_seconds(work: DryRun, each: Work) -> float:
    """Rewards by the row, then passes of the reference and the critic by the token."""
    timed = work.timed[f"score {FIRST}"]
    spans = [span for unit in ("passes of the reference", "passes of the critic") if (span := timed.span(unit))]
    return reward_seconds(work) * each.rows + sum(end - begin for begin, end in spans) * each.share


def reward_seconds(work: DryRun) -> float:
    """Seconds for one row: all of score that is neither a pass nor what follows it."""
    timed = work.timed[f"score {FIRST}"]
    span = timed.span("passes of the reference") or timed.span("passes of the critic")
    before = span[0] if span else timed.seconds
    return before / max(1, pl.read_parquet(paths.scores(FIRST)).height)


def update_seconds(work: DryRun, each: Work) -> float:
    """Passes by the token, over all epochs; the critic's part by the row; the optimizer's step and what is written."""
    timed, critic = work.timed[f"update {FIRST}"], work.params.critic
    seconds = seconds_per_token(work) * each.tokens * work.params.update.epochs + timed.tail
    policy, steps = timed.span("micro-batches"), timed.span("steps of the critic")
    if critic is not None and steps is not None:
        seconds += (steps[1] - (policy[1] if policy else 0.0)) * each.share * critic.epochs
    return seconds


def seconds_per_token(work: DryRun) -> float:
    """Forward and backward, as the dry run's update needed them; three forward passes if no row had a gradient."""
    assert work.passes is not None
    span, tokens = work.timed[f"update {FIRST}"].span("micro-batches"), gradient_tokens(work)
    return span[1] / tokens if span and tokens else 3 * work.passes.seconds / work.passes.tokens


def gradient_tokens(work: DryRun) -> int:
    """Tokens, with prompts, of the micro-batches of the dry run's update."""
    assert work.passes is not None
    rows = training_rows(FIRST, needs_reference=False).filter("in_loss").with_row_index("index")
    computed = rows.filter(has_advantage()) if recipe_of(work.used).only_advantages else rows
    packed = micro_batches(computed, work.used.update.pack_tokens, one_by_one=not work.passes.packed)
    return sum(len(row.ids_L) for row in packed)


def evaluate_seconds(work: DryRun) -> float:
    """Sampling the held-out prompts, their rewards, and their KL to the reference if it is measured."""
    probe, params, prompts = work.rollout, work.params, read_prompts("heldout")
    assert probe is not None
    assert work.passes is not None
    answers = prompts.height * params.evaluate.samples_per_prompt
    steps = answers / probe.sequences * probe.step * (params.rollout.max_new_tokens - 1)
    seconds = probe.prefill / probe.prompts * prompts.height + steps + reward_seconds(work) * answers
    if not params.evaluate.measures_kl(params.score.kl.beta):
        return seconds
    length = mean(prompts["prompt_ids"].list.len()) + mean(pl.read_parquet(paths.rollouts(FIRST))["length"])
    return seconds + answers * length * work.passes.seconds / work.passes.tokens


def mean(numbers: pl.Series) -> float:
    return float(numbers.sum()) / max(1, len(numbers))


def not_estimated(params: Params) -> list[str]:
    """What the estimate leaves out."""
    left = {
        "the demonstrations and the fine-tuning of `sft`": params.sft is not None,
        "preferences and reward models": bool(params.reward_models),
        "the critic's pretraining": params.critic is not None and params.critic.pretraining is not None,
        "the policies of `offline`": bool(params.offline),
        "the judge": params.judge is not None,
        "the prompts that dynamic sampling adds": params.rollout.dynamic_sampling is not None,
    }
    return [what for what, there in left.items() if there]


def _how_rollout(work: DryRun) -> str:
    probe = work.rollout
    assert probe is not None
    steps = work.params.rollout.max_new_tokens - 1
    return f"{probe.batches} x {probe.sequences} sequences: {probe.prefill:.2f} s + {steps} x {probe.step:.3f} s"
