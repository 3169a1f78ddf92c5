"""Bootstrap confidence intervals over prompts (Efron 1979, percentile method), seeded.

Dimension suffixes: P prompts, B resamples.
"""

import numpy as np


def bootstrap_interval(value_P: np.ndarray, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Interval of the mean of one value per prompt (several samples of a prompt are averaged first)."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    index_BP = rng.integers(0, len(value_P), size=(resamples, len(value_P)))
    mean_B = value_P[index_BP].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(mean_B, [tail, 1 - tail])
    return float(low), float(high)
