"""What the tables and files of the dry run say."""

import math
from functools import partial

import polars as pl

from pipeline.check import prepared
from pipeline.check.dry_run import FIRST, DryRun
from pipeline.check.findings import Finding, Level, attempt
from pipeline.check.probe import tolerance
from stages.common import paths
from stages.common.params import Params

CUT_OFF = 0.5
HIGH_RATE = 1e-4  # for all weights
KL_AT_START = 1e-3  # nats per token


def examine(work: DryRun) -> None:
    """Add what every stage that ran has shown to the findings."""
    work.findings += [*prepared.model(), *prepared.prompts()]
    if work.did("prepare policy"):
        work.findings += attempt(work.findings, "rollout.stop_tokens", partial(prepared.stopping, work.params)) or []
    if work.passes is not None:
        work.findings += rollouts(work)
    if work.did(f"score {FIRST}"):
        work.findings += [*statuses(work), kl_at_start(work)]
    if work.did(f"advantage {FIRST}"):
        work.findings += [signal(work), reward_range(work.params)]
    if work.did(f"update {FIRST}"):
        work.findings += [step(), trained(work)]


def rollouts(work: DryRun) -> list[Finding]:
    """Lengths, and whether sampler and trainer agree."""
    assert work.passes is not None
    rows = pl.read_parquet(paths.rollouts(FIRST)).filter(kind="sample")
    limit, total = work.params.rollout.max_new_tokens, rows.height
    cut, empty = (int((rows["finish_reason"] == reason).sum()) for reason in ("length", "empty"))
    many = cut > CUT_OFF * total
    advice = (
        "; raise rollout.max_new_tokens, ask for shorter answers, or see that stop tokens are right" if many else ""
    )
    difference, allowed = work.passes.difference, tolerance(work.facts["runtime"])
    agree = f"largest difference between sampler and trainer {difference:.1e} nats"
    beyond = f", more than {allowed}: this model computes another thing token by token than at once"
    bad = not difference <= allowed
    return [
        Finding("warning" if many else "ok", "completions", f"{cut} of {total} cut off at {limit} tokens{advice}"),
        Finding("warning" if empty else "ok", "completions", f"{empty} of {total} empty"),
        Finding("warning" if bad else "ok", "log-probs", agree + (beyond if bad else "")),
    ]


def statuses(work: DryRun) -> list[Finding]:
    """Rows that could not be scored, by reward."""
    scores, found = pl.read_parquet(paths.scores(FIRST)).filter(kind="sample"), []
    limit = work.params.score.max_failed
    for name in work.used.score.rewards:
        counts = scores[f"status/{name}"].value_counts(sort=True).rows()
        failed = sum(count for status, count in counts if status not in ("ok", "missing"))
        share, said = failed / scores.height, ", ".join(f"{count} {status}" for status, count in counts)
        first = scores.filter(pl.col(f"status/{name}") != "ok")[f"message/{name}"].drop_nulls().to_list()
        text = f"{said}{': ' + first[0] if first else ''}"
        if share > limit:
            text += f"; {share:.0%} of the rows failed, and over {limit:.0%} (score.max_failed) the run stops"
        level: Level = "error" if share > limit else "warning" if failed or not dict(counts).get("ok") else "ok"
        found.append(Finding(level, f"score.rewards.{name}", text))
    return found


def kl_at_start(work: DryRun) -> Finding:
    """The initial policy is the reference, unless params.yaml names another one."""
    rows = pl.read_parquet(paths.scores(FIRST)).filter(kind="sample")
    values = [abs(value) for value in rows["kl"] if value is not None]
    if not values:
        return Finding("ok", "score.kl", "beta 0: no reference is loaded")
    largest = max(values)
    text = f"KL to the reference at most {largest:.1e} nats per sequence before the first update"
    length = int(pl.read_parquet(paths.rollouts(FIRST))["length"].max())  # type: ignore[arg-type]
    allowed = max(KL_AT_START, tolerance(work.facts["runtime"]) / 10) * length
    if work.params.prepare.reference is not None or largest <= allowed:
        return Finding("ok", "score.kl", text)
    return Finding("warning", "score.kl", f"{text}, where the policy is the reference and it should be 0")


def signal(work: DryRun) -> Finding:
    """Whether the rewards of any prompt differ."""
    groups = pl.read_parquet(paths.advantages(FIRST)).filter(kind="sample").unique("prompt_id", maintain_order=True)
    kinds = groups["group_kind"].value_counts(sort=True).rows()
    said = ", ".join(f"{count} {kind}" for kind, count in kinds)
    if dict(kinds).get("mixed"):
        return Finding("ok", "groups", f"{said}; mixed ones give a signal")
    if set(dict(kinds)) == {"unscorable"}:
        return Finding("warning", "groups", f"{said}: no reward scored any row, so nothing can be learnt")
    text = f"{said}: all answers to a prompt have the same reward, so nothing is learnt from it"
    advice = "; try `--prompts 8`, or make the task easier, the rewards finer or K larger"
    return Finding("warning", "groups", text + advice)


def reward_range(params: Params) -> Finding:
    """Rewards beyond what counts as fully correct and fully wrong."""
    rewards = pl.read_parquet(paths.scores(FIRST)).filter(kind="sample")["task_reward"].drop_nulls()
    low, high = params.advantage.wrong_reward, params.advantage.correct_reward
    if rewards.is_empty():
        return Finding("warning", "task reward", "no row has one")
    least, most = float(rewards.min()), float(rewards.max())  # type: ignore[arg-type]
    text = f"{least:.3g} to {most:.3g}"
    if low <= least and most <= high:
        return Finding("ok", "task reward", text)
    why = f", but advantage.wrong_reward is {low:g} and correct_reward {high:g}: set them to the rewards' range"
    return Finding("warning", "task reward", text + why)


def step() -> Finding:
    """The optimizer's step."""
    row = pl.read_parquet(paths.steps(FIRST)).row(0, named=True)
    text = f"loss {row['loss']:.4g}, gradient norm {row['grad_norm']:.4g}, {row['rows_with_gradient']} rows in it"
    if not (math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])):
        return Finding("error", "update", f"{text}: not finite; lower update.learning_rate, or take dtype float32")
    if not row["grad_norm"]:
        return Finding("warning", "update", f"{text}: no row had a gradient, so the loss was not tried")
    return Finding("ok", "update", text)


def trained(work: DryRun) -> Finding:
    """How much is trained."""
    trainable, of_all = work.facts["trainable"], work.facts["parameters"]
    is_full, rate = work.params.policy.method == "full", work.params.update.learning_rate
    how = "all weights" if is_full else f"LoRA of rank {work.params.policy.lora.rank}"
    text = f"{how}: {trainable:,} of {of_all:,} parameters are trained"
    if is_full and rate > HIGH_RATE:
        advice = f"update.learning_rate {rate:g} is one for adapters, and may ruin the policy in one step"
        text += f"; {advice}: 1e-6 to 1e-5 is usual"
        return Finding("warning", "policy", text)
    return Finding("ok", "policy", text)
