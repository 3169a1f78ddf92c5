"""Seeds as hashes of what they are for, so that no two draws share one and no order of work matters."""

from hashlib import blake2b

import numpy as np


def seed_of(*parts: object) -> int:
    """A 64-bit seed from any named parts, e.g. `(run seed, iteration, prompt_id, sample)`."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def uniforms(seed: int, count: int) -> np.ndarray:
    """`count` float64 numbers in [0, 1) that belong to one sample and to nothing else."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)
