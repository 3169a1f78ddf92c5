"""How many tokens a model reads, by configs that call it by different names."""

import pytest
from transformers import BloomConfig, GPT2Config, LlamaConfig, MambaConfig, MptConfig

from stages.common.positions import positions_of


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (LlamaConfig(max_position_embeddings=12), 12),
        (GPT2Config(n_positions=13), 13),
        (MptConfig(max_seq_len=14), 14),
        (BloomConfig(), None),
        (MambaConfig(), None),
    ],
)
def test_positions(config, positions):
    assert positions_of(config) == positions
