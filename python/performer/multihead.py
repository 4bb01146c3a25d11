"""FavorAttention under the arguments of torch.nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from performer.module import FavorAttention


class MultiheadAttention(FavorAttention):
    """FavorAttention that takes the place of nn.MultiheadAttention by its name alone.

    Arguments, their order, layouts, the initial weights and the names in load_state_dict are
    those of nn.MultiheadAttention; the result is always (output, weights). What differs:

    - need_weights is False unless asked for, so that the cost stays linear: weights are None.
    - attn_mask may be causal, the same for every query, or both; others are refused.
    - dropout, add_bias_kv and add_zero_attn other than 0 and False are refused.
    - A query without keys gets 0 from its heads, not NaN.

    A causal layer has step(); the state before it is that of the prompt,
    `out, state = FavorAttention.forward(attention, x, return_state=True)`.

    Args:
        num_features, causal: as in FavorAttention; causal needs no attn_mask.
        options: the further arguments of FavorAttention, such as feature_map, seed, layer.

    Example:
        >>> attention = performer.MultiheadAttention(512, 8, batch_first=True)
        >>> y, _ = attention(x, x, x, key_padding_mask=padding)     # [B, L, 512]
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        num_features: int | None = 256,
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            num_features,
            causal,
            bias=bias,
            device=device,
            dtype=dtype,
            batch_first=batch_first,
            kdim=kdim,
            vdim=vdim,
            dropout=dropout,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            **options,
        )
        self._reset_linear_maps()

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As nn.MultiheadAttention's; query, key and value may lack the batch: [L, E]."""
        batch = 0 if self.batch_first else 1
        alone = query.dim() == 2
        if alone:
            query, key, value = (x.unsqueeze(batch) for x in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        out, weights = super().forward(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        if alone:
            return out.squeeze(batch), None if weights is None else weights.squeeze(0)
        return out, weights

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_linear_maps()

    def _reset_linear_maps(self) -> None:
        """nn.MultiheadAttention's: uniform by the size of the joint map, and no biases."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        one = self.kdim == self.vdim == self.embed_dim
        joint = sum(part.out_features for part in parts)
        for part in parts:
            rows = joint if one else part.out_features
            bound = math.sqrt(6 / (rows + part.in_features))
            nn.init.uniform_(part.weight, -bound, bound)
        for part in (*parts, self.out_proj):
            if part.bias is not None:
                nn.init.zeros_(part.bias)
