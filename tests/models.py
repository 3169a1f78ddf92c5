"""Tiny model folders, each with a property that a user's own model may have, and a run of one iteration on one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from pipeline.study.runs import workspace
from stages.common.params import Params
from stages.common.params_file import parse_params
from tests.tiny import sliding, tiny_tokenizer

ROOT = Path(__file__).parents[1]
LINEAR = ["q_proj", "v_proj", "down_proj"]
UNASKED = {"temperature": 0.1, "top_k": 1, "do_sample": False, "max_new_tokens": 1, "eos_token_id": [11]}
PREPARATION = (
    *(("prepare", part) for part in ("model", "reference", "prompts", "options")),
    *(("sft", part) for part in ("demonstrations", "policy")),
    *(("prepare", part) for part in ("policy", "acceptance")),
    ("critic", "initial"),
)
ITERATION = ("rollout", "score", "advantage", "update", "evaluate")


def varied(completion_ids, **columns):
    """A reward that differs between random answers."""
    return [(sum(ids) % 7) / 7 for ids in completion_ids]


def small_llama(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(5)
    config = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 640,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**config | changes)).eval()


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    """With a generation_config that nobody asked for, and that transformers would refuse to save."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(UNASKED))
    return folder


def gpt2(folder: Path) -> Path:
    """Absolute positions."""
    torch.manual_seed(2)
    size = {"vocab_size": 300, "n_positions": 640, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = GPT2Config(**size, initializer_range=0.2, bos_token_id=0, eos_token_id=0)
    return save(folder, GPT2LMHeadModel(config).eval(), tiny_tokenizer())


def grouped_queries(folder: Path) -> Path:
    """Two key-value heads for four of queries, and an output head of its own."""
    return save(folder, small_llama(tie_word_embeddings=False), tiny_tokenizer())


def tied(folder: Path) -> Path:
    return save(folder, small_llama(tie_word_embeddings=True), tiny_tokenizer())


def several_eos(folder: Path) -> Path:
    """The tokenizer's, and in config.json many more, one of which has no token."""
    ends = [1, *range(40, 110), 305]
    return save(folder, small_llama(eos_token_id=ends, vocab_size=310), tiny_tokenizer())


def no_pad(folder: Path) -> Path:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    return save(folder, small_llama(), tokenizer)


def pad_is_eos(folder: Path) -> Path:
    """As in many checkpoints: what pads is what ends."""
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    return save(folder, small_llama(pad_token_id=0), tokenizer)


def no_template(folder: Path) -> Path:
    return save(folder, small_llama(), tiny_tokenizer(chat=False))


def larger_vocabulary(folder: Path) -> Path:
    """More rows of weights than tokens: a third of what a random model samples has none."""
    return save(folder, small_llama(vocab_size=450, tie_word_embeddings=True), tiny_tokenizer())


def bfloat16(folder: Path) -> Path:
    return save(folder, small_llama(tie_word_embeddings=True).bfloat16(), tiny_tokenizer())


def sliding_window(folder: Path) -> Path:
    return save(folder, sliding(), tiny_tokenizer())


CODE = '''"""A model that transformers does not know."""

from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own_of_tests"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
'''


def remote_code(folder: Path) -> Path:
    """Python code in the folder."""
    save(folder, small_llama(tie_word_embeddings=True), tiny_tokenizer())
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"model_type": "own_of_tests", "architectures": ["OwnForCausalLM"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    path.write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE)
    return folder


HEADED = """

from torch.nn import Linear
from transformers import LlamaModel
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel


class OwnForSequenceClassification(LlamaPreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.score = Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()
"""


def remote_code_with_head(folder: Path) -> Path:
    """Python code that knows sequence classification, too."""
    path = remote_code(folder) / "config.json"
    config = json.loads(path.read_text())
    config["auto_map"] |= {"AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    path.write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE + HEADED)
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    maker.__name__: maker
    for maker in (
        gpt2,
        grouped_queries,
        tied,
        several_eos,
        no_pad,
        pad_is_eos,
        no_template,
        larger_vocabulary,
        bfloat16,
        sliding_window,
        remote_code,
    )
}


def params_for(folder: Path, changes: dict[str, Any] | None = None) -> Params:
    """Params of a run on a model, with options such as {"policy.method": "full"} changed."""
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["compute"] |= {"device": "cpu", "dtype": "float32", "threads": 1}
    raw["prepare"]["model"] = {"source": str(folder)}
    raw["prepare"]["prompts"] |= {"system": None}
    raw["prepare"]["prompts"]["embedded"] |= {"train": 4, "heldout": 2}
    raw["policy"]["lora"] |= {"rank": 2, "alpha": 4, "last_layers": None, "targets": LINEAR}
    raw["rollout"] |= {"prompts_per_iteration": 2, "samples_per_prompt": 3, "max_new_tokens": 12}
    raw["rollout"] |= {"stop_tokens": None, "temperature": 1.0}
    raw["score"]["rewards"] = {"varied": {"function": "tests.models:varied"}}
    raw["update"] |= {"learning_rate": 0.01}
    raw["evaluate"] |= {"resamples": 20, "parts": None}
    for key, value in (changes or {}).items():
        *sections, name = key.split(".")
        place = raw
        for section in sections:
            place = place[section]
        place[name] = value
    return parse_params(raw, "params.yaml")


def one_iteration(params: Params) -> None:
    """Everything up to the evaluation of i0001, in the working folder and this process."""
    for stage, part in PREPARATION:
        workspace.run(stage, part, params)
    for stage in ITERATION:
        workspace.run(stage, "i0001", params)
