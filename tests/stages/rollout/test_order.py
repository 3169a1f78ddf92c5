"""Which prompts an iteration takes, the seeds of its samples, and the tokens that end an answer."""

import json
from collections import Counter
from pathlib import Path

import pytest

from stages.common.params import ParamsError
from stages.common.params_file import load_params
from stages.rollout.order import epoch_order, prompts_of
from stages.rollout.slots import slots_of
from stages.rollout.stopping import end_id, stop_ids

ROLLOUT = load_params(Path(__file__).parents[3] / "params.yaml").rollout


def ids(count):
    return [f"p{number:03d}" for number in range(count)]


def drawn(n_prompts, count, iterations, seed=0):
    return [item for i in range(1, iterations + 1) for item in prompts_of(ids(n_prompts), seed, i, count)]


@pytest.mark.parametrize(("n_prompts", "count"), [(12, 4), (12, 5), (7, 3), (5, 12), (1, 3), (10, 10), (100, 16)])
def test_every_prompt_occurs_exactly_once_per_epoch(n_prompts, count):
    sequence = drawn(n_prompts, count, iterations=-(-3 * n_prompts // count))
    assert [position for position, _ in sequence] == list(range(len(sequence)))
    for epoch in range(3):
        prompts = [prompt for _, prompt in sequence[epoch * n_prompts : (epoch + 1) * n_prompts]]
        assert sorted(prompts) == ids(n_prompts)


@pytest.mark.parametrize("count", [1, 3, 7, 40])
def test_sequence_does_not_depend_on_how_many_an_iteration_takes(count):
    assert drawn(10, count, iterations=-(-40 // count))[:40] == drawn(10, 4, iterations=10)


def test_order_does_not_depend_on_the_order_that_ids_are_given_in():
    assert prompts_of(ids(20)[::-1], 3, 2, 8) == prompts_of(ids(20), 3, 2, 8)


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(ids(20), seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_prompts_are_shuffled_evenly():
    firsts = Counter(epoch_order(ids(4), seed, 0)[0] for seed in range(400))
    assert set(firsts) == set(ids(4))
    assert all(70 <= count <= 130 for count in firsts.values())


def test_iteration_across_two_epochs_may_draw_a_prompt_twice():
    chosen = prompts_of(ids(5), 0, 1, 12)
    assert max(Counter(prompt for _, prompt in chosen).values()) == 3
    assert len(chosen) == 12


def flat(slots):
    return [slot for group in slots.values() for slot in group]


def test_each_prompt_has_its_samples_numbered_and_placed():
    slots = slots_of([(8, "b"), (9, "a")], samples=3, run_seed=0, iteration=2)
    assert list(slots) == ["b", "a"]
    assert [(s.prompt_id, s.sample, s.position) for s in flat(slots)] == [
        ("b", 0, 8),
        ("b", 1, 8),
        ("b", 2, 8),
        ("a", 0, 9),
        ("a", 1, 9),
        ("a", 2, 9),
    ]


def test_prompt_drawn_twice_goes_on_numbering():
    slots = slots_of([(0, "a"), (1, "b"), (2, "a")], samples=2, run_seed=0, iteration=1)
    assert [(slot.sample, slot.position) for slot in slots["a"]] == [(0, 0), (1, 0), (2, 2), (3, 2)]
    assert [(slot.sample, slot.position) for slot in slots["b"]] == [(0, 1), (1, 1)]
    assert len({slot.seed for slot in flat(slots)}) == 6


@pytest.mark.parametrize("samples", [1, 2, 8])
def test_positions_do_not_depend_on_how_many_samples_a_prompt_has(samples):
    chosen = prompts_of(ids(7), 0, 2, 5)
    slots = slots_of(chosen, samples, run_seed=0, iteration=2)
    assert {(slot.position, slot.prompt_id) for slot in flat(slots)} == set(chosen)
    assert len(flat(slots)) == samples * len(chosen)


def test_seeds_of_a_run_are_distinct():
    seeds = [
        slot.seed
        for iteration in range(1, 21)
        for slot in flat(slots_of(prompts_of(ids(30), 0, iteration, 16), 4, run_seed=0, iteration=iteration))
    ]
    assert len(set(seeds)) == len(seeds) == 20 * 16 * 4


def test_seed_belongs_to_the_sample_and_not_to_its_place():
    one = slots_of([(0, "a"), (1, "b")], samples=2, run_seed=7, iteration=3)
    other = slots_of([(5, "b"), (6, "a")], samples=4, run_seed=7, iteration=3)
    for prompt in ("a", "b"):
        assert [slot.seed for slot in one[prompt]] == [slot.seed for slot in other[prompt]][:2]


@pytest.mark.parametrize("change", [{"run_seed": 8}, {"iteration": 4}])
def test_seed_depends_on_run_and_iteration(change):
    base = {"run_seed": 7, "iteration": 3}
    one, other = (flat(slots_of([(0, "a")], 2, **arguments)) for arguments in (base, base | change))
    assert not {slot.seed for slot in one} & {slot.seed for slot in other}


class Tokenizer:
    """As much of a tokenizer as `stop_ids` asks."""

    def __init__(self, eos):
        self.eos_token_id = eos

    def get_vocab(self):
        return {"a": 0, "<|end|>": 7, "<|stop|>": 9}


@pytest.mark.parametrize(
    ("tokens", "eos", "config", "ids", "end"),
    [
        (["<|end|>"], 3, {"eos_token_id": 5}, {7}, 7),
        (["<|stop|>", "<|end|>"], 3, {}, {7, 9}, 9),
        (["<|end|>"], None, {}, {7}, 7),
        (["a"], 3, {}, {0}, 0),
        (None, 3, {}, {3}, 3),
        (None, 0, {"eos_token_id": None}, {0}, 0),
        (None, 9, {"eos_token_id": 7}, {7, 9}, 9),
        (None, 9, {"eos_token_id": [7, 9, 400]}, {7, 9, 400}, 9),  # 400 has no token
        (None, None, {"eos_token_id": [9, 7]}, {7, 9}, 7),
        (None, 3, {"text_config": {"eos_token_id": [7]}}, {3, 7}, 3),
    ],
)
def test_stop_ids(tokens, eos, config, ids, end, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    rollout = ROLLOUT.model_copy(update={"stop_tokens": tokens})
    assert stop_ids(Tokenizer(eos), rollout, tmp_path) == ids
    assert end_id(Tokenizer(eos), rollout, tmp_path) == end


def test_unknown_stop_tokens_are_named():
    with pytest.raises(ParamsError, match=r"rollout\.stop_tokens: \['</s>'\] are not tokens"):
        stop_ids(Tokenizer(3), ROLLOUT.model_copy(update={"stop_tokens": ["<|end|>", "</s>"]}))


def test_a_model_without_an_eos_token_needs_stop_tokens(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ParamsError, match=r"rollout\.stop_tokens: neither the tokenizer nor the model's config\.json"):
        stop_ids(Tokenizer(None), ROLLOUT.model_copy(update={"stop_tokens": None}), tmp_path)
