"""The page of a study: one table, plots, and the published claims beside what was measured."""

import polars as pl

from pipeline.study.page import plots
from pipeline.study.page.claims import Claim, claims
from pipeline.study.page.files import report_file, report_folder
from pipeline.study.page.statistics import Results, summary
from pipeline.study.runs.settings import Study
from stages.common.files import publish
from stages.common.journal import Journal

CONDITIONS = ("method", "beta", "flips")
HEAD = (
    "| method | win-rate, 95 % interval | over runs | gold | proxy | KL | length | tokens | seconds | peak MB "
    "| models | state MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def read_results(study: Study) -> Results:
    """The tables of all methods of the study, in its order."""
    folders = [study.folder / "methods" / method for method in study.methods]
    tables = [pl.concat(pl.read_parquet(folder / f"{name}.parquet") for folder in folders) for name in _TABLES]
    curves, outcomes, costs = tables
    return Results(curves, outcomes, costs, study.settings.flips)


_TABLES = ("curves", "outcomes", "costs")


def report(study: Study, journal: Journal) -> None:
    """Write table, plots and page into the study's folder."""
    results = read_results(study)
    by_method, by_condition = summary(results, ["method"]), summary(results, CONDITIONS)
    found = claims(results)
    with publish(report_folder(study)) as scratch:
        scratch.mkdir()
        by_method.write_csv(scratch / "methods.csv")
        by_condition.write_csv(scratch / "conditions.csv")
        by_condition.write_parquet(scratch / "conditions.parquet")
        plots.win_rates(study, by_method, scratch / "win_rates.svg")
        plots.by_option(study, by_method, scratch / "lambda_and_k.svg")
        plots.over_optimisation(results, scratch / "over_optimisation.svg")
        plots.robustness(results, by_condition, scratch / "robustness.svg")
        text = page(study, results, by_method, found)
        (scratch / "README.md").write_text(text, encoding="utf-8")
    journal.say(f"{report_file(study)}: {len(found)} claims, {results.final.height} runs")


def page(study: Study, results: Results, by_method: pl.DataFrame, found: list[Claim]) -> str:
    """The page as Markdown."""
    parts = [
        f"# {study.settings.title}",
        conditions_text(study, results),
        CAVEATS,
        "## Methods",
        "\n".join([HEAD, *map(table_row, by_method.sort("win_rate", descending=True).to_dicts())]),
        LEGEND,
        "![Win-rates](win_rates.svg)",
        "## Claims",
        READING,
        claims_table(found),
        "![By lambda and by K](lambda_and_k.svg)",
        "## Over-optimisation",
        "Proxy and gold score by KL at the smallest beta; a point is the mean over a method's runs at one evaluation.",
        "![Proxy and gold by KL](over_optimisation.svg)",
        "## Beta and noise",
        "![Win-rate by beta and flips](robustness.svg)",
        "`conditions.csv` has the table's columns for each method, beta and share of flips.",
        methods_table(study),
    ]
    return "\n\n".join(parts) + "\n"


LEGEND = (
    "Means over all runs of a method. Win-rates are against the fine-tuned model, judged by gold; the interval is a "
    "bootstrap over the held-out prompts, and *over runs* the standard deviation between runs (beta, flips and seed). "
    "*Gold* and *proxy* are the held-out scores by the gold function and by the reward model; *tokens* those sampled "
    "for training; *seconds* and *peak MB* those of training, as measured on the machine that ran it (a small model's "
    "peak is that of its libraries); *state MB*, by count, the weights of all models that training holds, and AdamW's "
    "state of those that are trained."
)


READING = (
    "Published by [Ahmadian et al. 2024](https://arxiv.org/abs/2402.14740). Methods are compared on the same seeds, "
    "conditions and prompts; the 95 % intervals let seeds and prompts vary. A claim is *confirmed* where the whole "
    "interval lies above the bar (0 if nothing else is said), *not confirmed* where it lies below, and else this study "
    "*cannot tell*. The intervals do not cover another fine-tuned model, another reward model or another task."
)
CAVEATS = (
    "No method is tuned: all that sample have one learning rate, one number of completions and of optimizer steps per "
    "iteration, the second on a policy that has moved. PPO pays for the KL token by token, the others by the sequence; "
    "its critic starts from the policy under a head of zeros and has a learning rate of its own. *Without ratio and "
    "clipping* the value loss is not clipped either. DPO goes over the reward model's pairs once and samples nothing."
)


def conditions_text(study: Study, results: Results) -> str:
    settings = study.settings
    return (
        f"{results.final.height} runs: {len(results.methods)} methods, beta {', '.join(map(str, settings.betas))}, "
        f"preferences of which {', '.join(f'{share:.0%}' for share in settings.flips.values())} are flipped, seeds "
        f"{', '.join(map(str, settings.seeds))}; {settings.iterations} iterations each. Written by "
        f"`rloo study {study.name}`; what a run consists of is in `pipeline/studies/{study.name}/`."
    )


def methods_table(study: Study) -> str:
    rows = [f"| {name} | {method.summary} |" for name, method in study.methods.items()]
    return "\n".join(["| method | what it is |", "|---|---|", *rows])


def table_row(row: dict[str, float]) -> str:
    cells = [
        str(row["method"]),
        f"{row['win_rate']:.3f} [{row['win_rate_low']:.3f}, {row['win_rate_high']:.3f}]",
        "" if row["win_rate_std"] is None else f"{row['win_rate_std']:.3f}",
        *(f"{row[name]:.2f}" for name in ("gold", "proxy", "kl")),
        f"{row['length']:.1f}",
        f"{row['tokens']:.0f}",
        f"{row['seconds']:.1f}",
        f"{row['peak_memory_mb']:.0f}",
        str(row["models"]),
        f"{row['state_mb']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def claims_table(found: list[Claim]) -> str:
    rows = [f"| {one.published} | {one.measured} | **{one.verdict}** |" for one in found]
    return "\n".join(["| published | measured here | verdict |", "|---|---|---|", *rows])
