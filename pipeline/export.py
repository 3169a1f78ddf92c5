"""`rloo export`: a policy as one ordinary model folder that `AutoModelForCausalLM.from_pretrained` loads."""

import shutil
from pathlib import Path

from pipeline.names import check_policy
from pipeline.windows.layout import window_of
from pipeline.windows.present import check_policy_files
from stages.common import paths
from stages.common.checked import reading
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.paths import is_iteration


def export(name: str, target: Path) -> None:
    """Merge the adapter (if there is one) into the base and write model and tokenizer to a new folder."""
    check_policy(name)
    folder = paths.policy(name)
    if not folder.exists():
        if is_iteration(name) and name != paths.INITIAL:
            window_of(name)  # which says so of one that is not planned
        raise StageError(f"{folder} does not exist; `rloo train` makes it, or `rloo windows open {name}` restores it")
    if is_iteration(name):
        check_policy_files(name)
    if target.exists():
        raise StageError(f"{target} exists already; give a new folder")
    with publish(target) as scratch:
        write(folder, scratch)


def write(folder: Path, scratch: Path) -> None:
    """The model of a policy's folder, whole."""
    import torch

    from stages.common.device import Runtime
    from stages.common.policy import Models, is_adapter, load_tokenizer

    if is_adapter(folder):
        model = Models(Runtime(torch.device("cpu"), torch.float32)).policy(folder).merge_and_unload()
        model.save_pretrained(scratch)
        load_tokenizer().save_pretrained(scratch)
        for code in paths.REFERENCE.glob("*.py"):  # of a model that brings its own
            shutil.copyfile(code, scratch / code.name)
    else:
        with reading(folder):
            shutil.copytree(folder, scratch)
