"""Stage `reward_model`: preferences and the reference -> a reward model as a folder, its training steps, its metrics.

The folder is an ordinary one of sequence classification with one label. `normalisation.json` in it holds mean and
standard deviation of its scores over answers of the reference, which bring them to mean 0 and standard deviation 1.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.model_folder import copy_code
from stages.common.params import Params
from stages.common.policy import Models, load_tokenizer
from stages.common.reward_model import NORMALISATION, RewardModelError, scores, unreadable
from stages.common.reward_text import sequences_of
from stages.common.seeds import seed_of
from stages.common.tables import PREFERENCES, REWARD_STEPS, read_table, write_table
from stages.reward_model.initial import existing_reward_model, make_trainable, merged, new_reward_model
from stages.reward_model.measure import pair_metrics, spread
from stages.reward_model.pairs import check_readable, pairs_of
from stages.reward_model.reference import reference_answers
from stages.reward_model.train import train
from stages.rollout.stopping import stop_ids


def trained(name: str, params: Params, models: Models, journal: Journal) -> tuple[Any, Any, list[Any], dict[str, Any]]:
    """Model, tokenizer, steps and metrics on the pairs."""
    settings, seed = params.reward_models[name], seed_of(params.seed, "reward_model", name)
    table = read_table(paths.preferences(name), PREFERENCES, ("pair_id",))
    pairs = pairs_of(table.filter(split="train"), margin=settings.margin)
    if not pairs:
        raise RewardModelError(f"{paths.preferences(name)} has no training pairs")
    ends = stop_ids(load_tokenizer(), params.rollout)
    model, tokenizer = new_reward_model(paths.REFERENCE, models.runtime, seed, ends)
    check_readable(model, pairs_of(table, margin=False))
    lora = params.policy.lora if settings.method == "lora" else None
    adapted = make_trainable(model, lora, seed)
    steps = train(model, pairs, settings, seed, journal)
    model = merged(adapted, lora)
    return model, tokenizer, steps, measured(model, table, settings.batch_tokens, seed)


def measured(model: Any, table: pl.DataFrame, max_tokens: int, seed: int) -> dict[str, Any]:
    """Metrics by split; a split without pairs has none."""
    found = {}
    for split in ("heldout", "train"):
        part = table.filter(split=split)
        pairs = pairs_of(part, margin=False)
        chosen = scores(model, [pair.chosen_ids for pair in pairs], max_tokens)
        rejected = scores(model, [pair.rejected_ids for pair in pairs], max_tokens)
        if pairs:
            found[split] = pair_metrics(part, chosen, rejected, seed)
    return found


def reference_scores(model: Any, tokenizer: Any, answers: pl.DataFrame, max_tokens: int) -> dict[str, Any]:
    """Mean, standard deviation and number of the scores; answers that the model cannot read are left out."""
    sequences = sequences_of(answers, tokenizer, load_tokenizer())
    found = scores(model, [ids for ids in sequences if unreadable(model, ids) is None], max_tokens)
    if not found:
        raise RewardModelError(
            f"the reward model can read no answer of the reference: {unreadable(model, sequences[0])}"
        )
    return {**spread(found), "samples": len(found)}


def write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    settings = params.reward_models[name]
    if settings.source is None:
        model, tokenizer, steps, metrics = trained(name, params, models, journal)
    else:
        model, tokenizer = existing_reward_model(settings.source, models.runtime)
        steps, metrics = [], {}
    answers = reference_answers(settings.reference_samples, params, models, journal)
    metrics["reference"] = reference_scores(model, tokenizer, answers, settings.batch_tokens)
    write_table(pl.DataFrame(steps, schema=REWARD_STEPS), REWARD_STEPS, ("step",), paths.reward_steps(name))
    with publish(paths.reward_metrics(name)) as scratch:
        write_json(metrics, scratch)
    with publish(paths.reward_model(name)) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        if settings.source is None:
            copy_code(paths.REFERENCE, scratch)
        write_json(metrics["reference"], scratch / NORMALISATION)
    journal.say(_summary(metrics))


def _summary(metrics: dict[str, Any]) -> str:
    told = [
        f"accuracy {metrics[split]['accuracy']:.3f} ({split})" for split in ("heldout", "train") if split in metrics
    ]
    reference = metrics["reference"]
    return ", ".join([*told, f"scores of the reference {reference['mean']:.3f} +- {reference['std']:.3f}"])
