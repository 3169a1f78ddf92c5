"""A policy small enough to enumerate: the exact gradient, and exact moments of any estimator's gradient estimate.

One prompt, 3 tokens, length 2: 9 sequences. The estimate of a group of K is  (1/K) sum_i A_i grad log pi(y_i).  Its
expectation runs over all 9^K tuples. No estimator depends on the order of the samples, so that one term for each
multiset is enough, weighted by its multinomial probability: 12,870 instead of 43 million at K = 8. Nothing is sampled.

Estimators are the pipeline's own, on Polars frames. Each multiset is a prompt's group and has an `iteration` of its
own, so that an estimator that works on the whole batch sees one group as its batch. A row without an advantage is out
of the loss: weight 0. The denominator is K all the same; the pipeline divides by the rows in the loss of a whole
optimizer step, which is another constant factor if the step is large, and not a random one for each group.

Dimension suffixes: C contexts (start, after each first token), V vocabulary, S sequences, T tokens of a sequence,
P parameters (C * V), K samples of a group, M groups (multisets or tuples of sequences).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor

from stages.score.kl import add_kl, add_score

Estimator = Callable[[pl.DataFrame], pl.DataFrame]

TOKENS, LENGTH = 3, 2
SEQUENCES = list(itertools.product(range(TOKENS), repeat=LENGTH))


@dataclass(frozen=True)
class Tabular:
    """A prompt, its policy and the objective E[r] - beta KL(policy || reference); everything float64."""

    logits_CV: Tensor
    reference_CV: Tensor
    reward_S: Tensor
    beta: float


@dataclass(frozen=True)
class Moments:
    """What an estimator's advantage and gradient estimate do over all groups of one size."""

    expected_P: Tensor
    variance: float  # trace of the covariance of the gradient estimate
    advantage_variance: float  # of one row's advantage; 0 stands for a row out of the loss


def token_logprobs(logits_CV: Tensor) -> Tensor:
    """Log-probability of each token of each sequence, [S, T]."""
    logp_CV = logits_CV.log_softmax(dim=-1)
    return torch.stack([torch.stack([logp_CV[0, a], logp_CV[1 + a, b]]) for a, b in SEQUENCES])


def probabilities(world: Tabular) -> Tensor:
    """Probability of each sequence under the policy, [S]."""
    return token_logprobs(world.logits_CV).sum(dim=1).exp()


def exact_gradient(world: Tabular) -> Tensor:
    """Gradient of E[r] - beta KL, [P], by autograd through the sum over all sequences."""
    logits_CV = world.logits_CV.clone().requires_grad_()
    logp_S = token_logprobs(logits_CV).sum(dim=1)
    kl = (logp_S.exp() * (logp_S - token_logprobs(world.reference_CV).sum(dim=1))).sum()
    objective = (logp_S.exp() * world.reward_S).sum() - world.beta * kl
    return torch.autograd.grad(objective, logits_CV)[0].flatten()


def token_gradients(world: Tabular) -> Tensor:
    """grad log pi of each token of each sequence, [S, T, P]."""
    jacobian: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        token_logprobs, world.logits_CV
    )  # [S, T, C, V]
    return jacobian.flatten(start_dim=2)


def greedy_sequence(world: Tabular) -> int:
    """Number of the sequence that greedy decoding gives."""
    first = int(world.logits_CV[0].argmax())
    return SEQUENCES.index((first, int(world.logits_CV[1 + first].argmax())))


def scored_sequences(world: Tabular) -> pl.DataFrame:
    """One row per sequence, scored by the pipeline's own functions; `length` is made up, for what weighs by it."""
    logp_ST, ref_ST = token_logprobs(world.logits_CV), token_logprobs(world.reference_CV)
    frame = pl.DataFrame(
        {
            "sequence": range(len(SEQUENCES)),
            "sampler_logprobs": logp_ST.tolist(),
            "ref_logprobs": ref_ST.tolist(),
            "task_reward": world.reward_S.tolist(),
            "length": [1 + sequence % 4 for sequence in range(len(SEQUENCES))],
        }
    )
    return add_score(add_kl(frame), world.beta).drop("sampler_logprobs", "ref_logprobs")


def multisets(k: int) -> Tensor:
    """All multisets of k sequences, as numbers of sequences [M, K]."""
    return torch.tensor(list(itertools.combinations_with_replacement(range(len(SEQUENCES)), k)))


def multiset_weights(world: Tabular, picks_MK: Tensor) -> Tensor:
    """Multinomial probability of each multiset, [M]: that of one order, times the number of different orders."""
    factorial = torch.tensor([math.factorial(n) for n in range(picks_MK.shape[1] + 1)], dtype=torch.float64)
    counts_MS = torch.nn.functional.one_hot(picks_MK, len(SEQUENCES)).sum(dim=1)
    return factorial[-1] / factorial[counts_MS].prod(dim=1) * probabilities(world)[picks_MK].prod(dim=1)


def groups(world: Tabular, picks_MK: Tensor) -> pl.DataFrame:
    """The rows of all groups, K after K, with the columns that the estimators read."""
    count, k = picks_MK.shape
    picked = pl.DataFrame({"sequence": picks_MK.flatten().tolist()}).with_columns(
        iteration=pl.int_range(count * k) // k, prompt_id=pl.lit("x"), sample=pl.int_range(count * k) % k
    )
    return picked.join(scored_sequences(world), on="sequence", how="left", maintain_order="left")


def by_group(table: pl.DataFrame, column: str, k: int) -> Tensor:
    """A column of the groups as [M, K]; 0 where a row has none."""
    values: Tensor = table.sort("iteration", "sample")[column].fill_null(0.0).to_torch()
    return values.view(-1, k)


def gradient_estimates(world: Tabular, picks_MK: Tensor, advantage_MKT: Tensor) -> Tensor:
    """(1/K) sum_i sum_t A_it grad log pi(y_it) of each group, [M, P]."""
    gradient_MKTP = token_gradients(world)[picks_MK]
    return torch.einsum("mkt,mktp->mp", advantage_MKT, gradient_MKTP) / picks_MK.shape[1]


def mean_and_variance(weight_M: Tensor, values_MD: Tensor) -> tuple[Tensor, float]:
    """Weighted mean [D], and the trace of the covariance."""
    mean_D = weight_M @ values_MD
    return mean_D, float(weight_M @ (values_MD - mean_D).square().sum(dim=1))


def moments(world: Tabular, estimator: Estimator, k: int) -> Moments:
    """Exact moments of an estimator over all groups of k samples."""
    picks_MK = multisets(k)
    weight_M = multiset_weights(world, picks_MK)
    advantage_MK = by_group(estimator(groups(world, picks_MK)), "advantage", k)
    estimate_MP = gradient_estimates(world, picks_MK, advantage_MK[:, :, None].expand(-1, -1, LENGTH))
    expected_P, variance = mean_and_variance(weight_M, estimate_MP)
    # every order of a multiset is as likely as any other: one row's advantage is any of its K, with equal weight
    row_weight = weight_M.repeat_interleave(k) / k
    _, advantage_variance = mean_and_variance(row_weight, advantage_MK.reshape(-1, 1))
    return Moments(expected_P, variance, advantage_variance)
