"""params.yaml as typed sections. An unknown key, or a value the method forbids, is an error before anything runs."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stages.common.errors import StageError

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
ConstraintKind = Literal[
    "title",
    "max_words",
    "no_commas",
    "postscript",
    "sentences",
    "bullets",
    "highlight",
    "keyword",
    "start_phrase",
    "ends_question",
    "exclamation",
    "digits",
    "min_words",
    "lowercase",
    "uppercase",
    "avoid_word",
    "end_phrase",
    "quotation",
    "parentheses",
    "json",
]


class ParamsError(StageError):
    """A message that names the file, the key and what to do."""


class Section(BaseModel):
    """Unknown keys are errors; infinities and NaN are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Compute(Section):
    """Where and in what precision models run. `auto`: CUDA and bfloat16 where there is a GPU, CPU and float32 else."""

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: Literal["auto"] | Count = "auto"


class Model(Section):
    """The initial model: a folder, a hub id, or `package:NAME/FILE.gguf` for a GGUF inside an installed package."""

    source: str
    sha256: str | None = None


class Prompts(Section):
    """The embedded task: questions of the bank, each with one or two constraints, drawn by the weights of the kinds."""

    train: Count
    heldout: Count
    constraints: Annotated[dict[ConstraintKind, Positive], Field(min_length=2)]
    two_constraints: Annotated[float, Field(ge=0, le=1)]
    system: str | None = None


class Lora(Section):
    """Rank, scale (alpha / rank), names of the adapted linear layers, in how many of the last blocks (null: all)."""

    rank: Count
    alpha: Positive
    targets: Annotated[list[str], Field(min_length=1)]
    last_layers: Count | None = None


class Policy(Section):
    """What is trained: all weights (`full`), or a LoRA adapter over the frozen base (`lora`)."""

    method: Literal["lora", "full"]
    lora: Lora


class Rollout(Section):
    """What is sampled: K = `samples_per_prompt` completions for each prompt of an iteration."""

    prompts_per_iteration: Count
    samples_per_prompt: Annotated[int, Field(ge=2)]
    max_new_tokens: Count
    temperature: Positive
    top_p: float = 1.0
    top_k: int = 0
    stop_tokens: Annotated[list[str], Field(min_length=1)] | None = None
    batch_sequences: Count = 64

    @field_validator("top_p")
    @classmethod
    def _whole_distribution(cls, value: float) -> float:
        if value != 1.0:
            raise ValueError("must be 1: the update's log-probs are those of the whole distribution, not of a nucleus")
        return value

    @field_validator("top_k")
    @classmethod
    def _no_truncation(cls, value: int) -> int:
        if value != 0:
            raise ValueError("must be 0 (off): the update's log-probs are those of the whole distribution")
        return value


class Reward(Section):
    """`function`: `module:name` with TRL's signature `f(prompts, completions, completion_ids, **columns)`."""

    function: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    weight: float = 1.0


class Kl(Section):
    """`beta` times the sequence's k1 KL estimate is taken off the reward, before the baseline."""

    beta: Annotated[float, Field(ge=0)]


class Score(Section):
    """Reward functions by name, the KL penalty, and the token budget of a reference forward pass."""

    rewards: Annotated[dict[str, Reward], Field(min_length=1)]
    kl: Kl
    pack_tokens: Count = 512

    @field_validator("rewards")
    @classmethod
    def _names(cls, rewards: dict[str, Reward]) -> dict[str, Reward]:
        bad = [name for name in rewards if not name.replace("_", "").isalnum()]
        if bad:
            raise ValueError(f"names are letters, digits and underscores, as they become column names: {bad}")
        return rewards


class BatchMean(Section):
    """Options of `batch_mean`: whether the sample itself is left out of the batch's mean."""

    leave_one_out: bool = False


class Grpo(Section):
    """Options of `grpo`: divide by the population's (n) or the sample's (n - 1) standard deviation."""

    std: Literal["population", "sample"] = "sample"


class ReinforcePp(Section):
    """Options of `reinforce_pp`: normalise scores over the batch, or what is left of them after the group's mean."""

    baseline: Literal["batch", "group"] = "batch"


class Advantage(Section):
    """The estimator and its options; one file each in `stages/advantage/`.

    `correct_reward`: the task reward that counts as fully correct when groups are classed.
    """

    estimator: Literal[
        "rloo", "reinforce", "batch_mean", "grpo", "dr_grpo", "reinforce_pp", "raft", "opo", "max_rl"
    ] = "rloo"
    batch_mean: BatchMean = BatchMean()
    grpo: Grpo = Grpo()
    reinforce_pp: ReinforcePp = ReinforcePp()
    correct_reward: float = 1.0


class Schedule(Section):
    """Linear warm-up over `warmup` optimizer steps; then linear decay that reaches `floor` times the peak at step
    `horizon` and stays there (null: constant).
    """

    warmup: Annotated[int, Field(ge=0)] = 0
    horizon: Count | None = None
    floor: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _decays_after_warmup(self) -> "Schedule":
        if self.horizon is not None and self.horizon <= max(1, self.warmup):
            raise ValueError(f"horizon ({self.horizon}) has to be later than step 1 and than warmup ({self.warmup})")
        return self


class Update(Section):
    """AdamW, its learning rate, and how an iteration is split into optimizer steps and forward passes.

    With `minibatches` above 1 the steps after the first see samples of a policy a step or more old, without a
    correction: the gradient is then no longer exactly unbiased.
    """

    learning_rate: Positive
    schedule: Schedule = Schedule()
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)] = [0.9, 0.95]
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Positive
    minibatches: Count = 1
    pack_tokens: Count = 512


class Evaluate(Section):
    """Held-out evaluation; `parts` names a function that tells what each reward is made of."""

    temperature: Annotated[float, Field(ge=0)]
    samples_per_prompt: Count = 1
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    resamples: Count = 2000
    parts: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None


class Prepare(Section):
    """The initial model and the prompts."""

    model: Model
    prompts: Prompts


class Params(Section):
    """All of params.yaml, one section per stage."""

    seed: Annotated[int, Field(ge=0)]
    compute: Compute = Compute()
    prepare: Prepare
    policy: Policy
    rollout: Rollout
    score: Score
    advantage: Advantage = Advantage()
    update: Update
    evaluate: Evaluate
