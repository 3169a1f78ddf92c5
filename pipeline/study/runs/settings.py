"""What a study consists of: its folder's settings.yaml and methods.yaml, as typed records, and the runs they make.

A run is one method at one `beta`, one share of flipped preferences and one seed. All of them start from the same
fine-tuned model, and all with the same share of flips from the same reward model.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from pipeline.study.runs.words import all_prompts
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params import Params, Section
from stages.common.params_file import parse_params

STUDIES = Path("pipeline/studies")
BETA = "score.kl.beta"
SAMPLED = "reward_models.proxy.preferences.sampled"
Count = Annotated[int, Field(ge=1)]
Family = Literal["ppo", "reinforce", "rloo", "other", "offline"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]  # they become folders, DVC stages and keys in Prefect
Share = Annotated[float, Field(ge=0, lt=1)]
T = TypeVar("T", bound=Section)


class World(Section):
    """The small world of `words.py`: size of the model, held-out texts, and per training text the rest."""

    hidden: Count
    layers: Count
    heads: Count
    heldout: Count
    demonstrations: Count
    repeats: Count


class Settings(Section):
    """settings.yaml. `world` null: model and prompts are those that `params` names, by the stage `prepare`.

    `completions`: sampled in an iteration by every method, greedy ones included. `families`: what all methods of a
    family have beside `params`.
    """

    title: str
    methods_file: str
    world: World | None
    processes: Count
    iterations: Count
    evaluate_every: Count
    completions: Count
    seeds: Annotated[list[int], Field(min_length=1)]
    betas: Annotated[list[float], Field(min_length=1)]
    flips: Annotated[dict[Name, Share], Field(min_length=1)]
    params: dict[str, Any]
    families: dict[Family, dict[str, Any]] = Field(default_factory=dict)


class Method(Section):
    """An entry of methods.yaml: what it `set`s over the params of all methods and those of its family.

    `samples`: K, the samples per prompt. `beta`: the option that takes the condition's beta. `policy`: the name in
    `offline` whose policy is judged; null: that of the last iteration.
    """

    summary: str
    family: Family
    samples: Count
    beta: str = BETA
    policy: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)


class Methods(Section):
    """methods.yaml."""

    methods: Annotated[dict[Name, Method], Field(min_length=1)]


@dataclass(frozen=True)
class Run:
    """One run of a study."""

    method: str
    beta: float
    flips: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}-beta{self.beta:g}-{self.flips}-seed{self.seed}"


@dataclass(frozen=True)
class Study:
    """A study's name, settings and methods; where its files lie."""

    name: str
    settings: Settings
    methods: dict[str, Method]

    @property
    def folder(self) -> Path:
        return paths.DATA / "studies" / self.name

    def runs_of(self, method: str) -> Iterator[Run]:
        """All conditions and seeds of a method."""
        for beta in self.settings.betas:
            for flips in self.settings.flips:
                for seed in self.settings.seeds:
                    yield Run(method, beta, flips, seed)

    def params_of(self, run: Run) -> Params:
        """The params.yaml of a run."""
        method = self.methods[run.method]
        family = self.settings.families.get(method.family, {})
        raw = merged(merged(self.settings.params, family), method.set)
        where = f"{STUDIES / self.name}, {run.name}"
        answers = method.samples + bool(raw["rollout"].get("greedy"))
        if self.settings.completions % answers:
            raise StageError(
                f"{where}: completions = {self.settings.completions} are no multiple of the {answers} answers to a "
                "prompt: methods would sample different numbers; change `completions` or `samples`"
            )
        put(raw, "rollout.samples_per_prompt", method.samples, where)
        put(raw, "rollout.prompts_per_iteration", self.settings.completions // answers, where)
        put(raw, method.beta, run.beta, where)
        put(raw, f"{SAMPLED}.noise", self.settings.flips[run.flips], where)
        raw["seed"] = run.seed
        params = parse_params(raw, where)
        if method.policy is not None and method.policy not in params.offline:
            raise StageError(f"{where}: policy {method.policy!r} is none of offline: {', '.join(params.offline)}")
        return params

    def shared_params(self, flips: str | None = None) -> Params:
        """The params.yaml of what all runs share; of the reward model by its share of flips."""
        raw, where = deepcopy(self.settings.params), str(STUDIES / self.name / "settings.yaml")
        if flips is not None:
            put(raw, f"{SAMPLED}.noise", self.settings.flips[flips], where)
        return parse_params(raw, where)


def check_shared(study: Study) -> None:
    """There is a reward model to share, and the params of a small world name as many training prompts as it has."""
    params, world = study.shared_params(), study.settings.world
    where = STUDIES / study.name / "settings.yaml"
    if "proxy" not in params.reward_models:
        raise StageError(f"{where}: params.reward_models needs one of the name proxy, which all runs share")
    if world is None:
        return
    there = (len(all_prompts()) - world.heldout) * world.repeats
    proxy = params.reward_models["proxy"].preferences
    taken = proxy.sampled.prompts if proxy and proxy.sampled else 0
    if params.prepare.prompts.declared_train != there or taken > there:
        raise StageError(
            f"{where}: the world has {there} training prompts ({world.repeats} for each text): set "
            f"params.prepare.prompts.embedded.train to that (it is {params.prepare.prompts.declared_train}), and "
            f"prompts of the sampled preferences to no more (they are {taken})"
        )


def merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` over `common`, section by section; neither is changed."""
    found = deepcopy(common)
    for key, value in own.items():
        inner = found.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        found[key] = merged(inner, value) if both else deepcopy(value)  # type: ignore[arg-type]
    return found


def put(raw: dict[str, Any], option: str, value: Any, where: str) -> None:
    """Set an option such as `score.kl.beta`; its section has to be there."""
    *sections, last = option.split(".")
    for section in sections:
        inner = raw.get(section)
        if not isinstance(inner, dict):
            raise StageError(f"{where}: {option}: there is no section {section} to set it in; write it in `params`")
        raw = inner
    raw[last] = value


def names() -> list[str]:
    return sorted(path.parent.name for path in STUDIES.glob("*/settings.yaml"))


def read_study(name: str) -> Study:
    """The study in a folder of `pipeline/studies`, every run of it validated."""
    folder = STUDIES / name
    if name not in names():
        raise StageError(f"no study {name!r}; there are: {', '.join(names()) or 'none here'}")
    settings = _parse(folder / "settings.yaml", Settings)
    file = folder / settings.methods_file
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    methods = _validated(raw, Methods, str(file)).methods
    study = Study(name, settings, methods)
    check_shared(study)
    for method in methods:
        for run in study.runs_of(method):
            study.params_of(run)
    return study


def _parse(path: Path, model: type[Settings]) -> Settings:
    return _validated(yaml.safe_load(path.read_text(encoding="utf-8")), model, str(path))


def _validated(raw: Any, model: type[T], where: str) -> T:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        lines = [f"{where}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise StageError("\n".join(lines)) from None
