"""What a reward function sees of a completion: its end-of-sequence token is removed by its position only."""

import pytest

from stages.rollout.completions import completion_columns
from stages.rollout.sampler import Sample
from tests.tiny import tiny_tokenizer


@pytest.mark.parametrize(
    ("tokens", "stopped", "text"),
    [
        (["y", "<|end|>"], True, "y"),
        (["y", "<|stop|>"], True, "y"),
        (["y"], False, "y"),
        (["<|end|>"], True, ""),
        (["<|user|>", "y", "<|system|>", "<|end|>"], True, "<|user|>y<|system|>"),  # special tokens of the answer
        (["y", "<|end|>", "z", "<|end|>"], True, "y<|end|>z"),  # one that did not end it
        (["y", "<|end|>"], False, "y<|end|>"),  # cut off right after a token that only looks like the end
    ],
)
def test_only_the_token_that_ended_the_answer_is_taken_off(tokens, stopped, text):
    tokenizer = tiny_tokenizer()
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert None not in ids
    count = len(ids)
    columns = completion_columns(tokenizer, Sample(ids, [0.0] * count, [0.0] * count, stopped))
    assert columns["completion"] == text
    assert columns["completion_ids"] == ids
    assert columns["length"] == count
