"""An outcome for each pair of answers, by the judge that params.yaml names."""

from functools import partial

import polars as pl

from stages.common.journal import Journal
from stages.common.params import Params, Reward
from stages.common.policy import Models
from stages.common.tables import JUDGED
from stages.judge.endpoint import Answer, Question, ask_all
from stages.judge.outcomes import by_scores, by_verdicts
from stages.score.calling.inspection import of_option
from stages.score.model_reward import all_rewards

JUDGE = "judge"


def judge_by_scores(pairs: pl.DataFrame, params: Params, models: Models, _: Journal) -> pl.DataFrame:
    """Each answer is scored on its own, all in one call, so that no batch decides; the higher score wins."""
    assert params.judge is not None
    reward = {JUDGE: Reward(function=params.judge.function, model=params.judge.model, arguments=params.judge.arguments)}
    others = [name for name in pairs.columns if name.startswith("other_")]
    mine = pairs.drop(others)
    theirs = mine.with_columns(pairs[name].alias(name.removeprefix("other_")) for name in others)
    both = all_rewards(
        reward,
        pl.concat([mine, theirs]),
        models,
        params.score.pack_tokens,
        max_failed=params.score.max_failed,
        named_by=partial(of_option, section="judge", key="function"),
    )
    score, message = both[f"reward/{JUDGE}"], both[f"message/{JUDGE}"]
    mine_, theirs_ = score[: pairs.height].to_list(), score[pairs.height :].to_list()
    reason = [a or b for a, b in zip(message[: pairs.height], message[pairs.height :], strict=True)]
    return _table(pairs).with_columns(
        pl.Series("outcome", by_scores(mine_, theirs_, params.judge.tie_margin), dtype=pl.Float64),
        pl.Series("score", mine_, dtype=pl.Float64),
        pl.Series("other_score", theirs_, dtype=pl.Float64),
        pl.Series("message", reason, dtype=pl.String),
    )


def judge_by_endpoint(pairs: pl.DataFrame, params: Params, _: Models, journal: Journal) -> pl.DataFrame:
    """Each pair is asked twice, in both orders."""
    assert params.judge is not None
    assert params.judge.endpoint is not None
    texts = pairs.select("prompt", "completion", "other_completion").rows()
    questions = [Question(prompt, mine, theirs) for prompt, mine, theirs in texts]
    questions += [Question(prompt, theirs, mine) for prompt, mine, theirs in texts]

    def progress(done: int) -> None:
        journal.progress(done, len(questions), "verdicts")

    answers = ask_all(questions, params.judge.endpoint, progress)
    first, second = answers[: pairs.height], answers[pairs.height :]
    outcomes = [by_verdicts(a.verdict, b.verdict) for a, b in zip(first, second, strict=True)]
    return _table(pairs).with_columns(
        pl.Series("outcome", outcomes, dtype=pl.Float64),
        pl.Series("verdict", [a.verdict for a in first], dtype=pl.String),
        pl.Series("verdict_swapped", [a.verdict for a in second], dtype=pl.String),
        pl.Series("message", [_reason(a, b) for a, b in zip(first, second, strict=True)], dtype=pl.String),
    )


def _reason(first: Answer, second: Answer) -> str | None:
    return first.message or second.message


def _table(pairs: pl.DataFrame) -> pl.DataFrame:
    """The declared columns, what the judge says still null."""
    known = pairs.select("iteration", "prompt_id", "sample", "length", "other_length")
    return known.with_columns(
        pl.lit(None, dtype=dtype).alias(name) for name, dtype in JUDGED.items() if name not in known.columns
    ).select(list(JUDGED))
