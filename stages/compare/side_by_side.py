"""Several estimators on the scores of one iteration, side by side: same samples, different advantages."""

from collections.abc import Callable, Sequence

import polars as pl

from stages.advantage.moving_average import Carried
from stages.advantage.run import advantage_table
from stages.common.params import Params
from stages.common.tables import KEY

Past = Callable[[Params], Carried]


def with_estimator(params: Params, estimator: str) -> Params:
    """The same params with another estimator, its options as they stand; checked like params.yaml."""
    raw = params.model_dump()
    raw["advantage"]["estimator"] = estimator
    if estimator != "gae":
        raw["critic"] = None  # which only gae has a use for
    return Params.model_validate(raw)


def advantage_tables(
    scores: pl.DataFrame, estimators: Sequence[str], params: Params, past: Past
) -> dict[str, pl.DataFrame]:
    """The advantages table of each estimator. `past` tells what a moving average carries from earlier iterations."""
    tables = {}
    for name in estimators:
        own = with_estimator(params, name)
        tables[name] = advantage_table(scores, own, past(own))
    return tables


def side_by_side(scores: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per row of the scores: `advantage/<name>` for each estimator, and where its sign is not the first one's.

    `sign_change/<name>` is true where one of the two is above 0 and the other below; null where either has none.
    """
    first, *others = tables
    frame = scores.select(*KEY, "task_reward", "score").sort(KEY)
    for name, table in tables.items():
        column = table.select(*KEY, pl.col("advantage").alias(f"advantage/{name}"))
        frame = frame.join(column, on=KEY, validate="1:1", maintain_order="left")
    sign = pl.col(f"advantage/{first}").sign()
    changes = {f"sign_change/{name}": pl.col(f"advantage/{name}").sign() * sign < 0 for name in others}
    return frame.with_columns(**changes)
