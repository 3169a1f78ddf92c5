"""The other side of `against_trl`: TRL's RLOOTrainer on the same checkpoint, prompts, K, lengths and reward.

python -m tests.bench.usual_trainer FOLDER ITERATIONS full|lora yes|no (gradient checkpointing)
"""

import os
import sys
import time
from typing import Any

import datasets
import torch
import transformers
from peft import LoraConfig
from trl import RLOOConfig, RLOOTrainer

from stages.score.constraints import reward
from tests.bench.job import BETA, NEW_TOKENS, PROMPTS, RANK, RATE, SAMPLES, prompts_of_iteration, say
from tests.bench.measure import peak_gigabytes


class Clock(transformers.TrainerCallback):
    """When each step begins and ends."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def scored(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """The pipeline's own reward, on what TRL gives."""
    reasons = ["length" if len(ids) == NEW_TOKENS else "stop" for ids in completion_ids]
    return reward(completions=completions, finish_reason=reasons, **columns)


def main(folder: str, iterations: int, method: str, checkpointing: bool) -> None:
    os.chdir(folder)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rows = [row for number in range(1, iterations + 2) for row in prompts_of_iteration(number)]
    kept = [{"prompt": row["prompt_text"], **{key: row[key] for key in ("constraints", "subject")}} for row in rows]
    lengths: list[int] = []

    def heard(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        lengths.append(sum(map(len, completion_ids)))
        return scored(completions, completion_ids, **columns)

    clock = Clock()
    config = RLOOConfig(
        output_dir="trl",
        report_to="none",
        use_cpu=True,
        bf16=False,
        beta=BETA,
        temperature=1.0,
        learning_rate=RATE[method],
        lr_scheduler_type="constant",
        max_steps=iterations + 1,
        num_generations=SAMPLES,
        per_device_train_batch_size=PROMPTS * SAMPLES,
        gradient_checkpointing=checkpointing,
        max_completion_length=NEW_TOKENS,
        shuffle_dataset=False,
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = RLOOTrainer(
        "data/base",
        [heard],
        args=config,
        train_dataset=datasets.Dataset.from_list(kept),
        processing_class=transformers.AutoTokenizer.from_pretrained("data/base", padding_side="left"),
        callbacks=[clock],
        peft_config=LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["q_proj", "v_proj"])
        if method == "lora"
        else None,
    )
    trainer.train()
    say({"step": clock.seconds[1:], "tokens": lengths[1:], "gigabytes": peak_gigabytes()})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "yes")
