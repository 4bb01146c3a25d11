"""The answer in float64 by another formula, the matrix of all weights, and errors against it."""

import torch
from torch import Tensor

from on_gpu.systems import Forward, System

CHECKED, CHECKED_HEADS = 1024, 2  # tokens of a longer case; heads, of the first sequence
MOST, MOST_GRADIENT = 0.03, 0.06  # relative; a 16-bit system beyond computes something else


def weights(q: Tensor, k: Tensor, W: Tensor | None) -> Tensor:
    """[B, H, L, L], up to a factor per row."""
    root = q.shape[-1] ** -0.25
    x, y = root * q, root * k
    if W is None:
        log = x @ y.mT
        return torch.exp(log - log.detach().amax(-1, keepdim=True))
    u_q, u_k = x @ W.mT, y @ W.mT - 0.5 * y.square().sum(-1, keepdim=True)
    phi_q = torch.exp(u_q - u_q.detach().amax(-1, keepdim=True))
    return phi_q @ torch.exp(u_k - u_k.detach().amax((-1, -2), keepdim=True)).mT


def exact(system: System) -> Forward:
    """Of the first heads."""
    W = None if system.W is None else system.W.double()
    if W is not None and W.dim() == 3:
        W = W[:CHECKED_HEADS]

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        A = weights(q, k, W)
        if system.causal:
            A = A.tril()
        return A @ v / A.sum(-1, keepdim=True)

    return forward


def results(forward: Forward, tensors: list[Tensor]) -> list[Tensor]:
    """The output and the gradients of q, k, v; tensors: q, k, v and the output's gradient."""
    *qkv, grad = tensors
    leaves = [t.detach().requires_grad_() for t in qkv]
    out = forward(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def errors(system: System, tensors: list[Tensor]) -> tuple[float, float]:
    """Relative: of the output, and the largest of the gradients of q, k, v."""

    def part(t: Tensor) -> Tensor:
        return t[:1, :CHECKED_HEADS].double()

    truth = results(exact(system), [part(t) for t in tensors])
    pairs = zip(results(system.forward, tensors), truth, strict=True)
    out, *grads = (float((part(ours) - want).norm() / want.norm()) for ours, want in pairs)
    return out, max(grads)
