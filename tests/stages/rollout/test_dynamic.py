"""Which groups have a signal, by a reward model's scores."""

import polars as pl

from stages.common import paths
from stages.common.params import DynamicSampling
from stages.common.policy import Models, load_tokenizer
from stages.rollout.dynamic import mark_accepted
from stages.rollout.source import Source
from tests.silent import Silent
from tests.stages.reward_model.toy import RUNTIME, lay_out, params
from tests.stages.score.test_model_reward import save_reward_model
from tests.tiny import tiny_tokenizer


def test_groups_whose_answers_a_model_scores_alike_have_no_signal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay_out()
    save_reward_model(tiny_tokenizer())
    options = params({"rm": {"preferences": None, "source": "given"}}, {"rm": {"model": "rm"}})
    models, prompts = Models(RUNTIME), pl.read_parquet(paths.PROMPTS)
    source = Source(models, models.base(), load_tokenizer(), prompts, options, 1, Silent())
    rows = source.samples([(0, "q1"), (1, "q2")])
    first = pl.col("completion_ids").first().over("prompt_id")
    alike = rows.with_columns(completion_ids=pl.when(prompt_id="q1").then(first).otherwise("completion_ids"))
    found = mark_accepted(alike, source, DynamicSampling(max_prompts=4))
    assert dict(found.select("prompt_id", "accepted").iter_rows()) == {"q1": False, "q2": True}
