"""What each system should have computed, in float64 and by another formula: rows of the attention
matrix itself."""

import math

import torch
from torch import Tensor

from performer.bench.case import Attention, Case, draw_inputs
from performer.bench.plain import EPS, MAPS

ROWS = 32  # checked of every head, the first and the last among them


def checked_rows(length: int) -> Tensor:
    return torch.linspace(0, length - 1, min(ROWS, length), dtype=torch.float64).long()


def favor_weights(q: Tensor, k: Tensor, W: Tensor, kernel: str) -> Tensor:
    """q: [R, D], k: [L, D], W: [M, D] -> phi(q) . phi(k) up to a factor per row, [R, L]."""
    root = q.shape[-1] ** -0.25
    u_q, u_k = root * q @ W.T, root * k @ W.T
    if kernel != "positive":
        f = MAPS[kernel]
        return (f(u_q) + EPS) @ (f(u_k) + EPS).T
    u_k = u_k - 0.5 * root**2 * k.square().sum(-1, keepdim=True)
    return torch.exp(u_q - u_q.amax(-1, keepdim=True)) @ torch.exp(u_k - u_k.max()).T


def softmax_weights(q: Tensor, k: Tensor) -> Tensor:
    u = q @ k.T / math.sqrt(q.shape[-1])
    return torch.exp(u - u.amax(-1, keepdim=True))


def exact_rows(
    qkv: tuple[Tensor, Tensor, Tensor], W: Tensor | None, kernel: str, causal: bool
) -> Tensor:
    """The checked rows, [B, H, R, D] float64; W None: exact softmax. q, k, v: [B, H, L, D]."""
    q, k, v = (x.flatten(0, 1) for x in qkv)
    length = q.shape[1]
    rows = checked_rows(length)
    later = torch.arange(length) > rows[:, None]  # [R, L]
    out = []
    for x, y, values in zip(q[:, rows].double(), k, v, strict=True):  # a head at a time, for memory
        if W is None:
            weights = softmax_weights(x, y.double())
        else:
            weights = favor_weights(x, y.double(), W.double(), kernel)
        if causal:
            weights = weights.masked_fill(later, 0)
        out.append(weights @ values.double() / weights.sum(-1, keepdim=True))
    return torch.stack(out).unflatten(0, qkv[0].shape[:2])


def relative_error(out: Tensor, exact: Tensor, v: Tensor) -> float:
    """RMS of out - exact over the checked rows, relative to the RMS of v; out: [B, H, L, D]."""
    difference = out[:, :, checked_rows(out.shape[2])].double() - exact
    return float(difference.square().mean().sqrt() / v.double().square().mean().sqrt())


class Problem:
    """A case with its inputs, and the answers that it has in float64."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.inputs = draw_inputs(case)
        self._truths: dict[Tensor | None, Tensor] = {}  # by projection, which most systems share

    def error(self, attention: Attention, out: Tensor) -> float:
        W, v = attention.W, self.inputs.v
        if W not in self._truths:
            qkv = (self.inputs.q, self.inputs.k, v)
            self._truths[W] = exact_rows(qkv, W, self.case.kernel, self.case.causal)
        return relative_error(attention.layout(out), self._truths[W], v)
