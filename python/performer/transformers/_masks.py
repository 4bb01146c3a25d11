"""The mask function of attn_implementation="favor": keys that are real, never L x L."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from performer._masks import Sizes, read_mask


def favor_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **others: Any,
) -> Tensor | None:
    """bool [B, kv_offset + kv_length], True is a real key; None: all are.

    Of the patterns that transformers asks for, FAVOR+ has the causal and the full one; a window
    is one of them as long as it holds the whole sequence. Others are refused by name.
    """
    keys = kv_offset + kv_length
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        plain = allow_is_causal_skip or allow_is_bidirectional_skip
        if local_size is None or not plain or keys > local_size:
            raise ValueError(_refusal(local_size, plain, keys))
    if attention_mask is None:
        return None
    mask = attention_mask.to(torch.bool)
    if mask.shape[-1] < keys:  # as transformers: what the mask does not reach is no key
        mask = torch.nn.functional.pad(mask, (0, keys - mask.shape[-1]))
    mask = mask[:, :keys]
    if not torch.compiler.is_compiling() and bool(mask.all()):
        return None
    return mask


def _refusal(local_size: int | None, plain: bool, keys: int) -> str:
    if local_size is not None and plain:
        return (
            f"favor: a sliding window or chunk of {local_size} tokens, got {keys} keys; FAVOR+ "
            f"sees all keys, near=N in config.favor weighs the close ones exactly"
        )
    if torch.compiler.is_compiling():
        return (
            "favor: compiled code cannot tell whether position_ids begin anew inside a row, which "
            "would be packed sequences; pass an attention_mask"
        )
    return (
        "favor: the mask must be causal, full, or either with padding, got another pattern (packed "
        "sequences by position_ids, a prefix, an overlay); FAVOR+ forms no single weights to remove"
    )


def read_given_mask(mask: Tensor | None, sizes: Sizes, causal: bool) -> tuple[bool, Tensor | None]:
    """What a layer gets: favor_mask's answer, or a mask [B, 1, Lq, Lk] of the user's own, which
    says all there is about causality. Returns causal and bool [B, >= Lk], True is a real key."""
    if mask is None:
        return causal, None
    if not isinstance(mask, Tensor):
        raise ValueError(f"favor: attention_mask must be a tensor, got {type(mask).__name__}")
    if mask.dim() == 2:
        return causal, mask.to(torch.bool)
    read = read_mask("favor", mask, sizes)
    if read.key_bias is not None:
        raise ValueError(
            f"favor: attention_mask must remove keys (bool, or 0 and -inf) alike for all heads, "
            f"got one that adds {list(read.key_bias.shape)} (batch, heads, keys)"
        )
    stored_once = mask.shape[2] == 1  # [B, 1, 1, Lk] leaves causality to the layer
    return read.causal or (causal and stored_once), read.key_mask
