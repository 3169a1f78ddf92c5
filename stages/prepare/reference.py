"""`prepare reference`: the reference policy of the KL, where it is another model than the initial policy.

The folder is there without one, too, as DVC wants it: reference.json says which model the KL is measured to. Another
model reads the very tokens that the policy samples, so that its tokenizer has to make the same ones.
"""

from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.model_folder import load_tokenizer
from stages.common.params import Model, Params, ParamsError
from stages.common.tokenizer_probe import difference
from stages.common.write_json import write_json
from stages.prepare.checkpoint.load import Loaded, load
from stages.prepare.checkpoint.tokens import rows_of
from stages.prepare.checkpoint.write import described, write_folder
from stages.prepare.model import tell

OPTION = "prepare.reference"
FILE = "reference.json"


def check_agrees(loaded: Loaded, policy_tokenizer: Any) -> None:
    """The same tokens as the policy's, and weights for each of them."""
    differs = difference(policy_tokenizer, loaded.tokenizer)
    if differs is not None:
        raise ParamsError(
            f"params.yaml: {OPTION}: its tokenizer is not the policy's (prepare.model), whose tokens it has to read: "
            f"{differs}; take a model of the same family, or null"
        )
    largest = max(policy_tokenizer.get_vocab().values())
    if rows_of(loaded.model) <= largest:
        raise ParamsError(
            f"params.yaml: {OPTION}: the policy has token ids up to {largest}, the reference weights for "
            f"{rows_of(loaded.model)}"
        )


def write_reference(settings: Model, scratch: Path) -> Loaded:
    loaded = load(settings, OPTION)
    check_agrees(loaded, load_tokenizer(paths.BASE))
    write_folder(loaded, scratch, OPTION)
    facts = described(loaded, settings, scratch)
    write_json({"reference": str(paths.KL_REFERENCE), "model": facts}, scratch / FILE)
    return loaded


def run(params: Params, journal: Journal) -> None:
    settings = params.prepare.reference
    with publish(paths.KL_REFERENCE) as scratch:
        scratch.mkdir()
        if settings is not None:
            tell(write_reference(settings, scratch), journal)
            return
        write_json({"reference": str(paths.REFERENCE)}, scratch / FILE)
    journal.say("the reference is the initial policy")
