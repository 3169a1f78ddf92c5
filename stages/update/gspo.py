"""GSPO (Zheng et al. 2025, arXiv 2507.18071): one ratio per sequence, the geometric mean of its tokens' ratios.

    s = exp(mean_t log(pi / pi_old))        loss = -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)

What is clipped is then a sequence, as what is rewarded is, and lengths do not blow the ratio up: the clip range is
three orders of magnitude narrower than that of token ratios.
"""

from stages.common.params import Gspo
from stages.update.ppo import Bounds, clipped
from stages.update.tokens import Terms, Tokens


def gspo(tokens: Tokens, options: Gspo) -> Terms:
    """One term per sequence."""
    mean_R = tokens.sum_rows(tokens.log_ratio()) / tokens.length_R
    ratio_T = tokens.spread(mean_R).exp()
    return clipped(tokens, ratio_T, Bounds(options.clip_low, options.clip_high), of_sequences=True)
