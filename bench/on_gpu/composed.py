"""Causal FAVOR+ in plain PyTorch for torch.compile, accurate in bfloat16 too.

As performer.bench.plain, but for states of all earlier chunks: shifted sums instead of a sum minus
its own last term, whose cancellation costs the gradients 12 % in bfloat16.
"""

import torch
from torch import Tensor

from performer.bench import plain


def before(states: Tensor) -> Tensor:
    """[B, H, N, ...] -> sums over the chunks before each, exclusive."""
    sums = states.float().cumsum(2).to(states.dtype)
    return torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], 2)


def causal(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> Tensor:
    """[B, H, N, C, D], N chunks of C tokens: a lower triangle inside, states of all before it."""
    phi_q, phi_k = plain.features(q, k, W, "positive")
    scores = (phi_q @ phi_k.mT).tril()  # [B, H, N, C, C]
    state = before(phi_k.mT @ v)  # [B, H, N, M, D]
    normalizer = before(phi_k.float().sum(-2, keepdim=True))  # [B, H, N, 1, M]
    numerator = scores @ v + phi_q @ state
    bottom = scores.float().sum(-1, keepdim=True) + (phi_q * normalizer).sum(-1, keepdim=True)
    return (numerator / bottom).to(q.dtype)
