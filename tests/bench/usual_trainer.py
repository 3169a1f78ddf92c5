"""The other side of `against_trl`: TRL's RLOOTrainer on the same checkpoint, prompts, K, lengths and reward.

python -m tests.bench.usual_trainer FOLDER ITERATIONS full|lora [checkpointing] [saving]

The folder is one that `against_trl --folder` has made.
"""

import os
import sys
import time
from itertools import pairwise
from typing import Any

import datasets
import torch
import transformers
from peft import LoraConfig
from trl import RLOOConfig, RLOOTrainer

from tests.bench.job import NEW_TOKENS, RANK, RATE, prompts_of_iteration, reward_and_beta, say, shape_of_iteration
from tests.bench.measure import peak_gigabytes


class Clock(transformers.TrainerCallback):
    """From the beginning of each step to that of the next one, with what is saved in between."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.starts.append(time.perf_counter())

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.starts.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return [after - before for before, after in pairwise(self.starts)]


def main(folder: str, iterations: int, method: str, *how: str) -> None:
    os.chdir(folder)
    prompts, samples = shape_of_iteration()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rows = [row for number in range(1, iterations + 2) for row in prompts_of_iteration(number)]
    kept = [{"prompt": row["prompt_text"], **{key: row[key] for key in ("constraints", "subject")}} for row in rows]
    reward, beta = reward_and_beta()
    lengths: list[int] = []

    def heard(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        """The pipeline's reward, on what TRL gives."""
        lengths.append(sum(map(len, completion_ids)))
        reasons = ["length" if len(ids) == NEW_TOKENS else "stop" for ids in completion_ids]
        found: list[float] = reward(completions=completions, finish_reason=reasons, **columns)
        return found

    clock = Clock()
    config = RLOOConfig(
        output_dir="trl",
        report_to="none",
        use_cpu=True,
        bf16=False,
        beta=beta,
        temperature=1.0,
        learning_rate=RATE[method],
        lr_scheduler_type="constant",
        max_steps=iterations + 1,
        num_generations=samples,
        per_device_train_batch_size=prompts * samples,
        gradient_checkpointing="checkpointing" in how,
        max_completion_length=NEW_TOKENS,
        shuffle_dataset=False,
        save_strategy="steps" if "saving" in how else "no",
        save_steps=1,
        save_total_limit=2,
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
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
