"""`prepare model`: bring the initial model into `data/base` as an ordinary Hugging Face folder in safetensors.

A source is a model folder, a hub id, a GGUF file, or `package:NAME/FILE.gguf` for a GGUF inside an installed package.
model.json says what was loaded.
"""

from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.paths import BASE, MODEL_JSON
from stages.common.write_json import write_json
from stages.prepare.checkpoint.load import Loaded, load
from stages.prepare.checkpoint.write import described, write_folder

OPTION = "prepare.model"


def run(params: Params, journal: Journal) -> None:
    loaded = load(params.prepare.model, OPTION)
    with publish(BASE) as scratch:
        write_folder(loaded, scratch, OPTION)
    facts = described(loaded, params.prepare.model, BASE)
    with publish(MODEL_JSON) as scratch:
        write_json(facts, scratch)
    tell(loaded, journal)


def tell(loaded: Loaded, journal: Journal) -> None:
    """What a user should know of the import."""
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    tokens = len(loaded.tokenizer.get_vocab())
    journal.say(f"{loaded.place}: {parameters / 1e6:.1f} M parameters, {tokens} tokens in the vocabulary")
    if loaded.ignored:
        journal.say(f"generation_config.json is not read: {', '.join(loaded.ignored)}; params.yaml alone decides")
    if loaded.unused:
        journal.say(f"weights that this architecture has no place for: {', '.join(loaded.unused[:3])}")
    if loaded.code:
        journal.say(f"runs Python code of the model's folder: {', '.join(loaded.code)}")
