"""What the fits minimise, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from performer.transformers._fitted import FeatureParameters

_TINY = 1e-30


def log_weights(x: Tensor, y: Tensor, parameters: FeatureParameters) -> Tensor:
    """The log of the mean of phi_q(x_i) phi_k(y_j) over the features, for all pairs; without
    query_form up to a number for each query. For short sequences: L x L.

    x: [B, H, Lq, D], y: [B, Hkv, Lk, D] -> [B, H, Lq, Lk].
    """
    query = x @ parameters.query_weight.mT + parameters.query_bias.unsqueeze(-2)  # [B, H, L, M]
    key = y @ parameters.key_weight.mT + parameters.key_bias.unsqueeze(-2)
    key = key + parameters.key_term(y).unsqueeze(-1)
    groups = x.shape[1] // y.shape[1]
    key = key.repeat_interleave(groups, 1)
    scale = key.detach().amax(-2, keepdim=True)  # one for each feature, as the operator keeps
    query = query + scale
    shift = query.detach().amax(-1, keepdim=True)
    product = (query - shift).exp() @ (key - scale).exp().mT
    weights = product.clamp_min(_TINY).log() + (shift - math.log(query.shape[-1]))
    if parameters.query_form is not None:
        weights = weights + parameters.query_term(x).unsqueeze(-1)
    return weights


def logits(x: Tensor, y: Tensor) -> Tensor:
    """x.y of all pairs, [B, H, Lq, Lk]; what exact attention takes the softmax of."""
    return x @ y.repeat_interleave(x.shape[1] // y.shape[1], 1).mT


def visible(real: Tensor, causal: bool) -> Tensor:
    """Which key a query may see: bool [B, 1, L, L] of real tokens [B, L]."""
    length = real.shape[1]
    pairs = real[:, None, None, :].expand(-1, 1, length, -1)
    if causal:
        pairs = pairs & torch.ones(length, length, dtype=torch.bool, device=real.device).tril()
    return pairs


def near_pairs(real: Tensor, near: int) -> Tensor:
    """Pairs of tokens in the same or neighbouring blocks, which the operator weighs exactly: bool
    [B, 1, L, L]. Blocks are counted from the first real token."""
    positions = torch.arange(real.shape[1], device=real.device)
    first = real.int().argmax(1, keepdim=True)
    block = torch.div(positions - first, near, rounding_mode="floor")
    return ((block[:, :, None] - block[:, None, :]).abs() <= 1)[:, None]


def attention_divergence(exact: Tensor, estimate: Tensor, pairs: Tensor, real: Tensor) -> Tensor:
    """KL(exact attention || estimate) of each head, the mean over the real queries: [H].

    exact, estimate: log weights [B, H, L, L]; pairs: which keys count; real: [B, L].
    """
    lowest = torch.finfo(exact.dtype).min
    one = exact.masked_fill(~pairs, lowest).log_softmax(-1)
    two = estimate.masked_fill(~pairs, lowest).log_softmax(-1)
    rows = (one.exp() * (one - two)).masked_fill(~pairs, 0).sum(-1)  # [B, H, L]
    return rows.masked_fill(~real[:, None], 0).sum((0, 2)) / real.sum()


def hidden_error(hidden: Sequence[Tensor], exact: Sequence[Tensor], real: Tensor) -> Tensor:
    """Sum over the layers of |h - h*|^2 / |h*|^2, both over all real tokens. [B, L, E] each."""
    errors = [
        (one - two)[real].square().sum() / two[real].square().sum().clamp_min(_TINY)
        for one, two in zip(hidden, exact, strict=True)
    ]
    return torch.stack(errors).sum()


def embedding_of(hidden: Tensor, real: Tensor) -> Tensor:
    """The mean over the real tokens: [B, L, E] -> [B, E]."""
    kept = hidden.masked_fill(~real.unsqueeze(-1), 0)
    return kept.sum(1) / real.sum(1, keepdim=True).clamp_min(1)


def embedding_error(hidden: Tensor, exact: Tensor, real: Tensor) -> Tensor:
    """1 - cosine of the two embeddings, the mean over the batch."""
    one, two = embedding_of(hidden, real), embedding_of(exact, real)
    return 1 - torch.cosine_similarity(one, two, dim=-1).mean()


def logits_divergence(estimate: Tensor, exact: Tensor, real: Tensor) -> Tensor:
    """KL(exact || estimate) of the next token, the mean over real tokens. [B, L, V] each."""
    one, two = exact[real].log_softmax(-1), estimate[real].log_softmax(-1)
    return (one.exp() * (one - two)).sum(-1).mean()
