"""Which stage makes a file or folder of `data`. A test holds this against the outs of dvc.yaml."""

from pathlib import Path

from stages.common import paths

Producer = tuple[str, str | None]  # stage, and its name; None: that of the plan's last iteration

ALONE: dict[Path, Producer] = {
    paths.RUN_JSON: ("prepare", "sources"),
    paths.SOURCES: ("prepare", "sources"),
    paths.BASE: ("prepare", "model"),
    paths.MODEL_JSON: ("prepare", "model"),
    paths.KL_REFERENCE: ("prepare", "reference"),
    paths.PROMPTS: ("prepare", "prompts"),
    paths.PROMPTS_JSON: ("prepare", "prompts"),
    paths.SFT_SOURCE: ("prepare", "options"),
    paths.SFT_TRAINING: ("prepare", "options"),
    paths.DEMONSTRATIONS: ("sft", "demonstrations"),
    paths.REFERENCE: ("sft", "policy"),
    paths.SFT_STEPS: ("sft", "policy"),
    paths.RUNTIME_JSON: ("prepare", "policy"),
    paths.ACCEPTANCE: ("prepare", "acceptance"),
    paths.HISTORY: ("history", None),
    paths.HISTORY_CSV: ("history", None),
    paths.OVER_OPTIMISATION_CSV: ("history", None),
    paths.SUMMARY: ("history", None),
}
OF_INITIAL: dict[Path, Producer] = {  # of i0000, made by other stages than those of later iterations
    paths.policy(paths.INITIAL): ("prepare", "policy"),
    paths.optimizer(paths.INITIAL): ("prepare", "policy"),
    paths.advantages(paths.INITIAL): ("prepare", "policy"),
    paths.critic(paths.INITIAL): ("critic", "initial"),
}
IN_ITERATION = {
    "rollouts.parquet": "rollout",
    "scores.parquet": "score",
    "advantages.parquet": "advantage",
    "gradient_shares.parquet": "diagnose",
    "steps.parquet": "update",
    "critic_steps.parquet": "update",
    "generations.parquet": "evaluate",
    "eval.json": "evaluate",
    "judged.parquet": "judge",
    "judge.json": "judge",
    "history.parquet": "window_entry",
}
OFFLINE = IN_ITERATION | {"policy": "offline", "steps.parquet": "offline"}


def producer_of(path: Path) -> Producer | None:
    """The stage that makes a file, the folder that it lies in, or a folder; None: no stage does, as of users' files."""
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    for known in (path, *path.parents):
        if known in ALONE or known in OF_INITIAL:
            return ALONE.get(known) or OF_INITIAL[known]
    match path.parts:
        case (paths.DATA.name, folder, name, *rest):
            return _of_name(folder, name, rest)
    return None


def _of_name(folder: str, name: str, rest: list[str]) -> Producer | None:
    """Of a path `data/<folder>/<name>/<rest>`, where the name is an iteration's, or of a policy or a reward model."""
    stem = name.partition(".")[0] if not rest else name
    if folder == "reward_models":
        return ("prepare", "options") if name == paths.reward_models_index().name else ("reward_model", stem)
    if folder == "preferences":
        return "preferences", stem
    if folder in ("policies", "optimizer", "critics"):
        return "update", name
    if folder == paths.MANIFESTS.name and rest:
        return rest[0].partition(".")[0], name
    if folder in ("iterations", "offline") and rest:
        stage = (IN_ITERATION if folder == "iterations" else OFFLINE).get(rest[0])
        return None if stage is None else (stage, name)
    return None
