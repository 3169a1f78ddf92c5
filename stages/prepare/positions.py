"""Whether the reference of the KL can read prompt and answer together: told before anything is sampled.

The policy's own positions limit the prompts when they are prepared. Another model, `prepare.reference`, may have fewer.
"""

import polars as pl

from stages.common import paths
from stages.common.params import Params, ParamsError
from stages.common.positions import positions_in
from stages.common.tables import PROMPTS, read_table


def check_reference_reads(params: Params) -> None:
    """A ParamsError names the longest prompt that leaves no room for an answer, and what to set."""
    limit = positions_in(paths.KL_REFERENCE) if params.prepare.reference is not None else None
    if limit is None:
        return
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(pl.col("split").is_in(read_splits(params)))
    longest = prompts.select("prompt_id", tokens=pl.col("prompt_ids").list.len()).sort("tokens", "prompt_id").tail(1)
    answer = params.rollout.max_new_tokens
    for prompt_id, tokens in longest.iter_rows():
        if tokens + answer > limit:
            room = f"set prepare.prompts.max_tokens to {limit - answer}, " if limit > answer else ""
            raise ParamsError(
                f"params.yaml: prepare.reference: it has {limit} positions; prompt {prompt_id} has {tokens} tokens, "
                f"and with rollout.max_new_tokens = {answer} that is more; {room}lower rollout.max_new_tokens, or take "
                "a reference with more positions"
            )


def read_splits(params: Params) -> list[str]:
    """The prompts whose answers the reference reads."""
    beta = params.score.kl.beta
    reads = {"train": beta > 0, "heldout": params.evaluate.measures_kl(beta)}
    return [split for split, read in reads.items() if read]
