"""FAVOR+ with the user's own elementwise function: features in Python, attention in C++."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from performer._operator import call_favor_attention

ElementwiseMap = Callable[[Tensor], Tensor]
DEFAULT_EPS = 1e-3  # of the generalised maps


class Composed(NamedTuple):
    """Arguments for the identity map without a projection, which do the work of `f`."""

    phi_q: Tensor  # [B, H, Lq, M]
    phi_k: Tensor  # [B, Hs, Lk, M]
    v: Tensor  # [B, Hs, Lk, Dv]
    dtype: torch.dtype  # of the output; the features are never below float32


def features_of(
    f: ElementwiseMap, x: Tensor, W: Tensor | None, eps: float | None, bias: Tensor | None
) -> Tensor:
    """f(x W^T) + eps, or f(x) + eps, in x's dtype, to which it is rounded once, at the end.

    Refuses what the named maps refuse.
    """
    if not x.is_floating_point():
        raise ValueError(
            f"features: x must be a floating point tensor [..., D], got {x.dtype} {list(x.shape)}"
        )
    if bias is not None:
        raise ValueError("features: bias belongs to the softmax maps, got feature_map=<callable>")
    if not callable(f):
        raise TypeError(f"features: feature_map must be a name or a function, got {f!r}")
    check_scale_and_eps(None, eps, "features")
    if W is not None:
        _check_projection(x, W)
    dtype = torch.promote_types(x.dtype, torch.float32)
    with without_autocast(x.device):
        wide = x.to(dtype)
        u = wide if W is None else wide @ W.to(dtype).mT
        return apply_map(f, u, eps).to(x.dtype)


def _check_projection(x: Tensor, W: Tensor) -> None:
    if W.dim() != 2 or x.dim() < 1 or W.shape[1] != x.shape[-1] or W.shape[0] < 1:
        raise ValueError(
            f"features: W must be [M, D] with the D of x {list(x.shape)}, got {list(W.shape)}"
        )


def apply_map(f: ElementwiseMap, u: Tensor, eps: float | None) -> Tensor:
    """f(u) + eps; f must keep the shape."""
    phi = f(u)
    if phi.shape != u.shape:
        raise ValueError(
            f"feature_map: a callable must be elementwise, got shape {list(phi.shape)} "
            f"for an input of shape {list(u.shape)}"
        )
    return phi + (DEFAULT_EPS if eps is None else eps)


def compose(
    f: ElementwiseMap,
    qkv: tuple[Tensor, Tensor, Tensor],
    projections: tuple[Tensor | None, Tensor | None],
    scale_and_eps: tuple[float | None, float | None],
    key_mask: Tensor | None,
) -> Composed:
    """qkv and projections (W and the keys' own, which must be None) as favor_attention's."""
    if not callable(f):
        raise TypeError(f"favor_attention: feature_map must be a name or a function, got {f!r}")
    (W, projection_k), (scale, eps) = projections, scale_and_eps
    if projection_k is not None:
        raise ValueError(
            "favor_attention: projection_k is for the maps positive, loglinear and hyperbolic, "
            "got a Python feature_map"
        )
    q, k, v = _cast_for_autocast(qkv)
    _check(q, k, v)
    check_scale_and_eps(scale, eps)
    if key_mask is not None and key_mask.dtype != torch.bool:
        raise ValueError(
            f"favor_attention: key_mask must be bool (True = a real key), got {key_mask.dtype}"
        )
    _check_heads(W, q.shape[1], k.shape[1])
    if key_mask is not None and key_mask.shape == (k.shape[0], k.shape[2]):
        # A masked key that holds NaN must not reach f, whose slope would carry it to W.
        k = k.masked_fill(~key_mask[:, None, :, None], 0)
    dtype = torch.promote_types(q.dtype, torch.float32)
    root = math.sqrt(1.0 if scale is None else scale)
    with without_autocast(q.device):
        x = _project(q.to(dtype) * root, W, dtype)
        y = _project(k.to(dtype) * root, W, dtype)
        phi_q, phi_k = apply_map(f, x, eps), apply_map(f, y, eps)
    v = v.to(dtype)
    if phi_k.shape[1] != v.shape[1]:
        v = v.repeat_interleave(phi_k.shape[1] // v.shape[1], dim=1)
    return Composed(phi_q, phi_k, v, q.dtype)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Where nothing is rounded on the way; meta has no autocast and refuses to be asked for it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _cast_for_autocast(qkv: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    device = qkv[0].device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return qkv
    low = torch.get_autocast_dtype(device)
    q, k, v = (t if t.dtype == torch.float64 else t.to(low) for t in qkv)
    return q, k, v


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Only what the features need; the operator checks the rest."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(
                f"favor_attention: {name} must be [batch, heads, length, dim], "
                f"got {list(tensor.shape)}"
            )
        if tensor.shape[1] == 0:
            raise ValueError(
                f"favor_attention: {name} must have at least one head, got {list(tensor.shape)}"
            )
        if tensor.dtype != q.dtype or not tensor.dtype.is_floating_point:
            raise ValueError(
                f"favor_attention: q, k, v must have one floating-point dtype, "
                f"got {q.dtype}, {k.dtype}, {v.dtype}"
            )


def check_scale_and_eps(
    scale: float | None, eps: float | None, op: str = "favor_attention"
) -> None:
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"{op}: scale must be finite and positive, got {scale}")
    if eps is not None and not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"{op}: eps must be finite and not negative, got {eps}")


def _check_heads(W: Tensor | None, heads: int, key_heads: int) -> None:
    if W is not None and W.dim() == 3 and W.shape[0] not in (1, key_heads, heads):
        raise ValueError(
            f"favor_attention: W must be shared or have 1, {key_heads} (k's) or {heads} (q's) "
            f"heads, got {list(W.shape)}"
        )


def _project(x: Tensor, W: Tensor | None, dtype: torch.dtype) -> Tensor:
    """x [B, heads, L, D], W [M, D] or [1|Hw, M, D] -> [B, max(heads, Hw), L, M]."""
    if W is None:
        return x
    if W.dim() not in (2, 3) or W.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"favor_attention: W must be [M, {x.shape[-1]}] or [heads, M, {x.shape[-1]}], "
            f"got {list(W.shape)}"
        )
    W = W.to(dtype)
    if W.dim() == 3 and W.shape[0] != 1:
        heads = max(x.shape[1], W.shape[0])
        x = x.repeat_interleave(heads // x.shape[1], dim=1)
        W = W.repeat_interleave(heads // W.shape[0], dim=0)
    return x @ W.transpose(-1, -2)


def salt(
    f: ElementwiseMap,
    W: Tensor | None,
    scale: float | None,
    eps: float | None,
    device: torch.device,
) -> Tensor:
    """int64 [1] on `device`. The operator sees features only; this tells states of other W, f,
    scale or eps apart. Functions are known by name: two lambdas of one scope look the same."""
    code = 0
    for character in f"{getattr(f, '__name__', type(f).__name__)} {scale} {eps}":
        code = (code * 31 + ord(character)) % (1 << 61)
    mark = torch.tensor([code], dtype=torch.int64, device=device)
    return mark if W is None else mark ^ _fingerprint(W)


def _fingerprint(W: Tensor) -> Tensor:
    """The operator's fingerprint of an attention over no keys with this projection."""
    rows = W.detach().reshape(-1, W.shape[-1])
    nothing = rows.new_empty(1, 1, 0, rows.shape[-1])
    options: dict[str, Any] = {
        "feature_map": "loglinear",
        "scale": 1.0,
        "causal": False,
        "renormalize": True,
    }
    return call_favor_attention((nothing, nothing, nothing), projection=rows, **options).fingerprint
