"""FAVOR+ in plain PyTorch, written to compile well: the peer `torch.compile`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
EPS = 1e-3  # added to generalised features
CHUNK = 128  # tokens; of 64, 128 and 256 the fastest forward and backward, compiled

# The generalised kernels: phi(x) = f(W x) + eps.
MAPS: dict[str, Map] = {
    "relu": torch.relu,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "gelu": torch.nn.functional.gelu,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "square": torch.square,
    "elu1": lambda u: torch.nn.functional.elu(u) + 1,
}
KERNELS = ("positive", *MAPS)


def features(q: Tensor, k: Tensor, W: Tensor, kernel: str) -> tuple[Tensor, Tensor]:
    """q, k: [B, H, ..., D], W: [M, D] -> phi(q), phi(k): [B, H, ..., M], at scale 1/sqrt(D).

    Positive features carry exp(-max) of the row (q) or of the head (k), which the ratio of
    attention cancels, as it does exp(-|x|^2 / 2) of the query.
    """
    root = q.shape[-1] ** -0.25
    projection = (root * W).mT.to(q.dtype)
    u_q, u_k = q @ projection, k @ projection
    if kernel != "positive":
        f = MAPS[kernel]
        return f(u_q) + EPS, f(u_k) + EPS
    u_k = u_k - (0.5 * root**2) * k.square().sum(-1, keepdim=True)
    # The row maximum first: a reduction over all but the head would be a pass of its own.
    rows = tuple(range(2, k.dim() - 1))
    largest = u_k.detach().amax(-1, keepdim=True).amax(rows, keepdim=True)
    return torch.exp(u_q - u_q.detach().amax(-1, keepdim=True)), torch.exp(u_k - largest)


def wide(x: Tensor) -> Tensor:
    """Sums of many features need more than 16 bits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def bidirectional(q: Tensor, k: Tensor, v: Tensor, W: Tensor, kernel: str) -> Tensor:
    """[B, H, L, D]: phi(q) (phi(k)^T v) over its own sum."""
    phi_q, phi_k = features(q, k, W, kernel)
    state = phi_k.mT @ v  # [B, H, M, D]
    normalizer = phi_k.sum(-2, keepdim=True)  # [B, H, 1, M]
    return (phi_q @ state) / (phi_q * normalizer).sum(-1, keepdim=True)


def before(states: Tensor) -> Tensor:
    """[B, H, N, ...] -> sums over the chunks before each.

    Sums shifted by a chunk: a sum minus its own last term would cancel, which costs gradients
    more than a tenth in bfloat16.
    """
    sums = wide(states).cumsum(2).to(states.dtype)
    return torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], 2)


def causal(q: Tensor, k: Tensor, v: Tensor, W: Tensor, kernel: str) -> Tensor:
    """[B, H, N, C, D], N chunks of C tokens: a lower triangle inside, states of all before it."""
    phi_q, phi_k = features(q, k, W, kernel)
    scores = (phi_q @ phi_k.mT).tril()  # [B, H, N, C, C]
    state = before(phi_k.mT @ v)  # [B, H, N, M, D]
    normalizer = before(wide(phi_k).sum(-2, keepdim=True))  # [B, H, N, 1, M]
    numerator = scores @ v + phi_q @ state
    bottom = wide(scores).sum(-1, keepdim=True) + (phi_q * normalizer).sum(-1, keepdim=True)
    return (numerator / bottom).to(q.dtype)


def chunked(x: Tensor) -> Tensor:
    """[B, H, L, D] -> [B, H, N, C, D] without a copy; C divides L and is at most CHUNK."""
    return x.unflatten(2, (-1, math.gcd(x.shape[2], CHUNK)))
