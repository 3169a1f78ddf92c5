"""Picking demonstrations among the base's own answers."""

import inspect
from pathlib import Path

import polars as pl
import pytest
import torch

from stages.common import paths
from stages.common.chat import render, tokenize
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.params import BestOf, ParamsError
from stages.common.policy import load_tokenizer
from stages.common.tables import PROMPTS, write_table
from stages.sft import demonstrations
from stages.sft.best_of import chosen_prompts, pick
from stages.sft.demonstrations import told

CPU = Runtime(torch.device("cpu"), torch.float32)
SFT = {"best_of": {"prompts": 6, "samples": 4}, "learning_rate": 0.01, "heldout": 0.3}


def answers(*rows):
    """(prompt id, sample, task reward, finish reason)"""
    return pl.DataFrame(
        [
            {
                "prompt_id": prompt_id,
                "sample": sample,
                "task_reward": reward,
                "finish_reason": finish,
                "prompt": "p",
                "prompt_ids": [1],
                "completion": f"{prompt_id}{sample}",
                "completion_ids": [2, 0],
            }
            for prompt_id, sample, reward, finish in rows
        ],
        schema_overrides={"task_reward": pl.Float64},
    )


def test_the_best_that_ended_is_picked_and_of_equal_ones_the_first():
    picked = pick(
        answers(
            *[("a", 0, 0.5, "stop"), ("a", 1, 1.0, "stop"), ("a", 2, 1.0, "stop")],
            *[("b", 0, 0.1 + 0.2, "stop"), ("b", 1, 0.3, "stop"), ("b", 2, 0.9, "length"), ("b", 3, 1.0, "empty")],
            *[("c", 0, None, "stop"), ("c", 1, None, "length")],
            *[("d", 0, None, "stop"), ("d", 1, 1.0, "length")],
            *[("e", 0, -2.0, "stop"), ("e", 1, None, "stop")],
        )
    )
    assert picked.rows["completion"].to_list() == ["a1", "b0", "e0"]
    assert picked.rows["task_reward"].to_list() == [1.0, pytest.approx(0.3), -2.0]
    assert (picked.unscorable, picked.unended) == (1, 1)


def test_what_is_left_out_is_counted_aloud_and_nothing_left_is_an_error(journal):
    rows = answers(("a", 0, 0.5, "stop"), ("b", 0, None, "stop"), ("c", 0, 1.0, "length"))
    told(rows, BestOf(prompts=3, samples=2), journal)
    assert "1 of 3 prompts have a demonstration" in journal.said[0]
    assert "1 without an answer that could be scored, 1 without one that also came to an end" in journal.said[0]
    assert journal.said[1] == "task reward 0.750 over all answers, 0.500 over those picked"
    with pytest.raises(StageError, match="no answer both came to an end and could be scored: raise"):
        told(rows.filter(pl.col("prompt_id") != "a"), BestOf(prompts=2, samples=2), journal)


def by_sum(completion_ids, **columns):
    return [sum(ids) % 11 / 11 for ids in completion_ids]


@pytest.fixture
def prompts(base):
    """Training prompts, and one of another split that must not be answered."""
    tokenizer, rows = load_tokenizer(base), []
    for number in range(9):
        text = render(tokenizer, f"What is {number}?", None)
        row = {
            "prompt_id": f"train-{number}",
            "split": "train",
            "prompt": f"What is {number}?",
            "prompt_text": text,
            "prompt_tail": "",
            "messages": None,
        }
        rows.append(row | {"prompt_ids": tokenize(tokenizer, text)})
    rows.append(rows[0] | {"prompt_id": "heldout-0", "split": "heldout"})
    return write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), paths.PROMPTS)


@pytest.fixture
def options(params, base):
    Path("sums.py").write_text(inspect.getsource(by_sum))
    return params(SFT, score__rewards={"sum": {"function": "sums.py:by_sum"}}, rollout__max_new_tokens=60)


def test_the_base_answers_chosen_prompts_and_the_table_holds_the_best(prompts, options, journal):
    demonstrations.run(options, CPU, journal)
    first = paths.DEMONSTRATIONS.read_bytes()
    table = pl.read_parquet(paths.DEMONSTRATIONS)
    chosen = chosen_prompts(prompts.filter(split="train"), 6, 0)
    assert set(table["prompt_id"]) <= set(chosen["prompt_id"])
    assert table.height >= 2
    assert set(table["split"]) == {"train", "heldout"}
    assert table["task_reward"].to_list() == by_sum(table["completion_ids"].to_list())
    joined = table.join(prompts, on="prompt_id", suffix="_known")
    assert joined["prompt_ids"].to_list() == joined["prompt_ids_known"].to_list()
    assert all(ids[-1] in (0, 1) and len(ids) > 1 for ids in table["completion_ids"].to_list())
    demonstrations.run(options, CPU, journal)
    assert paths.DEMONSTRATIONS.read_bytes() == first


def test_the_seed_chooses_prompts(prompts):
    chosen = [chosen_prompts(prompts, 5, seed)["prompt_id"].to_list() for seed in (0, 1)]
    assert chosen[0] != chosen[1]
    assert chosen_prompts(prompts.reverse(), 5, 0)["prompt_id"].to_list() == chosen[0]


def test_options_that_do_not_go_together(params):
    with pytest.raises(ParamsError, match=r"sft.best_of.prompts = 2000: a prompt is answered once, and there are 1000"):
        params(SFT | {"best_of": {"prompts": 2000, "samples": 2}})
    with pytest.raises(ParamsError, match="set one of the two"):
        params(SFT | {"file": "d.jsonl"})
    with pytest.raises(ParamsError, match="sha256 is of a `file`"):
        params(SFT | {"sha256": "0"})
