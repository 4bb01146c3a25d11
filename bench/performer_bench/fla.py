"""flash-linear-attention behind features made under torch.compile; its kernels are compiled by
fla_compile.py.

Values get 8 more columns, the first of ones: the product's column D is then the denominator, and
rows keep an alignment of 16 bytes. Features have no maximum subtracted, since bfloat16 has
float32's range and exp(w.y - |y|^2 / 2) <= exp(|w|^2 / 2): pointwise, the cheapest. The projection
is shared by the heads. chunk_linear_attn is chunk_simple_gla and more passes.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from performer_bench.case import Attention, Case, UnavailableError

KINDS = {"chunk": "chunk_simple_gla", "fused_chunk": "fused_chunk_simple_gla"}
EXTRA = 8  # columns beside the values


def missing() -> str | None:
    """Why it cannot take part, as far as that is known without loading it."""
    if all(importlib.util.find_spec(name) is not None for name in ("fla", "einops")):
        return None
    return "not installed: pip install fla-core einops"


def prepare(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[T, H, D] of all tokens -> phi(q), phi(k) [T, H, M] and [v, 1, 0...] [T, H, D + EXTRA]."""
    root = q.shape[-1] ** -0.25
    projection = (root * W).mT.to(q.dtype)
    norm = (0.5 * root**2) * k.float().square().sum(-1, keepdim=True)
    phi_q = torch.exp((q @ projection).float()).to(q.dtype)
    phi_k = torch.exp((k @ projection).float() - norm).to(k.dtype)
    ones = pad(torch.ones_like(v[..., :1]), (0, EXTRA - 1))
    return phi_q, phi_k, torch.cat([v, ones], -1)


def divide(out: Tensor) -> Tensor:
    dim = out.shape[-1] - EXTRA
    return out[..., :dim] / out[..., dim : dim + 1]


def operators() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fla.ops import simple_gla
    return simple_gla


@lru_cache
def compiled_parts() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return torch.compile(prepare), torch.compile(divide)


def attention(attend: Callable[..., Any], W: Tensor, compiled: bool = True) -> Attention:
    """`attend`: causal linear attention of [B, L, H, ...], as FLA's operators are; W: [M, D]."""
    before: Callable[..., Any] = prepare
    after: Callable[..., Any] = divide
    if compiled:
        before, after = compiled_parts()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[B, L, H, D]; tokens of all sequences are one axis where sequences do not matter."""
        batch = q.shape[:2]
        parts = before(*(x.flatten(0, 1) for x in (q, k, v)), W)
        out, _ = attend(*(x.unflatten(0, batch) for x in parts), scale=1.0)
        result: Tensor = after(out.flatten(0, 1)).unflatten(0, batch)
        return result

    return Attention(call, W, length_first=True)


def prepare_case(kind: str, case: Case, W: Tensor) -> Attention:
    reason = missing()
    if case.kernel != "positive":
        reason = f"serves positive features alone, not {case.kernel}"
    if reason is not None:
        raise UnavailableError(reason)
    return attention(getattr(operators(), kind), W if W.dim() == 2 else W[0])


def warm_parts(W: Tensor, tokens: int, heads: int) -> None:
    """Compiles what surrounds the product, for these sizes."""
    before, after = compiled_parts()
    q = torch.randn(tokens, heads, W.shape[-1], device=W.device, dtype=torch.bfloat16)
    for grad in (False, True):
        leaf = q.detach().requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            *_, values = before(leaf, leaf, leaf, W)
            out = after(values)
        if grad:
            out.sum().backward()
