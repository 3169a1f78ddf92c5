"""Looking at functions before anything is sampled: each is imported in a child process, and what it takes is compared
with what it will be given.
"""

from collections.abc import Callable, Iterator
from functools import partial

from stages.common.params import Params, ParamsError, Reward
from stages.score.calling import signatures
from stages.score.calling.function import UserFunction, identity_of, of_reward
from stages.score.calling.rows import refuse_columns_as_arguments
from stages.score.calling.session import Failure, Needs, Session, session
from stages.score.calling.side_by_side import side_by_side
from stages.score.calling.signatures import About
from stages.score.calling.worker import RewardError

FRESH_SECONDS = 600.0  # so long a signature holds: the parts of a run ask one after the other


def check_functions(params: Params, columns: set[str] | None = None) -> None:
    """Every function that params.yaml names: a ParamsError for the first, in their order, that cannot be had, does not
    take its arguments, or needs what is not there.

    `columns`: all that functions receive by name (`stages.score.inputs.columns_of`); None: the prompts are not made.
    """
    tasks: list[Callable[[], set[str]]] = [
        partial(check_function, function, columns - without if columns is not None else None)
        for function, without in functions_of(params)
    ]
    if tasks:
        side_by_side(tasks, patient=True)


def functions_of(params: Params) -> Iterator[tuple[UserFunction, set[str]]]:
    """All functions of params.yaml, each with the columns that it is not given."""
    for section, rewards in (("score.rewards", params.score.rewards), ("evaluate.rewards", params.evaluate.rewards)):
        for name, reward in rewards.items():
            if reward.function is not None:
                yield of_reward(name, reward, section), set()
    if params.evaluate.parts is not None:
        yield parts_of(params.evaluate.parts), set()
    if params.judge is not None and params.judge.function is not None:
        judge = Reward(function=params.judge.function, arguments=params.judge.arguments)
        yield of_option("judge", judge, "judge", "function"), set()
    best_of = params.sft.best_of if params.sft is not None else None
    if best_of is not None and best_of.gold is not None:
        gold = Reward(function=best_of.gold, arguments=best_of.arguments)
        yield of_option("gold", gold, "sft.best_of", "gold"), set()
    for name, model in params.reward_models.items():
        sampled = model.preferences.sampled if model.preferences is not None else None
        if sampled is not None:
            gold = Reward(function=sampled.gold, arguments=sampled.arguments)
            option = f"reward_models.{name}.preferences.sampled"
            yield of_option(f"gold_of_{name}", gold, option, "gold"), {"iteration"}


def of_option(name: str, reward: Reward, section: str, key: str) -> UserFunction:
    """A function that stands elsewhere than among the rewards."""
    assert reward.function is not None
    return UserFunction(name, f"{section}.{key}", reward.function, reward.arguments, f"{section}.arguments")


def parts_of(spec: str) -> UserFunction:
    return UserFunction("parts", "evaluate.parts", spec, kind="parts")


def check_function(function: UserFunction, columns: set[str] | None) -> set[str]:
    """One of them; the names of what it cannot do without."""
    refuse_columns_as_arguments(function, columns or set())
    identity = identity_of(function)
    about = signatures.known(function.spec, identity, FRESH_SECONDS)
    if about is not None and not about["has_check"] and not about["has_needs"]:
        refuse_unknown(function, about)
        refuse_parameters(function, about, columns)
        return set(about["required"])
    with session(function) as open_session:
        try:
            about = open_session.start()
            refuse_unknown(function, about)
            needs = told_by(open_session, about)
        except RewardError as error:
            raise ParamsError(str(error)) from None
    refuse_parameters(function, about, columns)
    refuse_limits(function, needs["seconds"], function.rows_per_call or about["rows_per_call"])
    if columns is not None:
        refuse_lacking(function, needs["columns"], columns)
    return {*about["required"], *needs["columns"]}


def told_by(open_session: Session, about: About) -> Needs:
    """What the function itself says to its arguments, and needs with them."""
    failure = open_session.check() if about["has_check"] else None
    found = open_session.needs() if failure is None and about["has_needs"] else failure
    if isinstance(found, Failure):
        told = found.message.removeprefix("TypeError: ").removeprefix("ValueError: ")
        raise ParamsError(f"params.yaml: {open_session.function.arguments_option}: {told}{found.limit}")
    return found or {"columns": [], "seconds": {}}


def refuse_unknown(function: UserFunction, about: About) -> None:
    """Arguments that the function does not take."""
    unknown = [] if about["takes_all"] else sorted(set(function.arguments) - set(about["parameters"]))
    if unknown:
        raise ParamsError(
            f"params.yaml: {function.arguments_option}: {function.spec} takes no {', '.join(unknown)}"
            f"; it takes {', '.join(about['parameters'])}"
        )


def refuse_parameters(function: UserFunction, about: About, columns: set[str] | None) -> None:
    """Parameters that nothing is given for, and columns that no parameter takes."""
    if columns is None:
        return
    refuse_lacking(function, about["required"], columns)
    left = [] if about["takes_all"] else sorted(columns - set(about["parameters"]))
    if left:
        raise ParamsError(
            f"params.yaml: {function.told} takes neither **columns nor {', '.join(left)}, and is given every column by "
            "name; add **columns to its parameters"
        )


def refuse_lacking(function: UserFunction, needed: list[str], columns: set[str]) -> None:
    """Columns that the function needs and that are not there."""
    lacking = [name for name in needed if name not in columns | set(function.arguments)]
    if lacking:
        parts = function.kind == "parts"
        way_out = "set evaluate.parts to null" if parts else "give the function a default or an argument"
        raise ParamsError(
            f"params.yaml: {function.told} needs {', '.join(lacking)}: neither a column nor one of its arguments. "
            f"Columns are {', '.join(sorted(columns))}; name a column of the prompts so "
            f"(prepare.prompts.file.rename), or {way_out}"
        )


def refuse_limits(function: UserFunction, needed: dict[str, float], rows_per_call: int | None) -> None:
    """Limits within which the function says that it cannot be done; those that are fixed give way (`session.py`)."""
    if function.limits_option is None:
        return
    limits = {"row": function.limits.row_seconds} | (
        {} if rows_per_call == 1 else {"batch": function.limits.batch_seconds}
    )
    low = {f"{name}_seconds": needed[name] for name in limits if limits[name] < needed.get(name, 0.0)}
    if low:
        wanted = ", ".join(f"{name}: {seconds:g}" for name, seconds in low.items())
        raise ParamsError(
            f"params.yaml: {function.limits_option} = {function.limits.model_dump(include=set(low))} is less than "
            f"{function.spec} needs with its arguments; set {function.limits_option}: {{{wanted}}} or more, or give it "
            f"other arguments ({function.arguments_option})"
        )
