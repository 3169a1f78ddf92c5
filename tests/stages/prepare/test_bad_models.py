"""Folders that cannot be trained: each is refused before anything is imported, with what is wrong and what to do."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    LlamaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from stages.common import paths
from stages.common.params import ParamsError
from stages.prepare import model, reference
from tests.models import params_for, remote_code, save, small_llama, tied
from tests.silent import Silent
from tests.tiny import tiny_tokenizer

SMALL = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "model"


def rewrite(path, **changes):
    found = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def write_weights(folder, weights):
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def bert(folder):
    save(folder, BertForMaskedLM(BertConfig(**SMALL, intermediate_size=32)), tiny_tokenizer())


def bert_that_looks_both_ways(folder):
    save(folder, BertLMHeadModel(BertConfig(**SMALL, intermediate_size=32)), tiny_tokenizer())


def t5(folder):
    config = T5Config(vocab_size=300, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    save(folder, T5ForConditionalGeneration(config), tiny_tokenizer())


def reward_model(folder):
    config = small_llama().config
    config.num_labels = 1
    save(folder, LlamaForSequenceClassification(config), tiny_tokenizer())


def adapter(folder):
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")


def only_gguf(folder):
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(b"GGUF")


def no_tokenizer(folder):
    tied(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def tokenizer_without_vocabulary(folder):
    tied(folder)
    (folder / "tokenizer.json").unlink()


def small_vocabulary(folder):
    save(folder, small_llama(vocab_size=280), tiny_tokenizer())


def no_weights(folder):
    tied(folder)
    (folder / "model.safetensors").unlink()


def cut_weights(folder):
    tied(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def cut_header(folder):
    tied(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])


def pointer(folder):
    tied(folder)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def a_missing_tensor(folder):
    tied(folder)
    weights = weights_of(folder)
    del weights["model.layers.1.mlp.up_proj.weight"]
    write_weights(folder, weights)


def another_shape(folder):
    tied(folder)
    weights = weights_of(folder)
    weights["model.norm.weight"] = torch.ones(7)
    write_weights(folder, weights)


def not_finite(folder):
    tied(folder)
    weights = weights_of(folder)
    weights["model.norm.weight"][0] = float("nan")
    write_weights(folder, weights)


def integers(folder):
    tied(folder)
    write_weights(folder, {name: tensor.to(torch.int8) for name, tensor in weights_of(folder).items()})


def shards(folder):
    small_llama().save_pretrained(folder, max_shard_size="20KB")
    tiny_tokenizer().save_pretrained(folder)


def a_missing_shard(folder):
    shards(folder)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def a_broken_index(folder):
    shards(folder)
    (folder / "model.safetensors.index.json").write_text("[]")


def quantised(folder):
    tied(folder)
    rewrite(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})


def unknown_architecture(folder):
    tied(folder)
    rewrite(folder / "config.json", model_type="of_tomorrow")


def no_model_type(folder):
    tied(folder)
    rewrite(folder / "config.json", model_type=None)


def broken_config(folder):
    tied(folder)
    (folder / "config.json").write_text("{")


def broken_tokenizer(folder):
    tied(folder)
    (folder / "tokenizer.json").write_text("{")


BAD = [
    (bert, "BertForMaskedLM is no decoder-only causal language model"),
    (bert_that_looks_both_ways, "BertLMHeadModel sees tokens that come later, as encoders do"),
    (t5, "T5ForConditionalGeneration is no decoder-only causal language model, but an encoder and a decoder"),
    (reward_model, "LlamaForSequenceClassification is no decoder-only .*; a reward model, a classifier or an encoder"),
    (adapter, r"no config\.json, but a PEFT adapter; merge it into its base first"),
    (only_gguf, r"no config\.json; for the GGUF file name .*tiny\.gguf itself"),
    (no_tokenizer, r"model: no tokenizer \(such as tokenizer\.json"),
    (tokenizer_without_vocabulary, "model.* (cannot be loaded|its tokenizer has no vocabulary)"),
    (small_vocabulary, "the tokenizer has ids up to 299, the model weights for 280 tokens"),
    (no_weights, r"no weights: there is neither model\.safetensors nor"),
    (cut_weights, r"model\.safetensors: \d+ bytes, its header speaks of \d+; copy it again"),
    (cut_header, r"model\.safetensors: not a safetensors file, or only its beginning"),
    (pointer, r"model\.safetensors: a pointer of Git LFS, not the weights; `git lfs pull`"),
    (a_missing_tensor, r"no weights for model\.layers\.1\.mlp\.up_proj\.weight \(1 in all\): they would be random"),
    (another_shape, "cannot be loaded"),
    (not_finite, "its predictions are not finite: the weights are broken"),
    (integers, "its weights are I8, which cannot be trained"),
    (a_missing_shard, r"index\.json names model-00002-of-\d+\.safetensors, not there: 1 of \d+ files"),
    (a_broken_index, "not an index of weights"),
    (quantised, r"its weights are quantised \(gptq\) and cannot be trained"),
    (unknown_architecture, "architecture 'of_tomorrow': this version of transformers does not know it"),
    (no_model_type, "no `model_type` in it"),
    (broken_config, r"config\.json: not JSON"),
    (broken_tokenizer, "cannot be loaded"),
    (remote_code, r"set prepare\.model\.trust_remote_code in params\.yaml to true"),
]


@pytest.mark.parametrize(("make", "told"), BAD, ids=[make.__name__ for make, _ in BAD])
def test_refused_with_what_is_wrong_and_the_earlier_import_stays(folder, make, told):
    make(folder)
    paths.BASE.mkdir(parents=True)
    (paths.BASE / "config.json").write_text("of before")
    with pytest.raises(ParamsError, match=told) as error:
        model.run(params_for(folder), Silent())
    assert str(folder) in str(error.value)
    assert (paths.BASE / "config.json").read_text() == "of before"
    assert not paths.MODEL_JSON.exists()


def sampling_in_config(folder):
    tied(folder)
    rewrite(folder / "config.json", temperature=0.2, do_sample=True, max_length=5)


def broken_generation_config(folder):
    tied(folder)
    (folder / "generation_config.json").write_text("{")


def pickled(folder):
    tied(folder)
    torch.save(weights_of(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def float16(folder):
    save(folder, small_llama().half(), tiny_tokenizer())


def named_in_another_precision(folder):
    tied(folder)
    rewrite(folder / "config.json", dtype="float16")


def a_weight_too_many(folder):
    tied(folder)
    write_weights(folder, weights_of(folder) | {"extra.weight": torch.ones(2)})


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (sampling_in_config, "float32"),
        (broken_generation_config, "float32"),
        (pickled, "float32"),
        (float16, "float16"),
        (named_in_another_precision, "float32"),
        (shards, "float32"),
        (a_weight_too_many, "float32"),
    ],
)
def test_odd_but_whole_folders_load(folder, make, dtype):
    make(folder)
    model.run(params_for(folder), Silent())
    found = json.loads(paths.MODEL_JSON.read_text())
    assert found["dtype"] == dtype
    assert found["unused_weights"] == (["extra.weight"] if make is a_weight_too_many else [])
    assert (paths.BASE / "model.safetensors").exists()


def test_two_imports_give_the_same_bytes(folder):
    tied(folder)
    runs = []
    for _ in range(2):
        model.run(params_for(folder), Silent())
        runs.append({path.name: path.read_bytes() for path in (*paths.BASE.iterdir(), paths.MODEL_JSON)})
    assert runs[0] == runs[1]


TEMPLATES = [
    ("{% for m in messages %}\n{{ m.content }\n{% endfor %}", r"template\.jinja, line 2: .*TemplateSyntaxError"),
    ("\n\n{{ raise_exception('only poems') }}", r"template\.jinja, line 3: .*only poems"),
    ("{{ messages[0].content.upper(1) }}", r"template\.jinja, line 1: .*TypeError"),
    ("always the same", "leaves out what the user says"),
    ("", "leaves out what the user says"),
]


@pytest.mark.parametrize(("text", "told"), TEMPLATES)
def test_a_template_that_cannot_be_used_is_named_with_its_line(folder, text, told):
    tied(folder)
    template = folder.parent / "template.jinja"
    template.write_text(text)
    source = {"source": str(folder), "chat_template": str(template)}
    with pytest.raises(ParamsError, match=rf"prepare\.model\.chat_template: .*{told}"):
        model.run(params_for(folder, {"prepare.model": source}), Silent())


def test_a_template_of_the_user_s_takes_the_place_of_the_model_s(folder):
    tied(folder)
    model.run(params_for(folder), Silent())
    before = json.loads(paths.MODEL_JSON.read_text())
    template = folder.parent / "template.jinja"
    template.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}", encoding="utf-8-sig")
    source = {"source": str(folder), "chat_template": str(template)}
    model.run(params_for(folder, {"prepare.model": source}), Silent())
    after = json.loads(paths.MODEL_JSON.read_text())
    assert after["chat_template"] != before["chat_template"]
    assert after["tokenizer"] == before["tokenizer"]
    assert (paths.BASE / "chat_template.jinja").read_text() == template.read_text(encoding="utf-8-sig")


def test_a_reference_with_another_tokenizer_is_refused_with_where_they_differ(folder):
    tied(folder)
    other = tiny_tokenizer()
    other.add_tokens(["Hello"])
    save(folder.parent / "other", small_llama(vocab_size=301), other)
    params = params_for(folder, {"prepare.reference": {"source": str(folder.parent / "other")}})
    model.run(params, Silent())
    with pytest.raises(ParamsError, match=r"prepare\.reference: its tokenizer is not the policy's .*'Hello, world!'"):
        reference.run(params, Silent())


def test_a_reference_goes_through_the_same_checks(folder):
    tied(folder)
    cut_weights(folder.parent / "other")
    params = params_for(folder, {"prepare.reference": {"source": str(folder.parent / "other")}})
    with pytest.raises(ParamsError, match=r"other/model\.safetensors: \d+ bytes"):
        reference.run(params, Silent())
