"""Pairs made by sampling: two answers of the reference to a training prompt, labelled by a gold function.

The prompts are the first by a hash of (seed, reward model, prompt id), so two reward models get different ones, except
for those that chance gives to both; their answers differ in any case.
"""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError, Reward, SampledPairs
from stages.common.seeds import seed_of
from stages.common.tables import PROMPTS, read_table
from stages.preferences.label import label_pairs
from stages.rollout.answers import sampled_answers
from stages.score.calling.function import UserFunction
from stages.score.calling.inspection import check_function, of_option
from stages.score.calling.rows import call_rows
from stages.score.inputs import columns_of, reward_inputs

OPTION = "reward_models.{name}.preferences.sampled"


def choose_prompts(prompts: pl.DataFrame, count: int, seed: int, name: str) -> pl.DataFrame:
    """`count` training prompts for one reward model."""
    training = prompts.filter(pl.col("split") == "train")
    if count > training.height:
        raise ParamsError(
            f"params.yaml: {OPTION.format(name=name)}.prompts = {count}: there are {training.height} training "
            "prompts (prepare.prompts), and each is taken once"
        )
    order = sorted(training["prompt_id"], key=lambda prompt_id: seed_of(seed, "preferences", name, prompt_id))
    return pl.DataFrame({"prompt_id": order[:count]}).join(training, on="prompt_id", maintain_order="left")


def gold_of(options: SampledPairs, name: str) -> UserFunction:
    """The gold function, and where params.yaml has it."""
    reward = Reward(function=options.gold, arguments=options.arguments)
    return of_option(f"gold_of_{name}", reward, OPTION.format(name=name), "gold")


def gold_scores(answers: pl.DataFrame, options: SampledPairs, name: str, max_failed: float) -> list[float | None]:
    """What the gold function says of each answer; null where it cannot score it."""
    return [row[0] for row in call_rows(gold_of(options, name), reward_inputs(answers), max_failed)]


def check_gold(options: SampledPairs, name: str) -> None:
    """Told before anything is sampled."""
    columns = columns_of()
    check_function(gold_of(options, name), None if columns is None else columns - {"iteration"})


def sampled_pairs(
    name: str, options: SampledPairs, params: Params, model: Any, tokenizer: Any, journal: Journal
) -> pl.DataFrame:
    """The pairs of one reward model, without a split yet."""
    prompts = choose_prompts(read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)), options.prompts, params.seed, name)
    answers = sampled_answers(model, tokenizer, prompts, 2, ("preferences", name), params, journal)
    gold = gold_scores(answers, options, name, params.score.max_failed)
    scored = answers.with_columns(gold=pl.Series(gold, dtype=pl.Float64))
    pairs, left_out = label_pairs(scored, options, params.seed, name)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "none"
    journal.say(f"{prompts.height} prompts, {pairs.height} pairs; left out: {told}")
    if pairs.height < 2:
        raise StageError(
            f"params.yaml: {OPTION.format(name=name)}: {pairs.height} pairs of {prompts.height} prompts, left out: "
            f"{told}; gold has to tell the two answers to a prompt apart, and pairs of two prompts are needed at least"
        )
    return pairs
