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

_OF_LINEAR: dict[str, Any] = {"kernel": "elu1", "features": 0, "near": 0, "eps": -1.0}


class Favor(nn.Module):
    """Also kind linear, which is FAVOR+ with elu + 1 and no projection."""

    projection: Tensor | None

    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        chosen = options.attention
        if options.kinds[layer] == "linear":
            chosen = dataclasses.replace(chosen, **_OF_LINEAR)
        self.options, self.causal, self.layer = chosen, options.model.causal, layer
        self.head_dim = options.head_dim
        self.heads = options.model.heads if chosen.per_head else None
        self.register_buffer("projection", None, persistent=False)

    def redraw(self, draw: int) -> None:
        a, dim = self.options, self.head_dim
        if a.features > 0:
            self.projection = draw_projection(
                a.features, dim, self.heads, a.projection, a.projection_norm, a.seed, self.layer,
                draw, a.rounding,
            )  # fmt: skip
        elif a.near > 0:
            self.projection = torch.empty(0, dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        a = self.options
        return favor_attention(
            q, k, v, self.projection, a.kernel, causal=self.causal, near=a.near,
            scale=a.scale if a.scale > 0 else None, eps=a.eps if a.eps >= 0 else None,
            renormalize=a.renormalize, key_mask=key_mask,
        )  # fmt: skip


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
