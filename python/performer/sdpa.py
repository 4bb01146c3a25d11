"""FAVOR+ under the arguments of torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

from operator import index  # tells a compiler that a size is a constant
from typing import Any

import torch
from torch import Tensor

from performer._masks import Masks, Sizes, check_bias, read_mask
from performer._near import check_near
from performer._own_projection import KeepsProjection
from performer._projection_cache import cached_projection
from performer.attention import FeatureMap, favor_attention

_NAME = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    num_features: int | None = 256,
    feature_map: FeatureMap = "positive",
    eps: float | None = None,
    kind: str = "orthogonal",
    norm: str = "chi",
    seed: int = 0,
    layer: int = 0,
    rounding: str = "bf16",
    near: int = 0,
) -> Tensor:
    """FAVOR+ where torch.nn.functional.scaled_dot_product_attention stands, at linear cost.

    query [B, H, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv] -> [B, H, Lq, Dv]; or all of
    them without heads, [B, L, D].

    Args:
        attn_mask: broadcasts to [B, H, Lq, Lk]; bool, True may attend, or added to the logits.
            It must be the same for every query (padding), causal, or both; others are refused.
            Numbers of -1e8 and less remove a key, as -inf does.
            Rows that are stored once ([B, 1, 1, Lk], or expanded) are read by their shape, others
            by value, which compiled code cannot. It may stand beside is_causal.
        dropout_p: 0 alone; FAVOR+ forms no weights that could be dropped.
        is_causal: needs Lq == Lk.
        scale: None is 1/sqrt(D), for generalised maps 1.
        enable_gqa: Hkv may divide H, as in torch; without it Hkv must be H.
        num_features, kind, norm, seed, layer, rounding: the projection, as in draw_projection, one
            for each key head; give each place of a model its own layer. It is drawn once and kept,
            up to 64 of them. A CUDA graph needs FavorSDPA, which holds its projection.
        feature_map, eps: as in favor_attention; num_features=None with generalised maps f(x).
        near: as in favor_attention, for the maps positive, hyperbolic and trigonometric and
            norm="chi"; with num_features=0 local attention alone.

    Example:
        >>> out = performer.scaled_dot_product_attention(q, k, v, is_causal=True, layer=3)
    """
    _check_shapes(query, key, value)
    check_near(_NAME, near, feature_map, norm, num_features)
    W = None
    if num_features == 0:
        W = query.new_empty(0, query.shape[-1], dtype=torch.float32)
    elif num_features is not None:
        dim, heads = index(query.shape[-1]), index(key.shape[1] if key.dim() > 3 else 1)
        drawn = (num_features, dim, heads, kind, norm, seed, layer)
        W = cached_projection(*drawn, str(query.device), rounding)
    return _attend(
        (query, key, value),
        (attn_mask, dropout_p, enable_gqa),
        W=W,
        feature_map=feature_map,
        causal=is_causal,
        scale=scale,
        eps=eps,
        near=near,
    )


class FavorSDPA(KeepsProjection):
    """scaled_dot_product_attention that keeps its own projection, as a buffer.

    For a module each, under CUDA graphs, and where the projection belongs into the state dict.
    The projection stays float32 under .half() and .bfloat16(); reset_parameters() draws it again,
    for modules built on the meta device.

    Args:
        head_dim: D.
        num_heads: heads of the keys; None is one projection for all heads.
        num_features, feature_map, scale, eps: as in favor_attention.
        causal: every call is causal, whatever its is_causal.
        kind, norm, seed, layer, rounding: as in draw_projection.
        near: as in scaled_dot_product_attention.

    Example:
        >>> attend = performer.FavorSDPA(head_dim=64, num_heads=8, layer=3)
        >>> out = attend(q, k, v, is_causal=True)               # [B, 8, L, 64]
    """

    def __init__(
        self,
        head_dim: int,
        num_heads: int | None = None,
        num_features: int | None = 256,
        *,
        feature_map: FeatureMap = "positive",
        causal: bool = False,
        scale: float | None = None,
        eps: float | None = None,
        kind: str = "orthogonal",
        norm: str = "chi",
        seed: int = 0,
        layer: int = 0,
        rounding: str = "bf16",
        near: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.num_heads, self.num_features = head_dim, num_heads, num_features
        self.feature_map, self.causal = feature_map, causal
        self.scale, self.eps = scale, eps
        self.kind, self.norm, self.rounding = kind, norm, rounding
        self.seed, self.layer, self.near = seed, layer, near
        W = self._draw(0)
        if W is not None:
            W = W.to(torch.empty(0, device=device).device)
        self.register_buffer("projection", W)
        heads = 1 if num_heads is None else num_heads
        self._check_options(heads, heads, torch.float64)  # the least that any input may need

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """As performer.scaled_dot_product_attention; scale None is the module's."""
        _check_shapes(query, key, value)
        return _attend(
            (query, key, value),
            (attn_mask, dropout_p, enable_gqa),
            W=self.projection,
            feature_map=self.feature_map,
            causal=self.causal or is_causal,
            scale=self.scale if scale is None else scale,
            eps=self.eps,
            near=self.near,
        )

    def _projection_heads(self) -> int | None:
        return self.num_heads

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, "
            f"num_features={self.num_features}, feature_map={self.feature_map!r}, "
            f"causal={self.causal}, near={self.near}"
        )


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    tensors = (("query", query), ("key", key), ("value", value))
    nested = any(tensor.is_nested for _, tensor in tensors)
    if not nested and all(tensor.dim() == 3 for _, tensor in tensors):
        return
    for name, tensor in tensors:
        if tensor.is_nested or tensor.dim() != 4:
            got = "a nested tensor" if tensor.is_nested else list(tensor.shape)
            raise ValueError(f"{_NAME}: {name} must be [batch, heads, length, dim], got {got}")


def _attend(
    qkv: tuple[Tensor, Tensor, Tensor],
    torch_options: tuple[Tensor | None, float, bool],
    *,
    causal: bool,
    **options: Any,
) -> Tensor:
    """torch_options: attn_mask, dropout_p, enable_gqa."""
    attn_mask, dropout_p, enable_gqa = torch_options
    if dropout_p != 0:
        raise ValueError(
            f"{_NAME}: dropout_p must be 0, got {dropout_p}: FAVOR+ forms no attention weights "
            f"that could be dropped"
        )
    without_heads = qkv[0].dim() == 3
    if without_heads:
        q, k, v = (tensor.unsqueeze(1) for tensor in qkv)
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
    else:
        q, k, v = qkv
    if k.shape[1] != q.shape[1] and not enable_gqa:
        raise ValueError(
            f"{_NAME}: key must have the {q.shape[1]} heads of query unless enable_gqa=True, "
            f"got {k.shape[1]}"
        )
    masks = Masks()
    if attn_mask is not None:
        sizes = Sizes(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        masks = read_mask(_NAME, attn_mask, sizes)
        check_bias(_NAME, masks, options["feature_map"])
    out = favor_attention(
        q,
        k,
        v,
        causal=causal or masks.causal,
        key_mask=masks.key_mask,
        key_bias=masks.key_bias,
        **options,
    )
    return out.squeeze(1) if without_heads else out
