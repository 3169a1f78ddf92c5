"""By what the best answer of `best_of` is picked."""

from functools import partial
from typing import TYPE_CHECKING

from stages.common.params import Params, Reward
from stages.score.calling.function import of_reward
from stages.score.calling.inspection import of_option

if TYPE_CHECKING:  # sources, which run each time, must not wait for polars
    from stages.score.rewards import NamedBy


def judges(params: Params) -> dict[str, Reward]:
    """The gold function, or the functions among the rewards; reward models come later, over what fine-tuning makes."""
    options = params.sft.best_of if params.sft is not None else None
    if options is not None and options.gold is not None:
        return {"gold": Reward(function=options.gold, arguments=options.arguments)}
    return {name: reward for name, reward in params.score.rewards.items() if reward.function is not None}


def named_by(params: Params) -> "NamedBy":
    """Where params.yaml names these functions."""
    options = params.sft.best_of if params.sft is not None else None
    if options is not None and options.gold is not None:
        return partial(of_option, section="sft.best_of", key="gold")
    return of_reward
