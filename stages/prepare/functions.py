"""The code of the functions that params.yaml names, by content."""

from typing import Any

from stages.common.code_identity import CodeError, code_identity
from stages.common.params import ParamsError, Reward


def of_code(functions: dict[str, str | None]) -> dict[str, Any]:
    """Identity of the code of each function, by the option that names it; null: no function."""
    identities: dict[str, Any] = {}
    for option, spec in functions.items():
        if spec is not None:
            try:
                identities[option] = code_identity(spec)
            except CodeError as error:
                raise ParamsError(f"params.yaml: {option} = {spec!r}: {error}") from None
    return identities


def of_rewards(rewards: dict[str, Reward], option: str) -> dict[str, Any]:
    return of_code({f"{option}.{name}.function": reward.function for name, reward in rewards.items()})
