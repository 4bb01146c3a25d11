"""FavorAttention: multi-head attention of linear cost as an nn.Module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import torch
from torch import Tensor, nn

from performer._redraw import advance
from performer.attention import FeatureMap, favor_attention, favor_step
from performer.projection import draw_projection
from performer.state import FavorState


class FavorAttention(nn.Module):
    """Multi-head FAVOR+ attention with its own random projection, [B, L, E] -> [B, L, E].

    Args:
        embed_dim: E, a multiple of num_heads.
        num_heads: H; num_kv_heads: Hkv divides H, None is H.
        num_features: M, rows of the projection; None for none (generalised maps f(x)).
        causal, feature_map, scale, eps, renormalize: as in performer.favor_attention.
        kind, norm, seed, layer: as in performer.draw_projection; give each layer its number.
        redraw_interval: a new projection every so many forward calls in train(); None: never.
        shared_projection: one projection for all heads instead of one per key head.

    The projection, the number of the draw and the calls counted for the schedule are buffers and
    go with the state dict. The projection stays float32 under .half() and .bfloat16(). A draw is a
    function of (seed, layer, draw) alone, so that replicas agree without talking.

    A redraw replaces the projection and does not write to the old one: graphs that await their
    backward pass keep theirs. Recomputation by activation checkpointing never redraws and uses the
    present projection, so there a backward pass must come before the next redraw. The schedule
    also runs under torch.compile(fullgraph=True), but not inside a checkpoint that is itself
    compiled; there leave redraw_interval=None and call redraw() between steps.

    Example:
        >>> layer = performer.FavorAttention(embed_dim=512, num_heads=8, causal=True)
        >>> y = layer(x)                                        # [B, L, 512]
        >>> y, state = layer(x, return_state=True)
        >>> y_next, state = layer.step(x_next, state)           # [B, 1, 512]
    """

    projection: Tensor | None  # [Hkv, M, D] or [M, D]
    draw: Tensor  # int64 []
    calls: Tensor  # int64 []: forward calls in train() under redraw_interval

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_features: int | None = 256,
        causal: bool = False,
        feature_map: FeatureMap = "positive",
        kind: str = "orthogonal",
        norm: str = "chi",
        num_kv_heads: int | None = None,
        bias: bool = True,
        seed: int = 0,
        layer: int = 0,
        redraw_interval: int | None = None,
        shared_projection: bool = False,
        scale: float | None = None,
        eps: float | None = None,
        renormalize: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_sizes(embed_dim, num_heads, kv_heads, redraw_interval)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.head_dim = embed_dim // num_heads
        self.num_features, self.kind, self.norm = num_features, kind, norm
        self.causal, self.feature_map = causal, feature_map
        self.scale, self.eps, self.renormalize = scale, eps, renormalize
        self.seed, self.layer = seed, layer
        self.redraw_interval, self.shared_projection = redraw_interval, shared_projection

        kv_dim = kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        self.k_proj = nn.Linear(embed_dim, kv_dim, bias, device, dtype)
        self.v_proj = nn.Linear(embed_dim, kv_dim, bias, device, dtype)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias, device, dtype)
        projection = self._draw(0)
        self.register_buffer(
            "projection", None if projection is None else projection.to(self.q_proj.weight.device)
        )
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64, device=device))
        self._check_options()

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        initial_state: FavorState | None = None,
        return_state: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        initial_state: FavorState | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, FavorState]: ...

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        initial_state: FavorState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, FavorState]:
        """query [B, Lq, E], key [B, Lk, E] (None: query), value [B, Lk, E] (None: key).

        key_mask: bool [B, Lk], True is a real key. key_padding_mask: the opposite, True is
        padding, as in nn.MultiheadAttention. Returns [B, Lq, E], and with return_state the state.
        """
        if self.training and self.redraw_interval is not None and self.projection is not None:
            advance(self)
        key = query if key is None else key
        value = key if value is None else value
        out, state = favor_attention(
            *self._heads(query, key, value),
            self.projection,
            self.feature_map,
            causal=self.causal,
            scale=self.scale,
            eps=self.eps,
            renormalize=self.renormalize,
            key_mask=_key_mask(key_mask, key_padding_mask),
            initial_state=initial_state,
            return_state=True,
        )
        out = self._merge(out)
        return (out, state) if return_state else out

    def _check_options(self) -> None:
        """Refuses by the operator's own rules what no call could use: attention over nothing."""
        nothing = self.q_proj.weight.new_empty(1, self.num_heads, 0, self.head_dim)
        keys = nothing[:, : self.num_kv_heads]
        favor_attention(
            nothing,
            keys,
            keys,
            self.projection,
            self.feature_map,
            causal=self.causal,
            scale=self.scale,
            eps=self.eps,
            renormalize=self.renormalize,
        )

    def step(self, x: Tensor, state: FavorState | None = None) -> tuple[Tensor, FavorState]:
        """The next token x [B, 1, E] of a causal layer, after those in `state` (None: the first).

        Returns [B, 1, E] and the next state. Never redraws.
        """
        if not self.causal:
            raise ValueError("FavorAttention.step: the layer must be causal, got causal=False")
        out, state = favor_step(
            *self._heads(x, x, x),
            self.projection,
            state,
            self.feature_map,
            scale=self.scale,
            eps=self.eps,
            renormalize=self.renormalize,
        )
        return self._merge(out), state

    def redraw(self) -> None:
        """Replaces the projection by the next draw; states of the old one are refused."""
        if self.projection is None:
            raise ValueError("FavorAttention.redraw: there is no projection, num_features is None")
        draw = int(self.draw.item()) + 1
        new = self._draw(draw)
        assert new is not None
        self.projection = new.to(self.projection)
        self.draw = torch.full_like(self.draw, draw)

    def reset_parameters(self) -> None:
        """Fresh linear maps, and draw 0 again: for modules built on the meta device."""
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            linear.reset_parameters()
        projection = self._draw(0)
        if projection is not None and self.projection is not None:
            self.projection = projection.to(self.projection)
        self.draw, self.calls = torch.zeros_like(self.draw), torch.zeros_like(self.calls)

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"num_features={self.num_features}, causal={self.causal}, "
            f"feature_map={self.feature_map!r}, kind={self.kind!r}, norm={self.norm!r}, "
            f"num_kv_heads={self.num_kv_heads}, redraw_interval={self.redraw_interval}"
        )

    def _draw(self, draw: int) -> Tensor | None:
        if self.num_features is None:
            return None
        return draw_projection(
            self.num_features,
            self.head_dim,
            heads=None if self.shared_projection else self.num_kv_heads,
            kind=self.kind,
            norm=self.norm,
            seed=self.seed,
            layer=self.layer,
            draw=draw,
        )

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, L, E] -> views [B, heads, L, D]."""
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if tensor.dim() != 3 or tensor.shape[-1] != self.embed_dim:
                raise ValueError(
                    f"FavorAttention: {name} must be [batch, length, {self.embed_dim}], "
                    f"got {list(tensor.shape)}"
                )
        split = (-1, self.head_dim)
        return (
            self.q_proj(query).unflatten(-1, split).transpose(1, 2),
            self.k_proj(key).unflatten(-1, split).transpose(1, 2),
            self.v_proj(value).unflatten(-1, split).transpose(1, 2),
        )

    def _merge(self, out: Tensor) -> Tensor:
        """[B, H, L, D] -> [B, L, E]."""
        merged: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return merged

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FavorAttention:
        before = self.projection
        apply: Callable[..., nn.Module] = super()._apply
        apply(fn, recurse)
        after = self.projection
        if before is not None and after is not None and after.dtype.itemsize < 4:
            self.projection = before.to(after.device)
        return self


def _check_sizes(embed_dim: int, heads: int, kv_heads: int, redraw_interval: int | None) -> None:
    if heads < 1 or embed_dim < 1 or embed_dim % heads:
        raise ValueError(
            f"FavorAttention: embed_dim must be a multiple of num_heads, "
            f"got {embed_dim} and {heads}"
        )
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(
            f"FavorAttention: num_kv_heads must divide num_heads, got {kv_heads} and {heads}"
        )
    if redraw_interval is not None and redraw_interval < 1:
        raise ValueError(
            f"FavorAttention: redraw_interval must be at least 1, got {redraw_interval}"
        )


def _key_mask(key_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    if key_padding_mask is None:
        return key_mask
    if key_mask is not None:
        raise ValueError(
            "FavorAttention: key_mask (True: a real key) and key_padding_mask (True: padding) "
            "say the same thing, got both; pass one"
        )
    if key_padding_mask.dtype != torch.bool:
        raise ValueError(
            f"FavorAttention: key_padding_mask must be bool, got {key_padding_mask.dtype}"
        )
    return ~key_padding_mask
