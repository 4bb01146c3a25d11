"""FavorAttention: multi-head attention of linear cost as an nn.Module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn

from performer._masks import Sizes, both, check_bias, read_key_masks, read_multihead_mask
from performer._module_checks import CallOptions, check_call, check_input, check_sizes
from performer._multihead import MultiheadNames, refuse_what_has_no_counterpart
from performer._redraw import advance
from performer.analysis import attention_map
from performer.attention import FeatureMap, favor_attention, favor_step
from performer.state import FavorState

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FavorAttention(MultiheadNames):
    """Multi-head FAVOR+ attention with its own random projection, [B, L, E] -> [B, L, E].

    Args:
        embed_dim: E, a multiple of num_heads unless head_dim is given.
        num_heads: H; num_kv_heads: Hkv divides H, None is H.
        num_features: M, rows of the projection; None for none (generalised maps f(x)); 0 is local
            attention alone, with near.
        causal, feature_map, scale, eps, renormalize: as in performer.favor_attention.
        kind, norm, seed, layer, rounding: as in performer.draw_projection; give each layer its
            number.
        redraw_interval: a new projection every so many forward calls in train(); None: never.
        shared_projection: one projection for all heads instead of one per key head.
        bias, out_bias: of the linear maps; out_bias None is bias.
        batch_first: False takes and returns [L, B, E], as nn.MultiheadAttention does by default.
        rotary: turns queries and keys by their positions (10000^(-2i/D), pairs (2i, 2i + 1)), as
            the models of `performer train` do; the head width must be even.
        head_dim: width of a head; None is embed_dim / num_heads.
        kdim, vdim: widths of key and value; None is embed_dim.
        near: as in performer.favor_attention, for the maps positive, hyperbolic and trigonometric:
            exact attention within neighbouring blocks of so many tokens, features beyond. Needs
            norm="chi", and keys that are the queries' own tokens.
        dropout, add_bias_kv, add_zero_attn: names of nn.MultiheadAttention without a counterpart;
            0 and False alone are accepted.

    The projection, the number of the draw and the calls counted for the schedule are buffers and
    go with the state dict, where a loaded projection stays as it was saved, whatever `rounding`
    says; the redraws after it follow the option. The projection stays float32 under .half() and
    .bfloat16(). A draw is a function of (seed, layer, draw) alone, so that replicas agree without
    talking.

    A redraw replaces the projection and does not write to the old one: graphs that await their
    backward pass keep theirs. Recomputation by activation checkpointing never redraws and uses the
    present projection, so there a backward pass must come before the next redraw. The schedule
    also runs under torch.compile(fullgraph=True), but not inside a checkpoint that is itself
    compiled; there leave redraw_interval=None and call redraw() between steps.

    load_state_dict also takes the entries of nn.MultiheadAttention (in_proj_weight, in_proj_bias,
    q_proj_weight, ...). from_multihead makes a layer out of one; MultiheadAttention is this layer
    with the other's arguments in the other's order.

    Example:
        >>> layer = performer.FavorAttention(embed_dim=512, num_heads=8, causal=True)
        >>> y = layer(x)                                        # [B, L, 512]
        >>> y, state = layer(x, return_state=True)
        >>> y_next, state = layer.step(x_next, state)           # [B, 1, 512]
        >>> block.self_attn = MultiheadAttention.from_multihead(block.self_attn)  # of an encoder
    """

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
        *,
        batch_first: bool = True,
        rotary: bool = False,
        out_bias: bool | None = None,
        head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        rounding: str = "bf16",
        near: int = 0,
        dropout: float = 0.0,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
    ) -> None:
        super().__init__()
        refuse_what_has_no_counterpart(dropout, add_bias_kv, add_zero_attn)
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_sizes(embed_dim, (num_heads, kv_heads, head_dim), num_features, redraw_interval)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else head_dim
        if rotary and self.head_dim % 2:
            raise ValueError(
                f"FavorAttention: rotary needs an even head width, got {self.head_dim}"
            )
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.rotary, self.dropout = batch_first, rotary, 0.0
        self.num_features, self.kind, self.norm, self.rounding = num_features, kind, norm, rounding
        self.causal, self.feature_map, self.near = causal, feature_map, near
        self.scale, self.eps, self.renormalize = scale, eps, renormalize
        self.seed, self.layer = seed, layer
        self.redraw_interval, self.shared_projection = redraw_interval, shared_projection

        q_dim, kv_dim = num_heads * self.head_dim, kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, q_dim, bias, device, dtype)
        self.k_proj = nn.Linear(self.kdim, kv_dim, bias, device, dtype)
        self.v_proj = nn.Linear(self.vdim, kv_dim, bias, device, dtype)
        out_bias = bias if out_bias is None else out_bias
        self.out_proj = nn.Linear(q_dim, embed_dim, out_bias, device, dtype)
        projection = self._draw(0)
        self.register_buffer(
            "projection", None if projection is None else projection.to(self.q_proj.weight.device)
        )
        self.register_buffer("draw", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64, device=device))
        self._check_options(num_heads, kv_heads, self.q_proj.weight.dtype)

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        need_weights: None = None,
        return_state: Literal[False] = False,
        **options: Unpack[CallOptions],
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        need_weights: None = None,
        return_state: Literal[True],
        **options: Unpack[CallOptions],
    ) -> tuple[Tensor, FavorState]: ...

    @overload
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        need_weights: bool,
        average_attn_weights: bool = True,
        **options: Unpack[CallOptions],
    ) -> tuple[Tensor, Tensor | None]: ...

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        position: int | None = None,
        initial_state: FavorState | None = None,
        need_weights: bool | None = None,
        average_attn_weights: bool = True,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, FavorState] | tuple[Tensor, Tensor | None]:
        """query [B, Lq, E], key [B, Lk, E] (None: query), value [B, Lk, E] (None: key).

        key_mask: bool [B, Lk], True is a real key. key_padding_mask: the opposite, True is
            padding, as in nn.MultiheadAttention; or floating with 0 and -inf.
        attn_mask: [Lq, Lk] or [B H, Lq, Lk], bool (True: may not attend) or added to the logits;
            causal ones, padding and both together are read by value, others refused.
        is_causal: this call is causal; attn_mask, if given too, is taken for the causal one.
        position: of the first token, for rotary; None is 0, or an error beside initial_state.
        need_weights: None returns the output alone; False (output, None) and True (output,
            weights) as nn.MultiheadAttention. The weights are those of the estimate, [B, Lq, Lk],
            or [B, H, Lq, Lk] without average_attn_weights: quadratic, for looking at.

        Returns [B, Lq, E], and with return_state the state.
        """
        check_call(need_weights, return_state, initial_state)
        if self.training and self.redraw_interval is not None and self.num_features:
            advance(self)
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = self._heads(query, key, value, self._position(position, initial_state))
        sizes = Sizes(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        masks = read_multihead_mask(attn_mask, is_causal, sizes)
        check_bias("FavorAttention", masks, self.feature_map)
        padding = read_key_masks(key_mask, key_padding_mask, sizes)
        options: dict[str, Any] = {
            **self._options(),
            "causal": self.causal or masks.causal,
            "key_mask": both(padding, masks.key_mask),
            "key_bias": masks.key_bias,
        }
        out, state = favor_attention(
            q,
            k,
            v,
            self.projection,
            self.feature_map,
            initial_state=initial_state,
            return_state=True,
            **options,
        )
        out = self._merge(out)
        if return_state:
            return out, state
        if need_weights is None:
            return out
        if not need_weights:
            return out, None
        weights = attention_map(q, k, self.projection, feature_map=self.feature_map, **options)
        weights = weights.to(out.dtype)
        return out, weights.mean(1) if average_attn_weights else weights

    def step(
        self, x: Tensor, state: FavorState | None = None, position: int | None = None
    ) -> tuple[Tensor, FavorState]:
        """The next token x [B, 1, E] of a causal layer, after those in `state` (None: the first).

        position: how many tokens came before; rotary layers need it beside a state. Returns
        [B, 1, E] and the next state. Never redraws.
        """
        if not self.causal:
            raise ValueError("FavorAttention.step: the layer must be causal, got causal=False")
        out, state = favor_step(
            *self._heads(x, x, x, self._position(position, state)),
            self.projection,
            state,
            self.feature_map,
            **self._options(),
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
        super().reset_parameters()
        self.draw, self.calls = torch.zeros_like(self.draw), torch.zeros_like(self.calls)

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"num_features={self.num_features}, causal={self.causal}, "
            f"feature_map={self.feature_map!r}, kind={self.kind!r}, norm={self.norm!r}, "
            f"rounding={self.rounding!r}, num_kv_heads={self.num_kv_heads}, "
            f"redraw_interval={self.redraw_interval}, batch_first={self.batch_first}, "
            f"rotary={self.rotary}, near={self.near}"
        )

    def _projection_heads(self) -> int | None:
        return None if self.shared_projection else self.num_kv_heads

    def _heads(
        self, query: Tensor, key: Tensor, value: Tensor, position: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[B, L, E] (or [L, B, E]) -> views [B, heads, L, D]."""
        tensors = {"query": query, "key": key, "value": value}
        check_input(tensors, (self.embed_dim, self.kdim, self.vdim), self.batch_first)
        if not self.batch_first:
            query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        split = (-1, self.head_dim)
        q = self.q_proj(query).unflatten(-1, split)
        k = self.k_proj(key).unflatten(-1, split)
        v = self.v_proj(value).unflatten(-1, split)
        if self.rotary:
            q, k = (torch.ops.performer.rotary(x, position) for x in (q, k))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _merge(self, out: Tensor) -> Tensor:
        """[B, H, L, D] -> [B, L, E] (or [L, B, E])."""
        merged: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return merged if self.batch_first else merged.transpose(0, 1)

    def _options(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "eps": self.eps,
            "renormalize": self.renormalize,
            "near": self.near,
        }

    def _position(self, position: int | None, state: FavorState | None) -> int:
        if position is None and self.rotary and state is not None:
            raise ValueError(
                "FavorAttention: rotary needs position=, how many tokens the state has read"
            )
        if position is not None and position < 0:
            raise ValueError(f"FavorAttention: position must be at least 0, got {position}")
        return 0 if position is None else position
