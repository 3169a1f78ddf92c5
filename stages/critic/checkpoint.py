"""Writing a critic: its weights, its optimizer's state and what it is, all in one folder."""

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from stages.common.critic import (
    ADAPTER,
    HEAD,
    OPTIMIZER,
    OWN_BASE,
    PRETRAINING,
    Critic,
    described,
    write_marker,
)
from stages.common.files import link_folder
from stages.common.optimizer import StoredAdamW
from stages.common.params import Critic as Options
from stages.common.paths import REFERENCE
from stages.common.policy import save_adapter_weights, save_new_adapter, save_policy


def save_first(
    critic: Critic, optimizer: StoredAdamW, options: Options, source: Path, tokenizer: Any, target: Path
) -> None:
    """The folder of `i0000`. An adapter over another model than the reference takes that with it, by hard links:
    what the critic says must not depend on a folder that may be made anew.
    """
    if critic.adapter is None:
        critic.model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    else:
        save_new_adapter(critic.adapter, target, source)
        save_head(critic, target)
        if source != REFERENCE:
            link_folder(source, target / OWN_BASE)
    write_marker(target, {"initial": options.initial, "method": options.method})
    optimizer.save(target / OPTIMIZER)


def save_next(critic: Critic, optimizer: StoredAdamW, source: Path, target: Path) -> None:
    """The folder of a later iteration, what does not change taken from the folder `source` of the one before; with the
    optimizer's state, if the last step has not left it there.
    """
    if critic.adapter is None:
        save_policy(critic.model, source, target)
        (target / PRETRAINING).unlink(missing_ok=True)
    else:
        shutil.copyfile(source / ADAPTER, target / ADAPTER)
        save_adapter_weights(critic.adapter, target)
        save_head(critic, target)
        if (source / OWN_BASE).exists():
            link_folder(source / OWN_BASE, target / OWN_BASE)
    write_marker(target, described(source))
    if not (target / OPTIMIZER).exists():
        optimizer.save(target / OPTIMIZER)


def save_head(critic: Critic, folder: Path) -> None:
    state = {name: tensor.contiguous().cpu() for name, tensor in sorted(critic.model.score.state_dict().items())}
    save_file(state, folder / HEAD, metadata={"format": "pt"})
