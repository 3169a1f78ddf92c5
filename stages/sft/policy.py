"""`sft policy`: the base and its demonstrations -> reference/, an ordinary model folder, and sft.parquet.

Without `sft` the reference is the base, the same files. What is trained is a private copy: models that this process
holds for other stages stay as they are.
"""

import warnings
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.checked import reading
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.files import link_folder, publish
from stages.common.journal import Journal
from stages.common.memory import release
from stages.common.optimizer import StoredAdamW
from stages.common.params import Params, Sft
from stages.common.policy import load_model, new_adapter, save_policy, trainable
from stages.common.seeds import seed_of
from stages.common.tables import DEMONSTRATIONS, SFT_STEPS, read_table, write_table
from stages.sft.training import train
from stages.sft.weights import merged, stored_dtype, trained


def run(params: Params, runtime: Runtime, journal: Journal) -> None:
    if params.sft is None:
        with reading(paths.BASE), publish(paths.REFERENCE) as scratch:
            link_folder(paths.BASE, scratch)
        write_steps([])
        journal.say("no fine-tuning: the reference is the base")
        return
    steps = fine_tune(params, params.sft, runtime, journal)
    release()
    write_steps(steps)
    before, after = steps[0]["heldout_loss"], steps[-1]["heldout_loss"]
    journal.say(f"held-out loss {before:.4f} -> {after:.4f} nats per token in {len(steps) - 1} steps")


def fine_tune(params: Params, sft: Sft, runtime: Runtime, journal: Journal) -> list[dict[str, Any]]:
    """Train, publish the reference, and return the rows of the steps table."""
    table = read_table(paths.DEMONSTRATIONS, DEMONSTRATIONS, ("prompt_id",))
    if set(table["split"]) != {"train", "heldout"}:
        raise StageError(f"{paths.DEMONSTRATIONS} is not of these params: run `dvc repro sft_demonstrations` first")
    model = trainable_model(params, sft, runtime)
    optimizer = StoredAdamW(trainable(model), sft)
    steps = train(model, optimizer, table, sft, params.seed, journal)
    publish_reference(model, optimizer, sft)
    return steps


def trainable_model(params: Params, sft: Sft, runtime: Runtime) -> Any:
    """A copy of the base of which all weights are trained, or an adapter on it."""
    model = load_model(paths.BASE, runtime)
    if sft.method == "full":
        return model.requires_grad_(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*base_model_name_or_path.* was renamed")  # it is merged at the end
        return new_adapter(model, params.policy.lora, seed_of(params.seed, "sft lora") % 2**63)


def publish_reference(model: Any, optimizer: StoredAdamW, sft: Sft) -> None:
    """A plain folder like the base's: its files but for the weights, and these in the precision they have there."""
    finished = trained(model, optimizer) if sft.method == "full" else merged(model, optimizer)
    with publish(paths.REFERENCE) as scratch:
        save_policy(finished.to(stored_dtype(paths.BASE)), paths.BASE, scratch)


def write_steps(steps: list[dict[str, Any]]) -> None:
    write_table(pl.DataFrame(steps, schema=SFT_STEPS), SFT_STEPS, ("step",), paths.SFT_STEPS)
