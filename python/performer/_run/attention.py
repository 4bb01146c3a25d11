"""How a layer's tokens mix: a module for each kind of attention."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from performer._run.options import Options
from performer.analysis import exact_attention
from performer.attention import favor_attention
from performer.projection import draw_projection

_OF_LINEAR: dict[str, Any] = {
    "kernel": "elu1", "features": 0, "near": 0, "eps": -1.0, "projection": "orthogonal",
}  # fmt: skip


class Favor(nn.Module):
    """Also kind linear, which is FAVOR+ with elu + 1 and no projection."""

    projection: Tensor | None
    features: Fitted | None

    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        chosen = options.attention
        if options.kinds[layer] == "linear":
            chosen = dataclasses.replace(chosen, **_OF_LINEAR)
        self.options, self.causal, self.layer = chosen, options.model.causal, layer
        self.head_dim = options.head_dim
        self.heads = options.key_heads if chosen.per_head else None
        self.features = Fitted(options) if chosen.projection == "fitted" else None
        self.register_buffer("projection", None, persistent=False)

    def redraw(self, draw: int) -> None:
        a, dim = self.options, self.head_dim
        if self.features is not None:
            return
        if a.features > 0:
            self.projection = draw_projection(
                a.features, dim, self.heads, a.projection, a.projection_norm, a.seed, self.layer,
                draw, a.rounding,
            )  # fmt: skip
        elif a.near > 0:
            self.projection = torch.empty(0, dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        a = self.options
        fitted = {} if self.features is None else self.features.arguments(q, k)
        return favor_attention(
            q, k, v, fitted.pop("W", self.projection), a.kernel, causal=self.causal, near=a.near,
            scale=fitted.pop("scale", a.scale if a.scale > 0 else None),
            eps=a.eps if a.eps >= 0 else None,
            renormalize=a.renormalize, key_mask=key_mask, **fitted,
        )  # fmt: skip


class Fitted(nn.Module):
    """Features that are numbers of the model. With x = sqrt(scale) q and y = sqrt(scale) k,

        log phi_k(y) = key_weight y + key_bias - |key_form y|^2 / 2
        log phi_q(x) = query_weight x + query_bias [- |query_form x|^2 / 2 + query_offset],

    where the bracket is there with a near field alone: elsewhere it cancels.
    """

    query_weight: Tensor
    query_bias: Tensor
    key_weight: Tensor
    key_bias: Tensor
    key_form: Tensor
    query_form: Tensor
    query_offset: Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        a, heads, key_heads = options.attention, options.model.heads, options.key_heads
        dim, m = options.head_dim, a.features
        self.scale, self.near = a.scale if a.scale > 0 else dim**-0.5, a.near
        shapes: dict[str, tuple[int, ...]] = {
            "query_weight": (heads, m, dim), "query_bias": (heads, m),
            "key_weight": (key_heads, m, dim), "key_bias": (key_heads, m),
            "key_form": (key_heads, dim, dim),
        }  # fmt: skip
        if a.near > 0:
            shapes |= {"query_form": (heads, dim, dim), "query_offset": (heads,)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.empty(shape))

    def arguments(self, q: Tensor, k: Tensor) -> dict[str, Any]:
        """What favor_attention takes beside q, k and v."""
        given = {
            "W": self.query_weight, "projection_k": self.key_weight, "scale": self.scale,
            "bias_q": self.query_bias, "bias_k": self.key_bias,
            "key_bias": self.quadratic(k, self.key_form),
        }  # fmt: skip
        if self.near > 0:
            offset = self.query_offset[:, None]
            given["query_bias"] = self.quadratic(q, self.query_form) + offset
        return given

    def quadratic(self, t: Tensor, form: Tensor) -> Tensor:
        """-|F x|^2 / 2 of x = sqrt(scale) t: [B, H, L]."""
        return (t.to(form.dtype) @ form.mT).square().sum(-1) * (-0.5 * self.scale)


class Exact(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.causal, scale = options.model.causal, options.attention.scale
        self.scale = scale if scale > 0 else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        return exact_attention(q, k, v, causal=self.causal, scale=self.scale, key_mask=key_mask)


class Identity(nn.Module):
    """The values alone: what no attention costs."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        return v


class Mean(nn.Module):
    """The mean of the values that a token may see."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        dtype = torch.promote_types(v.dtype, torch.float32)
        wide, real = v.to(dtype), torch.ones(1, 1, v.shape[2], 1, dtype=dtype, device=v.device)
        if key_mask is not None:
            wide = wide.masked_fill(~key_mask[:, None, :, None], 0)
            real = key_mask[:, None, :, None].to(dtype)
        if self.causal:
            return (wide.cumsum(2) / real.cumsum(2).clamp_min(1)).to(v.dtype)
        mean = wide.sum(2, keepdim=True) / real.sum(2, keepdim=True).clamp_min(1)
        return mean.to(v.dtype).expand_as(v)


def make_attention(options: Options, layer: int) -> nn.Module:
    kind = options.kinds[layer]
    if kind in ("favor", "linear"):
        return Favor(options, layer)
    if kind == "exact":
        return Exact(options)
    return Mean(options.model.causal) if kind == "mean" else Identity()
