"""`prepare policy`: the initial policy `i0000`, an optimizer state of zero steps, and a table of no advantages.

LoRA: an adapter that changes nothing yet. Full fine-tuning: the base itself. Beside it runtime.json says what torch
makes of `compute` on this machine, which the stage that writes run.json cannot know: it does not load torch.
"""

import shutil
from pathlib import Path

import polars as pl
import torch
from safetensors.torch import save_file

from stages.common import paths
from stages.common.checked import reading
from stages.common.device import Runtime, described, set_up
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.policy import load_model, new_adapter, save_new_adapter, trainable
from stages.common.seeds import seed_of
from stages.common.tables import ADVANTAGES, KEY, write_table
from stages.common.write_json import write_json


def run(params: Params, journal: Journal) -> None:
    with publish(paths.policy(paths.INITIAL)) as scratch:
        if params.policy.method == "full":
            with reading(paths.REFERENCE):
                shutil.copytree(paths.REFERENCE, scratch)
            what = "full fine-tuning: the initial policy is the reference"
        else:
            what = write_adapter(params, scratch)
    with publish(paths.optimizer(paths.INITIAL)) as scratch:
        save_file({}, scratch, metadata={"steps": "0"})
    write_table(pl.DataFrame(schema=ADVANTAGES), ADVANTAGES, KEY, paths.advantages(paths.INITIAL))
    with publish(paths.RUNTIME_JSON) as scratch:
        write_json(described(set_up(params.compute)), scratch)
    journal.say(what)


def write_adapter(params: Params, folder: Path) -> str:
    """A fresh adapter in `folder`; returns what to say of it."""
    base = load_model(paths.REFERENCE, Runtime(torch.device("cpu"), torch.float32))  # the same bytes on any device
    model = new_adapter(base, params.policy.lora, seed_of(params.seed, "lora") % 2**63)
    save_new_adapter(model, folder)
    count = sum(parameter.numel() for parameter in trainable(model).values())
    return f"LoRA of rank {params.policy.lora.rank}: {count / 1e6:.2f} M trainable parameters"
