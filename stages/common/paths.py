"""Where every file of a run lies, relative to the project's folder."""

import re
from pathlib import Path

from stages.common.errors import StageError

DATA = Path("data")
BASE = DATA / "base"
REFERENCE = DATA / "reference"  # the initial policy and reference: the base, fine-tuned if `sft` says so
KL_REFERENCE = DATA / "kl_reference"  # the reference of the KL where it is another model; reference.json says which
MODEL_JSON = (
    DATA / "model.json"
)  # what was loaded: architecture, special tokens, fingerprints of tokenizer and template
SOURCES = DATA / "sources"  # hashes of what a run takes from outside `data`: users' files, folders and code
RUN_JSON = DATA / "run.json"  # effective settings, library versions and machine
RUNTIME_JSON = DATA / "runtime.json"  # device, precision, threads and GPU, as torch finds them
SFT_SOURCE = DATA / "sft_source.json"  # what the demonstrations are made of
SFT_TRAINING = DATA / "sft_training.json"  # and what the training on them depends on
DEMONSTRATIONS = DATA / "demonstrations.parquet"
SFT_STEPS = DATA / "sft.parquet"
PROMPTS = DATA / "prompts.parquet"
PROMPTS_JSON = DATA / "prompts.json"  # what was found in the prompts: lengths, what was dropped and why
REWARD_CACHE = DATA / ".cache" / "rewards"  # results of finished calls of reward functions, by content
RESUME = DATA / ".cache" / "resume"  # what a stage that is at work has finished, for it to go on from after a kill
RESCORED = DATA / "rescored"  # tables of `rloo rescore`
ACCEPTANCE = DATA / "acceptance.json"
HISTORY = DATA / "history.parquet"
HISTORY_CSV = DATA / "history.csv"
OVER_OPTIMISATION_CSV = DATA / "over_optimisation.csv"
SECONDS_CSV = DATA / "seconds.csv"
LOGS = DATA / "logs"
PLAN = Path("pipeline/plan.yaml")
WINDOWS = Path("pipeline/windows")  # a folder for each window of a long run that is not the open one
SUMMARY = DATA / "summary.json"  # how the run ended: one number for each thing that experiments are compared by
MANIFESTS = DATA / "manifests"
PARTIAL = DATA / ".partial"

INITIAL = "i0000"
NO_ITERATION = -1


def iteration_name(number: int) -> str:
    """`i0003`: starts with a letter, so that YAML keeps it a string."""
    return f"i{number:04d}"


def iteration_number(name: str) -> int:
    """The number in `i0003`; a StageError for anything else."""
    if not re.fullmatch(r"i[0-9]{4,}", name) or iteration_name(int(name[1:])) != name:
        raise StageError(f"{name!r} is not the name of an iteration; names look like {iteration_name(3)}")
    return int(name[1:])


def iteration_column(name: str) -> int:
    """What the column `iteration` of a policy's tables holds: -1 for a policy of `offline`, which has none."""
    return iteration_number(name) if is_iteration(name) else NO_ITERATION


def previous(name: str) -> str:
    """The iteration whose policy a training iteration starts from."""
    if name == INITIAL:
        raise StageError(f"{INITIAL} is the initial policy; training iterations count from {iteration_name(1)}")
    return iteration_name(iteration_number(name) - 1)


def manifest(stage: str, name: str) -> Path:
    """What a stage wrote, with sizes and hashes; written last, so that without it nothing of the stage is finished."""
    return MANIFESTS / name / f"{stage}.json"


def source(name: str) -> Path:
    """Hashes of what one consumer takes from outside: model, reference, prompts, sft, score, evaluate, judge."""
    return SOURCES / f"{name}.json"


def preferences_source(name: str) -> Path:
    """The same of the preferences of reward model `name`."""
    return SOURCES / "preferences" / f"{name}.json"


def rescored(name: str, iteration_: str) -> Path:
    """The folder of the tables that `rloo rescore` makes of an iteration."""
    return RESCORED / name / iteration_


def preferences(name: str) -> Path:
    """The pairs that reward model `name` is trained on."""
    return DATA / "preferences" / f"{name}.parquet"


def reward_models_index() -> Path:
    """Which reward models the scores use; there also where there is none, as DVC wants the folder to exist."""
    return DATA / "reward_models" / "index.json"


def reward_model(name: str) -> Path:
    return DATA / "reward_models" / name


def reward_metrics(name: str) -> Path:
    return DATA / "reward_models" / f"{name}.json"


def reward_steps(name: str) -> Path:
    return DATA / "reward_models" / f"{name}.parquet"


def is_iteration(name: str) -> bool:
    """`i0003`, and not the name of a policy of `offline`."""
    return re.fullmatch(r"i[0-9]{4,}", name) is not None


def iteration(name: str) -> Path:
    """The tables of an iteration, or of the policy `name` of `offline`."""
    return DATA / ("iterations" if is_iteration(name) else "offline") / name


def rollouts(name: str) -> Path:
    return iteration(name) / "rollouts.parquet"


def scores(name: str) -> Path:
    return iteration(name) / "scores.parquet"


def advantages(name: str) -> Path:
    return iteration(name) / "advantages.parquet"


def steps(name: str) -> Path:
    return iteration(name) / "steps.parquet"


def critic_steps(name: str) -> Path:
    return iteration(name) / "critic_steps.parquet"


def gradient_shares(name: str) -> Path:
    return iteration(name) / "gradient_shares.parquet"


def evaluation(name: str) -> Path:
    return iteration(name) / "eval.json"


def judged(name: str) -> Path:
    return iteration(name) / "judged.parquet"


def verdict(name: str) -> Path:
    return iteration(name) / "judge.json"


def generations(name: str) -> Path:
    return iteration(name) / "generations.parquet"


def policy(name: str) -> Path:
    return DATA / "policies" / name if is_iteration(name) else iteration(name) / "policy"


def critic(name: str) -> Path:
    """The critic's checkpoint and optimizer state; the folder is there without a critic, too, as DVC wants it."""
    return DATA / "critics" / name


def optimizer(name: str) -> Path:
    return DATA / "optimizer" / name / "optimizer.safetensors"
