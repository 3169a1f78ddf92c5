"""Stage `rollout`: policy of the previous iteration -> rollouts.parquet, K samples for each prompt of the iteration."""

import polars as pl

from stages.common import paths
from stages.common.gate import check_greedy, check_rollouts
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError
from stages.common.policy import Models, load_tokenizer
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, read_table, write_table
from stages.rollout.dynamic import sample_until_signal
from stages.rollout.order import prompts_of
from stages.rollout.source import Source
from stages.rollout.weights import sampling_weights


def rollouts_of(source: Source) -> pl.DataFrame:
    """Every row of the iteration, as params.yaml wants them."""
    options = source.params.rollout
    if options.dynamic_sampling is not None:
        rows = sample_until_signal(source, options.dynamic_sampling)
    else:
        ids = source.prompts["prompt_id"].to_list()
        rows = source.samples(prompts_of(ids, source.params.seed, source.iteration, options.prompts_per_iteration))
    return pl.concat([rows, source.greedy(rows)]) if options.greedy else rows


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(pl.col("split") == "train")
    if prompts.is_empty():
        raise ParamsError(f"{paths.PROMPTS} has no training prompts; see prepare.prompts in params.yaml")
    policy = models.policy(paths.policy(paths.previous(name)))
    number = paths.iteration_number(name)
    with sampling_weights(policy, params.rollout, journal) as model:
        table = rollouts_of(Source(models, model, load_tokenizer(), prompts, params, number, journal))
    check_rollouts(table, params.rollout.samples_per_prompt)
    if params.rollout.greedy:
        check_greedy(table)
    write_table(table, ROLLOUTS, KEY, paths.rollouts(name))
    tokens = int(table["length"].sum())
    journal.say(f"{table.height} completions, {tokens} tokens, {tokens / journal.seconds:.0f} tokens/s")
