"""TRL's trainers on prepared completions, rewards and log-probs.

Only sampling and the forward pass are replaced: advantages, importance weights and losses are what TRL's own code
computes. Without TRL every test that imports this file is skipped.
"""

import polars as pl
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from tests.tiny import llama, tiny_tokenizer

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

CONSTANT_LENGTH = 12
PADDING = -0.7  # a log-prob like any other: only the mask keeps it out of a sum


def first(completions, first, **_):
    """A reward function that returns what its column holds."""
    return first


def second(completions, second, **_):
    return second


def trainer_of(kind, folder, *, group_size=4, rewards=(first,), beta=0.0, **options):
    """An RLOOTrainer or GRPOTrainer in training mode, of one micro-batch per optimizer step."""
    config, trainer = {"rloo": (trl.RLOOConfig, trl.RLOOTrainer), "grpo": (trl.GRPOConfig, trl.GRPOTrainer)}[kind]
    args = config(
        output_dir=str(folder),
        report_to="none",
        use_cpu=True,
        bf16=False,
        beta=0.0,  # above it, the trainer would load a reference model by its name
        gradient_checkpointing=False,
        num_generations=group_size,
        per_device_train_batch_size=group_size,
        max_completion_length=CONSTANT_LENGTH,
        **options,
    )
    data = datasets.Dataset.from_dict({"prompt": ["q"]})
    made = trainer(llama(), list(rewards), args=args, train_dataset=data, processing_class=tiny_tokenizer())
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    made.beta = beta
    return made


def padded(lists, value, side="right"):
    return pad_sequence([torch.tensor(x) for x in lists], True, value, side)


def masks_of(lists, side="right"):
    return padded([[1] * len(x) for x in lists], 0, side)


def completions_scored(trainer, rows, columns, logprobs=None, reference=None):
    """What TRL makes of completions: advantages, and importance weights where it has the sampler's log-probs.

    `columns` are what the reward functions return; `logprobs` and `reference` are those of policy and reference.
    """
    ids = rows["completion_ids"].to_list()
    trained = padded(logprobs or ids, PADDING)
    sampled = rows["sampler_logprobs"].to_list() if trainer.use_vllm else None
    trainer.ref_model = object()
    trainer._generate_single_turn = lambda *_: ids if isinstance(trainer, trl.RLOOTrainer) else (ids, sampled)
    trainer._get_per_token_logps_and_entropies = lambda model, *_, **__: (
        padded(reference, 0.3) if model is trainer.ref_model else trained,
        None,
        None,
    )
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return trainer._generate_and_score_completions([{"prompt": "q", **row} for row in values])


def loss_inputs(rows):
    """The inputs of TRL's loss, padded, from rows with the columns of an optimizer step."""
    prompts, ids, old = (rows[name].to_list() for name in ("prompt_ids", "completion_ids", "sampler_logprobs"))
    mask = masks_of(ids)
    return {
        "prompt_ids": padded(prompts, 0, "left"),
        "prompt_mask": masks_of(prompts, "left"),
        "completion_ids": padded(ids, 0),
        "completion_mask": mask,
        "advantages": rows["advantage"].to_torch(),
        "old_per_token_logps": padded(old, 0.3),
        "old_logps": torch.tensor([sum(row) for row in old]),
        "ref_per_token_logps": padded(rows["ref_logprobs"].to_list(), 0.1),
        "num_items_in_batch": mask.sum(),
    }


def loss_of(trainer, inputs, logp_T):
    """TRL's loss where the policy gives the completions, row after row, the log-probs `logp_T`."""
    mask = inputs["completion_mask"]
    logp = torch.full(mask.shape, PADDING, dtype=logp_T.dtype).masked_scatter(mask.bool(), logp_T)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logp, torch.zeros_like(logp), None)
    return trainer._compute_loss(trainer.model, inputs)


def random_rows(seed, groups=6, group_size=4, spread=0.4):
    """Rows of an optimizer step, with the log-probs of the policy (`logp`), of the trainer before its first step, of
    the sampler and of the reference; `spread`: of their log-ratios.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(count, scale):
        return (torch.randn(count, generator=generator, dtype=torch.float64) * scale).tolist()

    def row(group, prompt_ids):
        length = int(torch.randint(1, CONSTANT_LENGTH + 1, (), generator=generator))
        logp = [-0.2 - abs(x) for x in normal(length, 1.5)]
        return {
            "prompt_id": f"p{group}",
            "prompt_ids": prompt_ids,
            "completion_ids": torch.randint(5, 300, (length,), generator=generator).tolist(),
            "logp": logp,
            "trainer_logprobs": [a - b for a, b in zip(logp, normal(length, spread), strict=True)],
            "sampler_logprobs": [a - b for a, b in zip(logp, normal(length, spread), strict=True)],
            "ref_logprobs": [a - b for a, b in zip(logp, normal(length, 2 * spread), strict=True)],
            "advantage": normal(1, 1.0)[0],
            "token_advantages": None,
        }

    prompts = [torch.randint(5, 300, (2 + group,), generator=generator).tolist() for group in range(groups)]
    made = [row(group, prompts[group]) for group in range(groups) for _ in range(group_size)]
    return pl.DataFrame(made, schema_overrides={"token_advantages": pl.List(pl.Float64)})
