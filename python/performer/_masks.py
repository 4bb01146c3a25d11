"""Masks of other attention calls, read as what FAVOR+ can do: causal, and keys left out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_REMOVES = -1e8  # added to a logit
_MAPS_WITH_BIAS = ("positive", "loglinear", "hyperbolic", "trigonometric")


class Masks(NamedTuple):
    """Arguments of favor_attention."""

    causal: bool = False
    key_mask: Tensor | None = None  # bool [B, Lk], True is a real key
    key_bias: Tensor | None = None  # [B, 1 or H, Lk], added to the key's log feature


class Sizes(NamedTuple):
    """Of the attention matrix that a mask covers."""

    batch: int
    heads: int
    queries: int
    keys: int


def read_mask(op: str, mask: Tensor, sizes: Sizes) -> Masks:
    """attn_mask in the convention of torch's scaled_dot_product_attention: bool, True may attend;
    or floating, added to the logits. Anything that broadcasts to [B, H, Lq, Lk].

    A mask whose rows are stored once, [..., 1, Lk] or expanded, is read by its shape. Others are
    read by value: rows that are all the same, the causal triangle, or both at once.
    """
    mask = _in_four_dimensions(op, mask, sizes)
    if sizes.queries == 0:
        return Masks()
    if mask.shape[2] == 1 or mask.stride(2) == 0:
        return _of_keys(mask[:, :, 0], sizes)
    if torch.compiler.is_compiling():
        raise ValueError(
            f"{op}: compiled code cannot look into attn_mask {list(mask.shape)}; "
            f"pass is_causal=True for a causal one, or [..., 1, keys] for one of keys"
        )
    if mask.requires_grad and torch.is_grad_enabled():  # one row is read: it alone would learn
        raise ValueError(
            f"{op}: an attn_mask that is learned must be stored once per key, [..., 1, keys], "
            f"got {list(mask.shape)}"
        )
    if bool((mask == mask[:, :, :1]).all()):
        return _of_keys(mask[:, :, 0], sizes)
    triangle = torch.ones(sizes.queries, sizes.keys, dtype=torch.bool, device=mask.device).tril()
    removed = _removed(mask)
    if sizes.queries == sizes.keys and bool(removed.masked_select(~triangle.expand_as(mask)).all()):
        below = mask.masked_fill(~triangle, 0)
        last = mask[:, :, -1:]  # sees every key that any row sees
        if bool((below == last.expand_as(mask).masked_fill(~triangle, 0)).all()):
            return _of_keys(last[:, :, 0], sizes)._replace(causal=True)
    raise ValueError(
        f"{op}: attn_mask must be causal, or the same for every query (padding), or both, got a "
        f"mask {list(mask.shape)} of neither kind; FAVOR+ forms no single weights to remove"
    )


def read_multihead_mask(mask: Tensor | None, is_causal: bool, sizes: Sizes) -> Masks:
    """attn_mask of nn.MultiheadAttention: [Lq, Lk] or [B H, Lq, Lk], bool True may not attend.

    is_causal beside it says that it is the causal one; as there, that is believed.
    """
    if mask is None or is_causal:
        return Masks(causal=is_causal)
    rows = sizes.batch * sizes.heads
    if mask.dim() != 2 and (mask.dim() != 3 or mask.shape[0] != rows):
        raise ValueError(
            f"FavorAttention: attn_mask must be [{sizes.queries}, {sizes.keys}] (queries, keys) or "
            f"[{rows}, {sizes.queries}, {sizes.keys}] (batch x heads first), "
            f"got {list(mask.shape)}"
        )
    if mask.dtype == torch.bool:
        mask = ~mask
    if mask.dim() == 3:
        mask = mask.unflatten(0, sizes[:2])
    return read_mask("FavorAttention", mask, sizes)


def check_bias(op: str, masks: Masks, feature_map: object) -> None:
    """Whether the map can add what attn_mask adds; keys left out, every map can do."""
    if masks.key_bias is not None and feature_map not in _MAPS_WITH_BIAS:
        raise ValueError(
            f"{op}: attn_mask must be bool and the same for all heads with feature_map "
            f"{feature_map!r} (softmax maps alone add numbers to their logits), got one that adds "
            f"{list(masks.key_bias.shape)} (batch, heads, keys)"
        )


def read_key_masks(
    key_mask: Tensor | None, key_padding_mask: Tensor | None, sizes: Sizes
) -> Tensor | None:
    """key_mask, or what key_padding_mask of nn.MultiheadAttention says: bool, True is padding; or
    floating with 0 and -inf, into which torch's encoder layers turn it."""
    if key_padding_mask is None:
        return key_mask
    if key_mask is not None:
        raise ValueError(
            "FavorAttention: key_mask (True: a real key) and key_padding_mask (True: padding) "
            "say the same thing, got both; pass one"
        )
    mask, wrong = key_padding_mask, "FavorAttention: key_padding_mask must be bool (True: padding)"
    if mask.shape != (sizes.batch, sizes.keys):
        raise ValueError(
            f"FavorAttention: key_padding_mask must be [{sizes.batch}, {sizes.keys}] (batch, "
            f"length of key), got {list(mask.shape)}"
        )
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.dtype.is_floating_point:
        raise ValueError(f"{wrong}, got {mask.dtype}")
    wrong += ", or floating with 0 and -inf alone"
    removed = _removed(mask)
    other = ~removed & (mask != 0)
    if torch.compiler.is_compiling():
        torch._assert_async(~other.any(), wrong)
    elif bool(other.any()):
        raise ValueError(f"{wrong}, got {mask.dtype} with {mask[other][0].item():.4g}")
    return ~removed


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Keys that are real by two masks, of which either may be missing."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _in_four_dimensions(op: str, mask: Tensor, sizes: Sizes) -> Tensor:
    fits = mask.dim() <= 4
    if fits:
        mask = mask[(None,) * (4 - mask.dim())]
        for have, want in zip(mask.shape, sizes, strict=True):
            fits = fits and (have == 1 or have == want)
    if not fits:
        raise ValueError(
            f"{op}: attn_mask must broadcast to {list(sizes)} (batch, heads, queries, keys), "
            f"got {list(mask.shape)}"
        )
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise ValueError(f"{op}: attn_mask must be bool or floating, got {mask.dtype}")
    return mask.expand(-1, -1, -1, sizes.keys)  # the other axes may stay 1


def _of_keys(row: Tensor, sizes: Sizes) -> Masks:
    """row: [B or 1, H or 1, Lk]."""
    if row.dtype == torch.bool and row.shape[1] == 1:
        return Masks(key_mask=row[:, 0].expand(sizes.batch, -1))
    removed = _removed(row)
    if row.dtype == torch.bool:
        row = torch.zeros(row.shape, device=row.device)
    elif row.shape[1] == 1 and not torch.compiler.is_compiling() and not row.requires_grad:
        kept = row.masked_select(~removed)
        if not bool(kept.any()):  # 0 and -inf alone: every map can leave a key out
            return Masks(key_mask=~removed[:, 0].expand(sizes.batch, -1))
    bias = row.masked_fill(removed, -torch.inf)
    return Masks(key_bias=bias.expand(sizes.batch, -1, -1))


def _removed(mask: Tensor) -> Tensor:
    """Pairs that a mask takes out; floating ones say it by the lowest number of some dtype, or by
    -1e9. Far less than that vanishes beside any other key, and -1e9 is beyond the scales."""
    if mask.dtype == torch.bool:
        return ~mask
    return mask <= max(torch.finfo(mask.dtype).min, _REMOVES)
