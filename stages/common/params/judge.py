"""Section `judge`: who says which of two policies answers better."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from stages.common.params.base import Count, Function, Positive, Section

TEMPLATE = """\
Which of the two answers to the request is better? Judge how well it does what was asked, not how long it is.

Request:
{prompt}

Answer A:
{a}

Answer B:
{b}

Think it over briefly and end with one word: A, B or TIE."""


class Endpoint(Section):
    """An OpenAI-compatible chat endpoint. `key_variable`: the environment variable that holds its key."""

    base_url: str
    model: str
    key_variable: str | None = None
    template: str = TEMPLATE
    max_tokens: Count = 256
    timeout_seconds: Positive = 60.0
    tries: Annotated[int, Field(ge=1, le=3)] = 3
    parallel: Count = 8

    @model_validator(mode="after")
    def _template_has_its_places(self) -> "Endpoint":
        missing = [place for place in ("{prompt}", "{a}", "{b}") if place not in self.template]
        if missing:
            raise ValueError(f"template lacks {', '.join(missing)}")
        try:
            self.template.format(prompt="", a="", b="")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"template: {error!r}; write {{{{ and }}}} for braces that are no places") from None
        return self


class Judge(Section):
    """The answers of each evaluated iteration to the held-out prompts are compared with those of the initial policy, by
    a gold `function` (as in `score.rewards`), by one of `reward_models` (`model`), or by an `endpoint` that sees both
    orders.

    Scores no further apart than `tie_margin` tie.
    """

    function: Function | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    endpoint: Endpoint | None = None
    tie_margin: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _one_judge(self) -> "Judge":
        if sum(x is not None for x in (self.function, self.model, self.endpoint)) != 1:
            raise ValueError("the judge is a `function`, a `model` or an `endpoint`: set one of the three")
        return self
